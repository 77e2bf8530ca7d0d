"""What a step is given for its slots: the quick check says what the full one says, and only changes
are sent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poot.errors import BindError, PootError, RangeError
from poot.ir.graph import Input, Slot, TensorType, Var
from poot.slots import ForwardSlotMap, check_slot
from poot.step_slots import HeldSlots, SlotCheck

KEY = ("main", "s")


def slot(dtype: str = "i32", *shape: int, kind: str = "user", limits=None) -> Input:
    return Input(Var(0, TensorType(dtype, shape)), "s", Slot(kind, limits))


VALUES = st.sampled_from(
    [
        np.int32(3), np.int32(-1), np.int32(9), np.int64(3), np.int64(99), np.float32(2), 3, 99, -1,
        True, "x", None, [3], np.array([3], np.int32), np.array([99], np.int32),
        np.array([3], np.int64), np.array([3.0], np.float32), np.array([[3]], np.int32),
        np.array(3, np.int32), np.array(99, np.int32), np.array([1, 2, 3], np.int32),
        np.array([1, 2, 99], np.int32), np.array([3], ">i4"),
    ]
)  # fmt: skip


@given(
    value=VALUES, shape=st.sampled_from([(), (1,), (3,)]), limits=st.sampled_from([None, (0, 9)])
)
def test_the_quick_check_says_what_the_full_one_says(value, shape, limits):
    i = slot("i32", *shape, limits=limits)

    def said(check) -> object:
        try:
            return np.asarray(check(value)).tobytes()
        except PootError as e:
            return type(e), e.message
        except (TypeError, ValueError) as e:
            return type(e)

    whole = SlotCheck(i)
    whole._is_plain = False
    assert said(SlotCheck(i)) == said(whole)


def test_a_value_outside_its_range_is_refused_with_its_place():
    check = SlotCheck(slot("i32", limits=(0, 4)))
    assert check(np.int32(3)).item() == 3
    for bad in (np.int32(4), np.int32(-1), 4):
        with pytest.raises(RangeError, match=r"slot 's' needs values in 0..3: \[\] is"):
            check(bad)


def test_a_write_map_is_never_taken_plain():
    i = slot("i32", 1, kind="write_map", limits=(0, 8))
    with pytest.raises(BindError, match="needs a ForwardSlotMap"):
        SlotCheck(i)(np.array([3], np.int32))
    assert SlotCheck(i)(ForwardSlotMap(np.array([3]), 8)).tolist() == [3]
    assert check_slot(i, ForwardSlotMap(np.array([3]), 8)).tolist() == [3]


def test_a_value_is_told_once_and_again_when_it_changes():
    held = HeldSlots()
    assert KEY not in held
    assert held.take(KEY, np.array([1, 2], np.int32)) == b"\1\0\0\0\2\0\0\0"
    assert KEY in held
    assert held.take(KEY, np.array([1, 2], np.int32)) is None
    assert held.take(KEY, np.array([1, 3], np.int32)) is not None


def test_bits_are_compared_and_not_numbers():
    held = HeldSlots()
    held.take(KEY, np.array([0.0, np.nan], np.float32))
    assert held.take(KEY, np.array([0.0, np.nan], np.float32)) is None
    assert held.take(KEY, np.array([-0.0, np.nan], np.float32)) is not None


def test_what_was_taken_is_a_copy():
    held, x = HeldSlots(), np.array([1, 2], np.int32)
    held.take(KEY, x)
    x[0] = 9
    bound = held.get(KEY, SlotCheck(slot("i32", 2)))
    assert bound is not None
    assert bound.host is not None
    assert bound.host.tolist() == [1, 2]


def test_a_change_in_part_is_what_the_next_value_is_compared_with():
    held, check = HeldSlots(), SlotCheck(slot("i32", 2))
    held.take(KEY, np.array([1, 2], np.int32))
    held.put(KEY, np.array([1, 7], np.int32))
    bound = held.get(KEY, check)
    assert bound is not None
    assert bound.host is not None
    assert bound.host.tolist() == [1, 7]
    assert held.take(KEY, np.array([1, 7], np.int32)) is None
    assert held.take(KEY, np.array([1, 2], np.int32)) is not None


def test_a_slot_from_the_device_is_held_and_never_equal():
    held, check = HeldSlots(), SlotCheck(slot("i32", 2))
    held.put(KEY, None)
    assert KEY in held
    bound = held.get(KEY, check)
    assert bound is not None
    assert bound.host is None
    assert held.take(KEY, np.array([0, 0], np.int32)) is not None
    held.drop(KEY)
    assert KEY not in held
    assert held.get(KEY, check) is None


def test_a_copy_goes_its_own_way():
    held = HeldSlots()
    held.take(KEY, np.array([1], np.int32))
    other = held.copy()
    other.take(KEY, np.array([2], np.int32))
    assert held.take(KEY, np.array([1], np.int32)) is None
