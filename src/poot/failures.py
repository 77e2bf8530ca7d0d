"""From the records that a device left to the error that a step raises."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poot.errors import RangeError, ValidationError
from poot.ir.attrs import int_attr
from poot.ir.graph import Eqn, Graph, Input, Slot
from poot.ir.walk import producers
from poot.slots import out_of_range

NOTHING = "nothing was published"


def guard_failure(
    graph: Graph, records: Sequence[np.ndarray], late: Sequence[bool] | None = None
) -> ValidationError | None:
    """The error of the first guard that failed, or None. `graph` is the traced one; `records` has
    (count, first flat index, value) of each of its validations, in order. Where a guard that no
    State write stands before has failed, those behind one (`late`) say nothing."""
    failed = [n for n, r in enumerate(records) if int(r[0])]
    early = [n for n in failed if late is None or not late[n]]
    chosen = early or failed
    if not chosen:
        return None
    return _failure(graph, chosen[0], records[chosen[0]], len(chosen) - 1)


def _failure(graph: Graph, n: int, record: np.ndarray, others: int) -> ValidationError:
    witness = graph.validations[n]
    maker = producers(graph).get(witness.id)
    count, flat, value = (int(x) for x in record)
    shape, elems = witness.type.shape, witness.type.elems
    index = tuple(int(i) for i in np.unravel_index(flat, shape)) if shape else ()
    where = f"[{', '.join(map(str, index))}]"
    more = f" and {others} more guard{'s' if others > 1 else ''} failed" if others else ""
    tail = f"{count} of {elems} failed{more}; {NOTHING}"
    loc = maker.loc if maker is not None else ""
    if maker is None or maker.op != "index_guard":
        what = maker.op if maker is not None else "an input"
        message = f"validate needs every element of its witness ({what}): {where} is false; {tail}"
        return ValidationError(message, loc, guard="validate", index=index, count=count)
    lo, hi = _bounds(maker)
    needed = str(maker.attr("what") or f"values in {lo}..{hi - 1}")
    message = f"index_guard needs {needed}: {where} is {value}; {tail}"
    return ValidationError(
        message, loc, guard="index_guard", index=index, value=value, bounds=(lo, hi), count=count
    )


def _bounds(guard: Eqn) -> tuple[int, int]:
    return int_attr(guard, "lo"), int_attr(guard, "hi")


def feed_failure(slots: Sequence[Input], records: Sequence[np.ndarray]) -> RangeError | None:
    """The error of the first slot whose words, given as a device array, left its range, or None."""
    for i, record in zip(slots, records, strict=True):
        count, flat, value = (int(x) for x in record)
        if count and isinstance(i.storage, Slot) and i.storage.range is not None:
            index = np.unravel_index(flat, i.var.type.shape) if i.var.type.shape else ()
            return out_of_range(i.name, tuple(int(n) for n in index), value, *i.storage.range)
    return None
