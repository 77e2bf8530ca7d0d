"""The mask of a selection, taken apart: lists, positions, ratio, and what is always visited.

chosen = max over K of select(list == block, 1, 0) > 0          [B,Hs,Lq,N]
mask = repeat(chosen, ratio) | (t >= C * ratio & t <= position)  [B,Hs,Lq,Lk], Hs repeated to Hq
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.ir.attrs import ints_attr
from poot.ir.graph import Var
from poot.passes.attention.declines import Decline, claim
from poot.passes.attention.views import Axis, View, joined, view_of, whole
from poot.passes.engine import Scope
from poot.passes.selection.lists import candidates_of, five_axes, unlisted
from poot.passes.selection.pattern import Bind, Index, Number, Of, Reshaped, match, var_at
from poot.passes.selection.rows import Place, is_one_a_row, place_of, start_of


@dataclass(frozen=True, slots=True)
class Selection:
    """What the op takes in a mask's place."""

    ids: Var
    positions: Place
    ratio: int
    always: str


_CHOSEN = Of("gt", (Reshaped(Bind("most"), "chosen"), Number(0)))
_MOST = Of(
    "reduce",
    (Of("select", (Of("eq", (Reshaped(Bind("list"), "one"), Index())), Number(1), Number(0))),),
    kind="max",
    axis=-2,
)
_ALWAYS = Of("and", (Of("ge", (Index(), Bind("start"))), Of("le", (Index(), Bind("place")))))
_UNTIL = Of("le", (Index(), Bind("place")))


def selection_of(scope: Scope, mask: Var, heads: int, declared: frozenset[int]) -> Selection | None:
    """The selection that a bool mask [B,1|Hq,Lq,Lk] states, or None where it is none. Raises
    Decline where it is one that can't be proved."""
    lists = view_of(scope, mask)
    eqn = scope.producer(lists.base)
    if eqn is None or len(lists.base.type.shape) != 4:
        return None
    if eqn.op == "or":
        for a, b in (eqn.ins, eqn.ins[::-1]):
            found = _member(scope, a)
            if found is not None:
                _need_heads(lists, heads)
                return _with_always(scope, found, b, declared)
    if eqn.op == "and":
        for a, b in (eqn.ins, eqn.ins[::-1]):
            member, until = _member(scope, a), match(scope, b, _UNTIL)
            if member is not None and until is not None:
                _need_heads(lists, heads)
                return _alone(scope, member, var_at(until, "place"), declared)
    if _member(scope, lists.base) is None and _member(scope, mask) is None:
        return None
    raise Decline("the selected blocks stand alone, whatever the row's position is", eqn.loc)


def _alone(
    scope: Scope, member: tuple[Var, int], place: Var, declared: frozenset[int]
) -> Selection:
    """Nothing is visited but the list: "none"."""
    ids, ratio = member
    batch, _, rows, _ = ids.type.shape
    claim(is_one_a_row(place, batch, rows), f"positions are not one a row: {place.type}")
    counted, row = candidates_of(scope, ids, declared), place_of(scope, place)
    if isinstance(counted, str):
        raise Decline(f"the list {ids.type}: {counted}")
    claim(
        counted.always(row) == "tail" and ratio == counted.ratio,
        f"blocks of {ratio} keys are selected, and candidates counted apart from them",
    )
    return Selection(ids, row, ratio, "none")


def _with_always(
    scope: Scope, member: tuple[Var, int], other: Var, declared: frozenset[int]
) -> Selection:
    ids, ratio = member
    batch, _, rows, _ = ids.type.shape
    found = match(scope, other, _ALWAYS)
    claim(found is not None, "what stands beside the selected blocks is not [C * ratio, position]")
    assert found is not None
    start, place = var_at(found, "start"), var_at(found, "place")
    fits = is_one_a_row(start, batch, rows) and is_one_a_row(place, batch, rows)
    claim(fits, f"positions are not one a row: {place.type}, {start.type}")
    begins = start_of(scope, start)
    claim(begins is not None, "what is always visited does not begin at a block")
    assert begins is not None
    row = place_of(scope, place)
    always = begins.always(row)
    claim(always is not None, "what is always visited does not begin at the row's own block")
    assert always is not None
    counted = candidates_of(scope, ids, declared)
    if isinstance(counted, str):
        raise Decline(f"the list {ids.type}: {counted}")
    claim(
        begins.is_like(counted) and ratio == counted.ratio,
        f"blocks of {ratio} keys are selected, and candidates counted apart from them",
    )
    return Selection(ids, row, ratio, always)


def _need_heads(view: View, heads: int) -> None:
    """Raises Decline unless each list's mask is repeated for query heads that share it."""
    base, axes = whole(view.base).axes, view.axes
    kept = len(axes) == 4 and (axes[0], axes[2], axes[3]) == (base[0], base[2], base[3])
    lists = view.base.type.shape[1]
    own: Axis = base[1]
    wanted = (base[1], joined((*own, (heads // max(lists, 1), 0))), ((heads, 0),))
    claim(kept and axes[1] in wanted, "lists are not repeated for the heads that share them")


def _member(scope: Scope, var: Var) -> tuple[Var, int] | None:
    """(the lists whose blocks' keys var marks, keys in a block); var is [B,Hs,Lq,Lk]."""
    eqn = scope.producer(var)
    if eqn is not None and eqn.op == "and":  # keys past the position are in no candidate block
        for a, b in (eqn.ins, eqn.ins[::-1]):
            if match(scope, b, _UNTIL) is not None and (got := _member(scope, a)):
                return got
        return None
    if eqn is not None and eqn.op == "slice":
        shape = var.type.shape
        if any(ints_attr(eqn, "start")) or shape[:3] != eqn.ins[0].type.shape[:3]:
            return None
        var = eqn.ins[0]
    view = view_of(scope, var)
    found = match(scope, view.base, _CHOSEN)
    found = match(scope, var_at(found, "most"), _MOST, found) if found else None
    if found is None:
        return None
    ids = unlisted(scope, var_at(found, "list"))
    return _checked(scope, view, var, ids, var_at(found, "one"))


def _checked(
    scope: Scope, view: View, var: Var, ids: tuple[Var, bool], one: Var
) -> tuple[Var, int] | None:
    """The list and its ratio, where marked blocks are repeated key by key and nothing behind the
    list's end counts."""
    blocks = view.base.type.shape[-1]
    list_type = ids[0].type
    if len(list_type.shape) != 4 or five_axes(one) != (*list_type.shape, 1):
        return None
    ratio, rest = divmod(var.type.shape[-1], blocks)
    own = whole(view.base).axes
    last = joined((*own[-1], (ratio, 0))) if ratio > 1 else own[-1]
    lead = math.prod(view.base.type.shape[:-1]) == math.prod(list_type.shape[:3])
    if rest or not lead or len(view.axes) != 4 or view.axes[-1] != last:
        return None
    made = scope.producer(ids[0])
    ends = ids[1] or (made is not None and made.op == "block_topk")
    return (ids[0], ratio) if ends else None
