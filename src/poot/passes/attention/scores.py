"""From the softmax's input back to the matmul of queries and keys.

What stands between is a list of stages: a number that multiplies, tanh, something added, a select
between the scores and a number. In one order they are what the op does: scale, softcap, then masks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from poot.ir.graph import Eqn, Var
from poot.passes.attention.declines import Decline, claim
from poot.passes.attention.softmax import Chain
from poot.passes.attention.views import factor_of
from poot.passes.engine import Scope
from poot.passes.facts import is_float_cast, number_of

_DEEPEST = 48
_NEAR_ONE = 2.0**-21  # log2(e) times ln(2), each rounded to f32, is that near to 1


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of the scores. `kind` is "scale", "tanh", "add", "sub" or "select"; `number` is the
    factor, or the fill of a select; `operand` is what is added, or the condition; `keeps` says that
    a true condition keeps the score. `shape` is the scores' where it stands."""

    kind: str
    shape: tuple[int, ...]
    loc: str
    number: float = 1.0
    operand: Var | None = None
    keeps: bool = True


@dataclass(frozen=True, slots=True)
class Scores:
    """The matmul, the stages from it on, and every eqn of the way."""

    matmul: Eqn
    stages: tuple[Stage, ...]
    eqns: tuple[Eqn, ...]


@dataclass(frozen=True, slots=True)
class _Miss:
    """Why a way back ends without a matmul. `is_near` if one stands behind what is in the way."""

    reason: str
    loc: str
    is_near: bool


def trace_scores(scope: Scope, var: Var, chain: Chain) -> Scores | None:
    """The way from var back to a matmul; None where there is none. Raises Decline where something
    that attention has no place for stands in it."""
    got = _Walk(scope).back(var, 0)
    if isinstance(got, Scores):
        for eqn in got.eqns:
            chain.add(eqn)
        return got
    if got.is_near:
        raise Decline(got.reason, got.loc)
    return None


class _Walk:
    """The search back; an add of two full operands has two ways."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.known: dict[int, Scores | _Miss] = {}
        self.rows: dict[str, Callable[[Eqn, int], Scores | _Miss]] = {
            "matmul": lambda e, _: Scores(e, (), (e,)),
            "tanh": self._tanh,
            "neg": lambda e, d: self._on(e, d, e.ins[0], _stage(e, "scale", -1.0)),
            "mul": self._times,
            "div": self._times,
            "add": self._plus,
            "sub": self._minus,
            "select": self._select,
        }

    def back(self, var: Var, depth: int) -> Scores | _Miss:
        if var.id not in self.known:
            self.known[var.id] = self._step(var, depth)
        return self.known[var.id]

    def _step(self, var: Var, depth: int) -> Scores | _Miss:
        eqn = self.scope.producer(var)
        if eqn is None or depth > _DEEPEST:
            return _Miss("no matmul gives the scores", "", False)
        if is_float_cast(eqn) or _keeps_keys(eqn):
            return self._on(eqn, depth, eqn.ins[0], None)
        row = self.rows.get(eqn.op)
        if row is not None:
            return row(eqn, depth)
        return _Miss(f"the scores pass through {eqn.op}", eqn.loc, self._is_near(eqn))

    def _on(self, eqn: Eqn, depth: int, var: Var, stage: Stage | None) -> Scores | _Miss:
        """The way on from one operand, with this eqn's stage at its end."""
        got = self.back(var, depth + 1)
        if isinstance(got, _Miss):
            return got
        stages = got.stages if stage is None else (*got.stages, stage)
        return Scores(got.matmul, stages, (*got.eqns, eqn))

    def _tanh(self, eqn: Eqn, depth: int) -> Scores | _Miss:
        return self._on(eqn, depth, eqn.ins[0], _stage(eqn, "tanh"))

    def _times(self, eqn: Eqn, depth: int) -> Scores | _Miss:
        number = factor_of(self.scope, eqn)
        if number is not None:
            return self._on(eqn, depth, eqn.ins[0], _stage(eqn, "scale", number))
        for x, by in _ways(eqn, both=eqn.op == "mul"):
            if isinstance(self.back(x, depth + 1), Scores):
                return _Miss(self._why_not_times(eqn, by), eqn.loc, True)
        return _Miss("no matmul gives the scores", eqn.loc, False)

    def _why_not_times(self, eqn: Eqn, by: Var) -> str:
        if number_of(self.scope, by) is not None:
            return "the scale is 0 or not finite"
        if by.type.shape and by.type.shape[-1] != 1:
            verb = "multiplies" if eqn.op == "mul" else "divides"
            return f"a mask that {verb} the scores is not additive: {by.type}"
        remedy = "multiply q by it before the matmul, or give a number"
        return f"the scale is a tensor, {by.type}: {remedy}"

    def _plus(self, eqn: Eqn, depth: int) -> Scores | _Miss:
        return self._first(eqn, depth, "add", both=True)

    def _minus(self, eqn: Eqn, depth: int) -> Scores | _Miss:
        return self._first(eqn, depth, "sub", both=False)

    def _first(self, eqn: Eqn, depth: int, kind: str, *, both: bool) -> Scores | _Miss:
        """The first operand that a matmul gives; the other is added, or taken away."""
        missed: list[_Miss] = []
        for x, other in _ways(eqn, both=both):
            is_nothing = number_of(self.scope, other) == 0.0
            stage = None if is_nothing else _stage(eqn, kind, operand=other)
            got = self._on(eqn, depth, x, stage)
            if isinstance(got, Scores):
                return got
            missed.append(got)
        near = [m for m in missed if m.is_near]
        return (near or missed or [_Miss("no matmul gives the scores", eqn.loc, False)])[0]

    def _select(self, eqn: Eqn, depth: int) -> Scores | _Miss:
        cond, a, b = eqn.ins
        missed: list[_Miss] = []
        for x, other, keeps in ((a, b, True), (b, a, False)):
            if not _is_whole(x, eqn.out):
                continue
            fill = number_of(self.scope, other)
            stage = _stage(eqn, "select", 0.0 if fill is None else fill, cond, keeps)
            got = self._on(eqn, depth, x, stage)
            if isinstance(got, Scores) and fill is None:
                got = _Miss("what a select puts in the scores' place is no number", eqn.loc, True)
            if isinstance(got, Scores):
                return got
            missed.append(got)
        near = [m for m in missed if m.is_near]
        return (near or missed or [_Miss("no matmul gives the scores", eqn.loc, False)])[0]

    def _is_near(self, eqn: Eqn) -> bool:
        """Whether one of eqn's operands leads back to a matmul in a few steps."""
        stack, seen = list(eqn.ins), 0
        while stack and seen < 16:
            seen += 1
            made = self.scope.producer(stack.pop())
            if made is not None and made.op == "matmul":
                return True
            if made is not None:
                stack.extend(v for v in made.ins if v.type.elems >= eqn.outs[0].type.elems)
        return False


