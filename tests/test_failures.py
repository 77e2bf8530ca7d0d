"""From records to errors."""

from __future__ import annotations

import numpy as np

from poot.failures import feed_failure, guard_failure, guards_of
from poot.ir.graph import Input, Slot, TensorType, Var
from poot.ir.text import parse

GRAPH = parse(
    """
    slot v0: i32[2,3] "at"
    slot v1: f32[] "x"
    v2: i32[2,3], v3: bool[2,3] = index_guard(v0) hi=8 lo=2
    v4: bool[] = lt(v1, v1)
    validate v3, v4
    out v2
    """
)
GUARDS = guards_of(GRAPH)


def record(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def test_records_that_count_nothing_are_no_failure():
    assert guard_failure(GUARDS, [record(0, 5, 9), record(0, 0, 0)]) is None


def test_a_guard_names_index_value_bounds_and_how_many():
    e = guard_failure(GUARDS, [record(2, 4, -7), record(1, 0, 0)])
    assert e is not None
    assert (e.guard, e.index, e.value, e.bounds, e.count) == ("index_guard", (1, 1), -7, (2, 8), 2)
    assert e.message == (
        "index_guard needs values in 2..7: [1, 1] is -7; 2 of 6 failed and 1 more guard failed; "
        "nothing was published"
    )
    moved = e.located("model.py:3")
    assert (moved.index, moved.value, moved.loc) == ((1, 1), -7, "model.py:3")


def test_another_witness_names_the_op_that_made_it():
    e = guard_failure(GUARDS, [record(0, 0, 0), record(1, 0, 0)])
    assert e is not None
    assert (e.guard, e.index, e.value, e.bounds) == ("validate", (), None, None)
    assert "needs every element of its witness (lt): [] is false; 1 of 1 failed" in e.message


def test_a_guard_behind_a_write_says_nothing_where_an_earlier_one_failed():
    e = guard_failure(GUARDS, [record(1, 0, 9), record(1, 0, 0)], late=(True, False))
    assert e is not None
    assert e.guard == "validate"
    assert "more guard" not in e.message
    only_late = guard_failure(GUARDS, [record(1, 0, 9), record(0, 0, 0)], late=(True, False))
    assert only_late is not None
    assert only_late.guard == "index_guard"


def test_a_slot_from_the_device_fails_as_one_from_the_host():
    slots = [
        Input(Var(0, TensorType("i32", ())), "pos", Slot("pos", (0, 8))),
        Input(Var(1, TensorType("i32", (2, 2))), "read", Slot("slot_map", (0, 4))),
    ]
    assert feed_failure(slots, [record(0, 0, 3), record(0, 0, 3)]) is None
    e = feed_failure(slots, [record(0, 0, 3), record(2, 3, 4)])
    assert str(e) == "slot 'read' needs values in 0..3: [1, 1] is 4"
