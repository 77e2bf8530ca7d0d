"""What is bound at a step is checked before anything runs."""

from __future__ import annotations

import numpy as np
import pytest

from poot.errors import BindError, RangeError, SlotMapError, TypeRuleError
from poot.ir.graph import Input, Slot, TensorType, Var, Weight
from poot.slots import ForwardSlotMap, check_array, check_slot, check_slot_type


def slot(
    dtype: str, *shape: int, kind: str = "user", limits: tuple[int, int] | None = None
) -> Input:
    return Input(Var(0, TensorType(dtype, shape)), "s", Slot(kind, limits))


def test_an_array_of_the_slots_type_is_taken_as_it_is():
    x = np.ones((2, 3), np.float32)
    assert check_slot(slot("f32", 2, 3), x) is x


def test_int64_and_python_ints_become_i32_where_they_fit():
    got = check_slot(slot("i32", 2), np.array([1, -2]))
    assert got.dtype == np.int32
    assert got.tolist() == [1, -2]
    assert check_slot(slot("i32"), 7).dtype == np.int32
    assert check_slot(slot("u32"), 2**32 - 1).item() == 2**32 - 1
    assert check_slot(slot("i32", 2), [1, 2]).tolist() == [1, 2]


def test_an_int64_that_does_not_fit_is_named():
    with pytest.raises(RangeError, match=r"'s' needs values in .*: \[1\] is 2147483648"):
        check_slot(slot("i32", 2), np.array([0, 2**31]))
    with pytest.raises(RangeError, match=r"\[\] is -1"):
        check_slot(slot("u32"), -1)


@pytest.mark.parametrize(
    "dtype, given",
    [
        ("f32", np.zeros(2)),
        ("f32", np.zeros(2, np.float16)),
        ("f16", np.zeros(2, np.float32)),
        ("i32", np.zeros(2, np.float32)),
        ("i32", np.zeros(2, np.uint32)),
        ("i32", np.zeros(2, bool)),
        ("u32", np.zeros(2, np.int64)),
        ("bool", np.zeros(2, np.int32)),
        ("f32", [0.5, 0.5]),
        ("f32", ["a", "b"]),
    ],
)
def test_no_dtype_is_cast_silently(dtype: str, given: object):
    with pytest.raises(BindError, match=rf"input 's' needs {dtype}\[2\]: got .*cast it yourself"):
        check_slot(slot(dtype, 2), given)


def test_rank_and_shape_are_named():
    with pytest.raises(BindError, match=r"needs i32\[2\]: got \[3\]$"):
        check_slot(slot("i32", 2), np.zeros(3, np.int32))
    with pytest.raises(BindError, match=r"needs i32\[2\]: got \[1,2\] of rank 2"):
        check_slot(slot("i32", 2), np.zeros((1, 2), np.int32))
    with pytest.raises(BindError, match=r"needs i32\[\]: got \[1\] of rank 1"):
        check_slot(slot("i32"), np.zeros(1, np.int32))


def test_a_word_out_of_range_is_named_with_its_place():
    s = slot("i32", 2, 3, limits=(0, 5))
    check_slot(s, np.array([[0, 1, 4], [4, 0, 0]], np.int32))
    with pytest.raises(RangeError, match=r"slot 's' needs values in 0..4: \[1, 2\] is 5$"):
        check_slot(s, np.array([[0, 1, 4], [4, 0, 5]], np.int32))
    with pytest.raises(RangeError, match=r"\[0, 1\] is -1"):
        check_slot(s, np.array([[0, -1, 4], [4, 0, 5]], np.int32))


def test_an_empty_slot_is_in_any_range():
    assert check_slot(slot("i32", 0, limits=(0, 1)), np.zeros(0, np.int32)).shape == (0,)


def test_a_weight_is_no_slot():
    weight = Input(Var(0, TensorType("f32", (2,))), "w", Weight())
    with pytest.raises(BindError, match="'w' is no slot"):
        check_slot(weight, np.zeros(2, np.float32))
    check_array(weight, np.zeros(2, np.float32))


def test_a_write_map_is_checked_frozen_and_its_own_copy():
    rows = np.array([3, -1, 0])
    made = ForwardSlotMap(rows, 4)
    rows[0] = 9
    assert made.rows.tolist() == [3, -1, 0]
    assert made.rows.dtype == np.int32
    with pytest.raises(ValueError, match="read-only"):
        made.rows[0] = 1


@pytest.mark.parametrize(
    "rows, message",
    [
        ([0, 4], r"needs slots in 0..3, or -1 for no write: rows\[1\]=4"),
        ([-2], r"rows\[0\]=-2"),
        ([2**31], r"rows\[0\]=2147483648"),
        ([1, 0, -1, -1, 0], r"each slot once: rows\[1\] and rows\[4\] are both 0"),
        ([[1]], r"integers of shape \[N\]: int64\[1, 1\]"),
        ([0.5], r"integers of shape \[N\]: float64\[1\]"),
    ],
)
def test_a_bad_write_map_is_refused(rows: list[float], message: str):
    with pytest.raises(SlotMapError, match=message):
        ForwardSlotMap(np.array(rows), 4)


def test_an_empty_write_map_is_good():
    assert ForwardSlotMap(np.zeros(0), 4).rows.shape == (0,)


def test_a_write_map_slot_takes_nothing_else():
    s = slot("i32", 2, kind="write_map", limits=(-1, 4))
    assert check_slot(s, ForwardSlotMap(np.array([3, -1]), 4)).tolist() == [3, -1]
    with pytest.raises(BindError, match="needs a ForwardSlotMap: ndarray"):
        check_slot(s, np.array([3, -1], np.int32))
    with pytest.raises(SlotMapError, match="writes a pool of 4 slots, and the map is for one of 5"):
        check_slot(s, ForwardSlotMap(np.array([3, 4]), 5))


def test_a_known_kind_has_its_dtype_and_rank():
    check_slot_type(Slot("pos", (0, 8)), TensorType("i32", (3,)), "pos")
    check_slot_type(Slot("mine"), TensorType("f32", (3, 4, 5)), "mine")
    with pytest.raises(TypeRuleError, match="slot 'p' of kind pos needs i32 of rank 0 or 1"):
        check_slot_type(Slot("pos"), TensorType("i32", (3, 1)), "p")
    with pytest.raises(TypeRuleError, match="kind slot_map needs i32"):
        check_slot_type(Slot("slot_map"), TensorType("u32", (3, 1)), "m")
    with pytest.raises(TypeRuleError, match="needs integers and lo < hi"):
        check_slot_type(Slot("user", (3, 3)), TensorType("i32", ()), "u")
