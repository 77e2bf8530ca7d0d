"""Lists of blocks that are proved to name each block once, and only those that are candidates.

A list is proved where `block_topk` made it, or where a declared guard holds it to that:

    wrong = select(listed & not(ids < C & first of its kind), ids, -1)
    _, held = index_guard(wrong, -1, 0)      validate held      list = select(held, ids, -1)
"""

from __future__ import annotations

from poot.ir.attrs import int_attr, str_attr
from poot.ir.graph import Eqn, Var
from poot.passes.engine import Scope
from poot.passes.selection.pattern import (
    Bind,
    Either,
    Index,
    Number,
    Of,
    Reshaped,
    match,
    number_at,
    var_at,
)
from poot.passes.selection.rows import Count, Place, count_of, place_of


def listed(ids: Bind) -> Of:
    """Whether an id stands before the first negative one of its list; K is bound to "k"."""
    slots = Of("select", (Of("lt", (ids, Number(0))), Index(), Number("k")))
    return Of("lt", (Index(), Of("reduce", (slots,), kind="min", axis=-1)))


_IDS = Bind("ids")
_TWICE = Of(
    "and",
    (
        Of("eq", (Reshaped(_IDS, "first"), Reshaped(_IDS, "second"))),
        Of("lt", (Index(-1), Index(-2))),
    ),
)
_TIMES = Of("reduce", (Of("select", (_TWICE, Number(1), Number(0))),), kind="max", axis=-1)
_FRESH = Of("lt", (Reshaped(_TIMES), Number(1)))
_EARLY = Of("lt", (_IDS, Bind("count")))


def _wrong(fresh: Of | Bind) -> Of:
    """What a guard is of: an id that is listed and not both early and `fresh`, else -1."""
    early = Of("not", (Of("and", (_EARLY, fresh)),))
    return Of("select", (Of("and", (listed(_IDS), early)), _IDS, Number(-1)))


_WRONG = _wrong(_FRESH)
_WRONG_OF_ONE = _wrong(Bind("fresh"))  # a list of one slot names no block twice
_HELD = Of("select", (Bind("held"), _IDS, Number(-1)))


def candidates_of(scope: Scope, ids: Var, declared: frozenset[int]) -> Count | str:
    """The count below which a list's blocks are, each named once; or why that is not proved.
    `declared` holds the ids of the declared validations."""
    eqn = scope.producer(ids)
    if eqn is not None and eqn.op == "block_topk":
        return _of_topk(scope, eqn)
    held = match(scope, ids, _HELD)
    if held is None:
        return "nothing proves that its ids are unique and of candidates: write ops.checked_blocks"
    guard = scope.producer(var_at(held, "held"))
    if guard is None or guard.op != "index_guard" or guard.outs[1] != var_at(held, "held"):
        return "what holds its ids is no guard"
    if (int_attr(guard, "lo"), int_attr(guard, "hi")) != (-1, 0):
        return "what holds its ids is a guard of something else"
    batch, heads, rows, k = ids.type.shape
    form = _WRONG_OF_ONE if k == 1 else _WRONG
    wrong = match(scope, guard.ins[0], form, {"ids": held["ids"]})
    if wrong is None:
        return "the guard of its ids does not say that they are unique and of candidates"
    if k > 1:
        first, second = (five_axes(var_at(wrong, n)) for n in ("first", "second"))
        if {first, second} != {(batch, heads, rows, 1, k), (batch, heads, rows, k, 1)}:
            return "the guard of its ids compares other ids"
    if number_at(wrong, "k") != k:
        return "the guard of its ids ends lists elsewhere"
    if guard.outs[1].id not in declared:
        return "its guard's witness is no declared validation; write ops.validate"
    return count_of(scope, var_at(wrong, "count"))


def five_axes(x: Var) -> tuple[int, ...]:
    """The shape with axes of 1 in front, which broadcasting leaves out."""
    return (1,) * (5 - len(x.type.shape)) + x.type.shape


def _of_topk(scope: Scope, eqn: Eqn) -> Count:
    place = place_of(scope, eqn.ins[1])
    is_tail = eqn.attr("always") is None or str_attr(eqn, "always") == "tail"
    ratio = int_attr(eqn, "ratio")
    more = int(is_tail)
    return Count(Place(place.base, place.plus + more, place.root, place.total + more), ratio)


def unlisted(scope: Scope, var: Var) -> tuple[Var, bool]:
    """(the list, whether var is it with what follows its first negative id set to -1)."""
    ends = Of("select", (listed(_IDS), _IDS, Number(-1)))
    found = match(scope, var, Either((ends,)))
    if found is None or number_at(found, "k") != var.type.shape[-1]:
        return var, False
    return var_at(found, "ids"), True
