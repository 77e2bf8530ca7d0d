"""From the records that a device left to the error that a step raises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from poot.errors import RangeError, ValidationError
from poot.ir.attrs import int_attr
from poot.ir.graph import Eqn, Graph, Input, Slot
from poot.ir.walk import producers
from poot.slots import out_of_range

INDEX_GUARD = "index_guard"
NOTHING = "nothing was published"


@dataclass(frozen=True, slots=True)
class Guard:
    """What there is to say of a validation where it fails: the op that made its witness, the
    witness's shape, the user's line, and of an index_guard what it needs and its bounds, hi
    excluded."""

    op: str
    shape: tuple[int, ...]
    loc: str = ""
    needed: str = ""
    bounds: tuple[int, int] | None = None


def guards_of(graph: Graph) -> tuple[Guard, ...]:
    """The guards of a traced graph, in the order of its validations."""
    makers = producers(graph)
    return tuple(_guard(makers.get(w.id), w.type.shape) for w in graph.validations)


def _guard(maker: Eqn | None, shape: tuple[int, ...]) -> Guard:
    if maker is None:
        return Guard("an input", shape)
    if maker.op != INDEX_GUARD:
        return Guard(maker.op, shape, maker.loc)
    lo, hi = int_attr(maker, "lo"), int_attr(maker, "hi")
    needed = str(maker.attr("what") or f"values in {lo}..{hi - 1}")
    return Guard(maker.op, shape, maker.loc, needed, (lo, hi))


def guard_failure(
    guards: Sequence[Guard], records: Sequence[np.ndarray], late: Sequence[bool] | None = None
) -> ValidationError | None:
    """The error of the first guard that failed, or None. `records` has (count, first flat index,
    value) of each guard. Where a guard that no State write stands before has failed, those behind
    one (`late`) say nothing."""
    failed = [n for n, r in enumerate(records) if int(r[0])]
    early = [n for n in failed if late is None or not late[n]]
    chosen = early or failed
    if not chosen:
        return None
    return _failure(guards[chosen[0]], records[chosen[0]], len(chosen) - 1)


def _failure(guard: Guard, record: np.ndarray, others: int) -> ValidationError:
    count, flat, value = (int(x) for x in record)
    shape = guard.shape
    index = tuple(int(i) for i in np.unravel_index(flat, shape)) if shape else ()
    where = f"[{', '.join(map(str, index))}]"
    more = f" and {others} more guard{'s' if others > 1 else ''} failed" if others else ""
    tail = f"{count} of {math.prod(shape)} failed{more}; {NOTHING}"
    if guard.bounds is None:
        what = guard.op
        message = f"validate needs every element of its witness ({what}): {where} is false; {tail}"
        return ValidationError(message, guard.loc, guard="validate", index=index, count=count)
    message = f"{INDEX_GUARD} needs {guard.needed}: {where} is {value}; {tail}"
    return ValidationError(
        message,
        guard.loc,
        guard=INDEX_GUARD,
        index=index,
        value=value,
        bounds=guard.bounds,
        count=count,
    )


def feed_failure(slots: Sequence[Input], records: Sequence[np.ndarray]) -> RangeError | None:
    """The error of the first slot whose words, given as a device array, left its range, or None."""
    for i, record in zip(slots, records, strict=True):
        count, flat, value = (int(x) for x in record)
        if count and isinstance(i.storage, Slot) and i.storage.range is not None:
            index = np.unravel_index(flat, i.var.type.shape) if i.var.type.shape else ()
            return out_of_range(i.name, tuple(int(n) for n in index), value, *i.storage.range)
    return None
