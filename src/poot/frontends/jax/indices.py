"""What a JAX program says of its indices.

JAX counts a negative index from the end, by `select_n(lt(i, 0), i, add(i, n))` before each gather:
that becomes one call, `from_end`, whose row needs no select where the index is proved. A slot that
indexes a table of weights gets the table's extent as its range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from poot.frontends.foreign import Call, Foreign, Given, Ref
from poot.ir.graph import Slot, Weight

Made = Mapping[str, Call]
# Calls through which an index is still the same numbers.
_MOVES = (
    "broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "copy", "copy_p",
    "convert_element_type", "stop_gradient", "slice", "row",
)  # fmt: skip


def made_by(foreign: Foreign) -> Made:
    """The call that makes each value, by the value's id."""
    return {ref.id: call for call in foreign.calls for ref in call.results}


def with_from_end(foreign: Foreign) -> Foreign:
    """The program with each such select as a call of `from_end(i, n)`."""
    made = made_by(foreign)
    return replace(foreign, calls=tuple(_from_end(call, made) for call in foreign.calls))


def _from_end(call: Call, made: Made) -> Call:
    if call.op != "select_n" or len(call.args) != 3 or call.types[0].dtype != "i32":
        return call
    test, index, other = (_maker(x, made) for x in call.args)
    if test is None or other is None or test.op != "lt" or other.op != "add":
        return call
    extent = _number(other.args[1], made)
    same = _same(call.args[1], made)
    if _number(test.args[1], made) != 0 or extent is None or isinstance(call.args[1], int):
        return call
    if _same(test.args[0], made) != same or _same(other.args[0], made) != same:
        return call
    del index
    return replace(call, op="from_end", args=(call.args[1], extent))


def _maker(x: object, made: Made) -> Call | None:
    return made.get(x.id) if isinstance(x, Ref) else None


def _number(x: object, made: Made) -> int | None:
    call = _maker(x, made)
    value = call.args[0] if call is not None and call.op == "literal" and call.args else None
    return value if isinstance(value, int) else None


def _same(x: object, made: Made) -> object:
    """The value before casts between integers; of a number that it is."""
    while (call := _maker(x, made)) is not None:
        if call.op == "literal":
            return _number(x, made)
        if call.op != "convert_element_type" or call.types[0].dtype != "i32":
            break
        source = call.args[0]
        held = _maker(source, made)
        if held is not None and held.types[0].dtype != "i32":
            break
        x = source
    return x


def with_ranges(foreign: Foreign) -> Foreign:
    """The program with a range on each slot that indexes a table: what lies outside is refused at
    the bind, before anything runs."""
    made = made_by(foreign)
    givens = {g.ref.id: g for g in foreign.givens}
    limits: dict[str, int] = {}
    for call in foreign.calls:
        if call.op == "gather" and not call.problem:
            for slot, rows in _indexed(call, made, givens):
                limits[slot] = min(rows, limits.get(slot, rows))
    return replace(foreign, givens=tuple(_ranged(g, limits.get(g.ref.id)) for g in foreign.givens))


def _ranged(given: Given, rows: int | None) -> Given:
    is_index = isinstance(given.storage, Slot) and given.type.dtype == "i32" and rows is not None
    return replace(given, storage=Slot("user", (0, rows))) if is_index and rows else given


def _indexed(call: Call, made: Made, givens: Mapping[str, Given]) -> list[tuple[str, int]]:
    """The slots that a gather's indices are, each with how many places there are."""
    table = givens.get(_source(call.args[0], made))
    if table is None or not isinstance(table.storage, Weight):
        return []
    axes, sizes = _ints(_dimensions(call, "start_index_map")), _ints(call.options["slice_sizes"])
    out: list[tuple[str, int]] = []
    for column, axis in enumerate(axes):
        source = _source(_column(call.args[1], column, len(axes), made), made)
        places = table.type.shape[axis] - sizes[axis] + 1
        if source in givens and places > 1:
            out.append((source, places))
    return out


def _dimensions(call: Call, name: str) -> object:
    return getattr(call.options["dimension_numbers"], name)


def _ints(value: object) -> tuple[int, ...]:
    return tuple(map(int, cast("tuple[int, ...]", value)))  # jax's integers, or numpy's


def _column(index: object, column: int, count: int, made: Made) -> object:
    """One column of the indices: an operand of the concat that they are."""
    call = _maker(index, made)
    if count == 1 or call is None:
        return index if count == 1 else None
    if call.op != "concatenate" or len(call.args) != count:
        return None
    return call.args[column]


def _source(x: object, made: Made) -> str:
    """The id of the value that x is, but for moves."""
    while (call := _maker(x, made)) is not None and not call.problem:
        if call.op not in (*_MOVES, "from_end"):
            break
        x = call.args[0]
    return x.id if isinstance(x, Ref) else ""
