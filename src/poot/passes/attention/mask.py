"""The masks of a chain as operands of the op.

Masks that are added become one additive mask, their sum. Selects to one fill become one bool mask,
true where every condition keeps the score. Where both stand, the added ones first, the sum is the
`bias`. Of selects to -inf, the claims that compare row and key positions alone become `causal` and
`window`. An additive mask after a select would have to be proved finite: it is declined.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.ir.graph import Var
from poot.passes.attention.declines import claim
from poot.passes.attention.hidden import Bound, bound_of, conjuncts
from poot.passes.attention.live import Length, length_at
from poot.passes.attention.rows import Dims
from poot.passes.attention.scores import Stage
from poot.passes.attention.views import reshaped
from poot.passes.engine import Scope


@dataclass(frozen=True, slots=True)
class Masks:
    """What the op takes: operands by name and attributes by name."""

    operands: tuple[tuple[str, Var], ...]
    attrs: tuple[tuple[str, float | int], ...]


def score_lengths(scope: Scope, masks: tuple[Stage, ...], dims: Dims) -> list[Length]:
    """The lengths past which every score is -inf in the end: nothing but -inf is put in a score's
    place after."""
    out: list[Length] = []
    for stage in _last_hidden(masks):
        batch = _batch_axes(stage, dims)
        for each in _claims(scope, stage) if batch is not None else ():
            length = length_at(scope, each, stage.shape, batch or [], dims.keys)
            out += [length] if length is not None else []
    return out


def _last_hidden(masks: tuple[Stage, ...]) -> list[Stage]:
    """The selects to -inf that stand at the end."""
    out: list[Stage] = []
    for stage in reversed(masks):
        if stage.kind != "select" or stage.number != -math.inf:
            break
        out.append(stage)
    return out


def read_masks(
    scope: Scope, masks: tuple[Stage, ...], dims: Dims, dtype: str, live: Length | None = None
) -> Masks:
    """The masks of scores computed for operands of `dtype`; what the live length says is left out.
    Raises Decline."""
    adds = [m for m in masks if m.kind != "select"]
    for mask in masks[len(adds) :]:
        what = "a mask is added after scores were selected away; add it before the select"
        claim(mask.kind == "select", what, mask.loc)
    selects = [_Select(m, _claims(scope, m)) for m in masks if m.kind == "select"]
    if live is not None:
        selects = _without(scope, selects, masks, dims, live)
    fills = [s.stage.number for s in selects]
    for select in selects[1:]:
        what = f"selects to unlike numbers, {fills[0]} and {select.stage.number}"
        claim(select.stage.number == fills[0], what, select.stage.loc)
    attrs: list[tuple[str, float | int]] = []
    kept = _kept(scope, selects, dims, attrs)
    added = _sum(scope, adds, dims, dtype)
    if kept is None:
        return Masks((("mask", added),) if added is not None else (), tuple(attrs))
    attrs.append(("mask_fill", fills[0]))
    bias = (("bias", added),) if added is not None else ()
    return Masks((*bias, ("mask", kept)), tuple(attrs))


@dataclass(frozen=True, slots=True)
class _Select:
    """A select of the scores, and the claims that together keep a score."""

    stage: Stage
    claims: tuple[tuple[Var, bool], ...]


def _claims(scope: Scope, stage: Stage) -> tuple[tuple[Var, bool], ...]:
    assert stage.operand is not None
    return tuple(conjuncts(scope, stage.operand, stage.keeps))


def _without(
    scope: Scope, selects: list[_Select], masks: tuple[Stage, ...], dims: Dims, live: Length
) -> list[_Select]:
    """The selects without the claims that the live length makes."""
    hidden = _last_hidden(masks)
    out: list[_Select] = []
    for select in selects:
        batch = _batch_axes(select.stage, dims) if select.stage in hidden else None
        left = tuple(
            c for c in select.claims
            if batch is None or length_at(scope, c, select.stage.shape, batch, dims.keys) != live
        )  # fmt: skip
        if left:
            out.append(_Select(select.stage, left))
    return out


def _batch_axes(stage: Stage, dims: Dims) -> list[int] | None:
    groups = _grouped(stage.shape[:-1], (dims.batch, dims.heads, dims.rows))
    return groups[0] if groups is not None else None


def _kept(
    scope: Scope, selects: list[_Select], dims: Dims, attrs: list[tuple[str, float | int]]
) -> Var | None:
    """Where every select keeps the score, but for claims that became attributes."""
    plain: list[_Claim] = []
    bounded: list[tuple[_Claim, Bound]] = []
    for select in selects:
        stage = select.stage
        by_rows = stage.number == -math.inf and stage.shape[-2:] == (dims.rows, dims.keys)
        for var, holds in select.claims:
            bound = bound_of(scope, var, holds, stage.shape) if by_rows else None
            if bound is None:
                plain.append(_Claim(var, holds, stage.shape))
            else:
                bounded.append((_Claim(var, holds, stage.shape), bound))
    if not _bounds_as_attrs([bound for _, bound in bounded], attrs):
        plain += [c for c, _ in bounded]
    out: Var | None = None
    for each in plain:
        four = four_axes(scope, each.var, each.shape, dims)
        four = four if each.holds else scope.emit("not", four)
        out = four if out is None else scope.emit("and", out, four)
    return out


@dataclass(frozen=True, slots=True)
class _Claim:
    """A condition that keeps scores of that shape where it holds, or where it doesn't."""

    var: Var
    holds: bool
    shape: tuple[int, ...]