def _stage(
    eqn: Eqn, kind: str, number: float = 1.0, operand: Var | None = None, keeps: bool = True
) -> Stage:
    return Stage(kind, eqn.out.type.shape, eqn.loc, number, operand, keeps)


def _keeps_keys(eqn: Eqn) -> bool:
    if eqn.op != "reshape":
        return False
    x, out = eqn.ins[0].type.shape, eqn.out.type.shape
    return bool(x) and bool(out) and x[-1] == out[-1]


def _ways(eqn: Eqn, *, both: bool) -> list[tuple[Var, Var]]:
    """(an operand as large as the result, the other)."""
    a, b = eqn.ins
    ways = [(a, b), (b, a)] if both else [(a, b)]
    return [(x, other) for x, other in ways if _is_whole(x, eqn.out)]


def _is_whole(x: Var, out: Var) -> bool:
    """Whether x is all of out: of its type, but for axes of extent 1 in front."""
    lead = len(out.type.shape) - len(x.type.shape)
    same = x.type.dtype == out.type.dtype and lead >= 0
    return same and out.type.shape == (1,) * lead + x.type.shape


@dataclass(frozen=True, slots=True)
class Form:
    """The stages as the op has them: scale, softcap (or None), then masks in order."""

    scale: float
    softcap: float | None
    masks: tuple[Stage, ...]


def read_stages(stages: tuple[Stage, ...], after: float, loc: str) -> Form:
    """The form of the stages, the scores multiplied by `after` in the end. Raises Decline where
    their order is not the op's."""
    scale, outer, capped = 1.0, 1.0, False
    masks: list[Stage] = []
    kinds = [stage.kind for stage in stages]
    first_mask = next((n for n, k in enumerate(kinds) if k not in ("scale", "tanh")), len(kinds))
    for stage in stages[first_mask:]:
        what = "softcap after the mask: hidden keys would get weight"
        claim(stage.kind != "tanh", what, stage.loc)
    for stage in _runs((*stages, Stage("scale", (), loc, after))):
        if stage.kind == "scale" and not masks:
            outer = outer * stage.number if capped else outer
            scale = scale if capped else scale * stage.number
        elif stage.kind == "scale":
            masks = _scaled(masks, stage)
            outer = outer * stage.number if capped and _scales(stage) else outer
            scale = scale * stage.number if not capped and _scales(stage) else scale
        elif stage.kind == "tanh":
            claim(not capped, "two softcaps", stage.loc)
            capped = True
        else:
            masks.append(stage)
    scale, softcap = (scale * outer, outer) if capped else (scale, None)
    sizes = (scale,) if softcap is None else (scale, softcap)
    usable = all(2.0**-126 <= abs(x) < 2.0**128 for x in sizes)
    claim(usable, f"scale or softcap is no normal f32: {scale}, {softcap}", loc)
    return Form(scale, softcap, tuple(masks))


def _runs(stages: tuple[Stage, ...]) -> list[Stage]:
    """The stages with factors that follow one another as one."""
    out: list[Stage] = []
    for stage in stages:
        if out and out[-1].kind == stage.kind == "scale":
            before = out.pop()
            stage = replace(before, number=before.number * stage.number)
        out.append(stage)
    return out


def _scales(stage: Stage) -> bool:
    """Whether a factor is one, and not the rest that log2(e) * ln(2) leaves."""
    return abs(stage.number - 1.0) > _NEAR_ONE


def _scaled(masks: list[Stage], stage: Stage) -> list[Stage]:
    """The masks under a factor that stands after them: fills are multiplied, nothing else can be
    without rounding a mask."""
    if not _scales(stage):
        return masks
    out: list[Stage] = []
    for mask in masks:
        what = "the scores are scaled after a mask is added, which could overflow the mask"
        claim(mask.kind == "select", what, stage.loc)
        number = mask.number * stage.number
        claim(not math.isnan(number), "a fill of -inf times 0", stage.loc)
        out.append(Stage("select", mask.shape, mask.loc, number, mask.operand, mask.keeps))
    return out
