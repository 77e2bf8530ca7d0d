"""What hides keys, stage by stage: selects of the scores, and added planes of 0 and a fill.

A hidden key need not be visited where it is hidden by -inf in the end, or, where the caller assumes
so, by a number at or below `lowest`. What compares positions alone, or is known to keep the same
keys (`triangles.py`), becomes `causal` and `window`; a limit that is a declared position of the
step becomes the length of the keys that some row may see.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from poot.ir.graph import Slot, Var
from poot.passes.attention.before import Before, before_of
from poot.passes.attention.hidden import Bound, bound_of, conjuncts, only_leads
from poot.passes.attention.live import Length
from poot.passes.attention.proofs import Proofs
from poot.passes.attention.rows import Dims
from poot.passes.attention.scores import Stage
from poot.passes.attention.triangles import bounds_of_known, fill_of_known
from poot.passes.attention.views import joined, steps_to
from poot.passes.engine import Scope
from poot.passes.facts import number_of

Claim = tuple[Var, bool]


@dataclass(frozen=True, slots=True)
class Hides:
    """A stage and the claims that together keep a score from its fill: conditions, each with
    whether it has to hold."""

    stage: Stage
    fill: float
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class Assumed:
    """Fills at or below `lowest` hide a key as -inf does. Without `proofs`, no position of the step
    bounds the keys."""

    lowest: float = -math.inf
    proofs: Proofs | None = None


NOTHING_ASSUMED = Assumed()


def hides_of(scope: Scope, stage: Stage) -> Hides | None:
    """What a stage hides, or None where it is a mask of other numbers."""
    assert stage.operand is not None
    if stage.kind == "select":
        return Hides(stage, stage.number, tuple(conjuncts(scope, stage.operand, stage.keeps)))
    if stage.kind != "add":
        return None
    said = _said(scope, stage, stage.operand)
    if said is not None:
        return said
    fill = fill_of_known(scope, stage.operand)
    return None if fill is None else Hides(stage, fill, ((stage.operand, True),))


def _said(scope: Scope, stage: Stage, plane: Var) -> Hides | None:
    """What a plane that is added hides where it is a select of 0 and a number."""
    base, steps = steps_to(scope, plane)
    eqn = scope.producer(base)
    if eqn is None or eqn.op != "select":
        return None
    if any(s.op == "transpose" or (s.op == "reshape" and not only_leads(s)) for s in steps):
        return None
    first, second = (number_of(scope, v) for v in eqn.ins[1:])
    if first is None or second is None or 0.0 not in (first, second):
        return None
    keeps = first == 0.0
    fill = second if keeps else first
    return Hides(stage, fill, tuple(conjuncts(scope, eqn.ins[0], keeps)))


def apart(scope: Scope, stage: Stage, lowest: float) -> tuple[Stage, ...]:
    """The stage; or, where what it adds is a sum with a plane that hides keys by comparing
    positions, that plane and the rest, each as a stage. The sum of both is the same mask."""
    made = scope.producer(stage.operand) if stage.operand is not None else None
    if stage.kind != "add" or made is None or made.op != "add":
        return (stage,)
    parts = [replace(stage, operand=v) for v in made.ins]
    if not any(_bounds(scope, part, lowest) for part in parts):
        return (stage,)
    return tuple(p for part in parts for p in apart(scope, part, lowest))


def _bounds(scope: Scope, stage: Stage, lowest: float) -> bool:
    """Whether a stage hides keys by a number at or below `lowest`, under a condition on positions
    among others."""
    found = hides_of(scope, stage)
    if found is None or found.fill > lowest:
        return False
    ways = (bound_of, before_of, bounds_of_known)
    return any(way(scope, *c, stage.shape) for way in ways for c in found.claims)


def last_hidden(hides: list[Hides | None], lowest: float) -> list[bool]:
    """For each stage whether what it hides stays hidden to the end: no later one selects a number
    above `lowest`."""
    out: list[bool] = []
    is_last = True
    for each in reversed(hides):
        low = each is not None and each.fill <= lowest
        out.append(is_last and low)
        is_last = is_last and (low or each is None or each.stage.kind != "select")
    return out[::-1]


def bounds_by_rows(scope: Scope, hides: Hides, claim: Claim, dims: Dims) -> tuple[Bound, ...]:
    """The bounds that a claim sets the keys of each row, where it compares their positions alone or
    is known to say the same."""
    shape = hides.stage.shape
    if shape[-2:] != (dims.rows, dims.keys):
        return ()
    said = bound_of(scope, *claim, shape)
    return (said,) if said is not None else bounds_of_known(scope, *claim, shape)


@dataclass(frozen=True, slots=True)
class Reach:
    """The length of the keys that the last row of a step may see, and whether each row may see as
    many."""

    length: Length
    is_all: bool


def reach_of(
    scope: Scope, hides: Hides, claim: Claim, groups: list[list[int]], dims: Dims, proofs: Proofs
) -> Reach | None:
    """How far the rows of a step see under a claim whose limit is a declared position; proved in
    1..Lk for the last row, and 1 or more for the first."""
    found = before_of(scope, *claim, hides.stage.shape)
    if found is None or not _is_position(scope, found.limit):
        return None
    batch, _, rows = groups
    reach = _by_rows(found, batch, rows, dims.keys)
    if reach is None:
        return None
    least, most = reach
    lies = joined(tuple(pair for axis in batch for pair in found.lies[axis]))
    last = Length(found.limit, lies, found.at + most)
    first = Length(found.limit, lies, found.at + least)
    if any(x.why_not(proofs, dims.keys) is not None for x in (first, last)):
        return None
    return Reach(last, least == most)


def _is_position(scope: Scope, limit: Var) -> bool:
    given = scope.input(limit)
    return given is not None and isinstance(given.storage, Slot) and given.storage.kind == "pos"


def _by_rows(claim: Before, batch: list[int], rows: list[int], keys: int) -> tuple[int, int] | None:
    """(least, most) that the rows add to the limit; None where more than rows and keys count."""
    key = len(claim.steps) - 1
    if joined(claim.steps[key]) != (((keys, 1),) if keys != 1 else ()):
        return None
    least = most = 0
    for axis, (steps, lies) in enumerate(zip(claim.steps, claim.lies, strict=True)):
        if axis not in batch and any(stride for _, stride in lies):
            return None
        for n, stride in steps if axis != key else ():
            if stride and axis not in rows:
                return None
            least += min(0, -stride * (n - 1))
            most += max(0, -stride * (n - 1))
    return least, most