def _bounds_as_attrs(bounds: list[Bound], attrs: list[tuple[str, float | int]]) -> bool:
    """Adds causal and window to attrs where that is what the bounds say, and tells whether."""
    upper = [b.at for b in bounds if b.is_upper]
    lower = [b.at for b in bounds if not b.is_upper]
    if not upper:
        return False
    causal = min(upper)
    window = causal - max(lower) + 1 if lower else None
    if window is not None and window < 1:
        return False
    attrs.append(("causal", causal))
    if window is not None:
        attrs.append(("window", window))
    return True


def read_sink(scope: Scope, sink: Var, shape: tuple[int, ...], dims: Dims, loc: str) -> Var:
    """A logit that stands beside scores of that shape, as [Hq]. Raises Decline where it is not one
    number a head."""
    four = four_axes(scope, sink, shape, dims)
    per_head = four.type.shape in ((1, dims.heads, 1, 1), (1, 1, 1, 1))
    claim(per_head, f"a sink that is not one logit a head: {sink.type}", loc)
    one = reshaped(scope, four, four.type.shape[1:2])
    if one.type.shape == (dims.heads,):
        return one
    return scope.emit("broadcast", one, shape=(dims.heads,))


def _sum(scope: Scope, adds: list[Stage], dims: Dims, dtype: str) -> Var | None:
    """The additive masks' sum, in f32 where there are several or their dtype isn't the op's."""
    out: Var | None = None
    for stage in adds:
        assert stage.operand is not None
        four = four_axes(scope, stage.operand, stage.shape, dims)
        if len(adds) > 1 or four.type.dtype != dtype:
            four = cast_to(scope, four, "f32")
        four = scope.emit("neg", four) if stage.kind == "sub" else four
        out = four if out is None else scope.emit("add", out, four)
    return out


def cast_to(scope: Scope, x: Var, dtype: str) -> Var:
    """x in a dtype; x itself where it has it."""
    return x if x.type.dtype == dtype else scope.emit("cast", x, dtype=dtype)


def four_axes(scope: Scope, x: Var, shape: tuple[int, ...], dims: Dims) -> Var:
    """x, which broadcasts to scores of that shape, as [B|1, Hq|1, Lq|1, Lk|1]."""
    padded = (1,) * (len(shape) - len(x.type.shape)) + x.type.shape
    groups = _grouped(shape[:-1], (dims.batch, dims.heads, dims.rows))
    if groups is None:
        full = scope.emit("broadcast", x, shape=(*shape[:-1], padded[-1]))
        return reshaped(scope, full, (dims.batch, dims.heads, dims.rows, padded[-1]))
    wide = list(padded)
    for axes in groups:
        if any(padded[a] != 1 for a in axes):
            for a in axes:
                wide[a] = shape[a]
    x = reshaped(scope, x, padded)
    if tuple(wide) != padded:
        x = scope.emit("broadcast", x, shape=tuple(wide))
    extents = [math.prod(wide[a] for a in axes) for axes in groups]
    return reshaped(scope, x, (*extents, wide[-1]))


def _grouped(shape: tuple[int, ...], targets: tuple[int, ...]) -> list[list[int]] | None:
    """The axes of shape, in order, in groups whose extents multiply to each target."""
    groups: list[list[int]] = []
    axis = len(shape) - 1
    for target in reversed(targets):
        group: list[int] = []
        product = 1
        while product != target or (axis >= 0 and shape[axis] == 1 and not group):
            if axis < 0 or target % (product * shape[axis]):
                return None
            product *= shape[axis]
            group.append(axis)
            axis -= 1
        groups.append(group)
    groups[-1].extend(range(axis + 1))
    ok = all(shape[a] == 1 for a in range(axis + 1))
    return list(reversed(groups)) if ok else None
