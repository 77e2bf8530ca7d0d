"""Runs of changed elements, and a slot's view of them."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from poot.bound_slots import Bound, SlotView, runs_of
from poot.errors import BindError, RangeError
from poot.ir.graph import Input, Slot, TensorType, Var


@pytest.mark.parametrize(
    "flat, per_word, runs",
    [
        ([], 1, []),
        ([3], 1, [(3, 4)]),
        ([3, 4, 5], 1, [(3, 6)]),
        ([0, 16], 1, [(0, 17)]),
        ([0, 17, 18], 1, [(0, 1), (17, 19)]),
        ([3, 100], 2, [(2, 4), (100, 102)]),
        ([5], 4, [(4, 8)]),
    ],
)
def test_runs_hold_what_changed_in_whole_words(flat, per_word, runs):
    assert runs_of(np.array(flat, np.int64), per_word) == runs


class Holder:
    """Answers for one slot, and keeps what was written."""

    def __init__(self, bound: Bound | None) -> None:
        self.bound = bound
        self.parts: list[tuple[int, list[float]]] = []

    def exclusive(self):
        return nullcontext()

    def slot_inputs(self):
        return {}

    def bound_slot(self, entry: str, name: str) -> Bound | None:
        return self.bound

    def bind_slot(self, entry: str, name: str, value: object) -> None:
        raise AssertionError("not asked for")

    def change_slot(self, entry: str, name: str, host, parts) -> None:
        if host is not None:
            self.bound = Bound(host)
        self.parts = [(first, values.tolist()) for first, values in parts]


def view(dtype: str, *shape: int, host: np.ndarray | None, limits=None) -> tuple[SlotView, Holder]:
    holder = Holder(Bound(host))
    i = Input(Var(0, TensorType(dtype, shape)), "s", Slot("user", limits))
    return SlotView(holder, "main", i), holder


def test_only_what_changed_is_written():
    slot, holder = view("i32", 4, 40, host=np.zeros((4, 40), np.int32))
    slot.update([0, 0, 3], [1, 2, 39], [0, 7, 9])
    assert holder.parts == [(2, [7]), (159, [9])]
    slot.update([0, 3], [2, 39], [7, 9])
    assert holder.parts == []


def test_indices_broadcast_and_the_last_of_two_counts():
    slot, holder = view("i32", 2, 3, host=np.zeros((2, 3), np.int32))
    slot.update([[0], [1]], [0, 2], 5)
    assert slot.read().tolist() == [[5, 0, 5], [5, 0, 5]]
    slot.update([1, 1], [1, 1], [8, 9])
    assert slot.read()[1].tolist() == [5, 9, 5]
    assert holder.parts == [(4, [9])]


def test_narrow_elements_are_written_by_words():
    slot, holder = view("f16", 5, host=np.arange(5, dtype=np.float16))
    slot.update(4, np.float16(9))
    assert holder.parts == [(4, [9])]
    slot.update(1, np.float16(7))
    assert holder.parts == [(0, [0, 7])]


def test_a_slot_without_axes_is_updated_by_its_value():
    slot, holder = view("i32", host=np.zeros((), np.int32))
    slot.update(3)
    assert holder.parts == [(0, [3])]


@pytest.mark.parametrize(
    "given, error, words",
    [
        (([0], [0], [9]), RangeError, r"slot 's' needs values in 0..7: \[0, 0\] is 9"),
        (([0, 1], [0, 2], [1, -1]), RangeError, r"\[1, 2\] is -1"),
        (([2], [0], [1]), BindError, r"slot 's' i32\[2,3\] has no 2 on axis 0"),
        (([0], [-1], [1]), BindError, "has no -1 on axis 1"),
        (([0], [1]), BindError, "needs an index for each axis: got 1"),
        (([0], [0.5], [1]), BindError, "needs integers to index axis 1: float64"),
        (([0, 1], [0, 1, 2], [1]), BindError, "indices and values of one shape"),
        (([0], [0], [1.5]), BindError, "needs i32"),
        ((), BindError, "an index for each axis, and values"),
    ],
)
def test_a_bad_update_is_refused_and_changes_nothing(given, error, words):
    host = np.zeros((2, 3), np.int32)
    slot, holder = view("i32", 2, 3, host=host, limits=(0, 8))
    with pytest.raises(error, match=words):
        slot.update(*given)
    assert holder.parts == []
    assert not slot.read().any()


def test_a_slot_the_host_does_not_know_is_written_in_runs_as_given():
    slot, holder = view("i32", 8, host=None)
    slot.update([5, 1, 2], [50, 10, 20])
    assert holder.parts == [(1, [10, 20]), (5, [50])]
    with pytest.raises(BindError, match="which the host doesn't know"):
        slot.read()
    narrow, _ = view("f16", 8, host=None)
    with pytest.raises(BindError, match="write it whole first"):
        narrow.update(1, np.float16(1))
