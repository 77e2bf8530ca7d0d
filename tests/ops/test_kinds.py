"""What is an int, several ints or a number, and what only looks like it."""

import math

import numpy as np
import pytest

from poot.errors import TraceError, TypeRuleError
from poot.ops.kinds import fits, is_number, need_whole, need_wholes, whole, wholes


@pytest.mark.parametrize(
    "given, want",
    [
        (3, 3), (-1, -1), (np.int64(5), 5), (np.uint8(7), 7), (np.array(4), 4),
        (True, None), (np.bool_(True), None), (1.0, None), (np.float32(1), None), ("3", None),
        (None, None), ([3], None), (np.array([3]), None), (np.array([[1, 2]]), None), (1j, None),
    ],
)  # fmt: skip
def test_an_int_is_an_int_and_nothing_else(given, want):
    got = whole(given)
    assert got == want
    assert type(got) in (int, type(None))


@pytest.mark.parametrize(
    "given, want",
    [
        ((1, 2), (1, 2)), ([1, np.int32(2)], (1, 2)), (range(3), (0, 1, 2)), ((), ()),
        (np.array([4, 5]), (4, 5)),
        (3, None), ("12", None), ({1: 2}, None), ({1, 2}, None), ((1, 2.0), None),
        (np.zeros((2, 2), np.int32), None), (np.array(3), None), ((1, True), None), (None, None),
    ],
)  # fmt: skip
def test_ints_are_a_tuple_a_list_a_range_or_an_array_of_them(given, want):
    assert wholes(given) == want


def test_a_number_is_an_int_or_a_float():
    numbers = (1, 1.5, math.nan, np.float32(2), np.int8(3))
    others = (True, "1", None, 1j, np.zeros(1), np.bool_(False))
    assert all(map(is_number, numbers))
    assert not any(map(is_number, others))


def test_what_no_extent_can_be_does_not_fit():
    assert fits(2**32)
    assert not fits(2**32 + 1)


def test_what_is_needed_is_named_with_what_came():
    with pytest.raises(TypeRuleError, match="repeat needs an int for an axis: got='x'"):
        need_whole("repeat", "x", "an int for an axis")
    with pytest.raises(TraceError, match=r"slot needs extents: got=1\.5"):
        need_wholes("slot", 1.5, "extents", TraceError)
    with pytest.raises(TypeRuleError, match="needs extents"):
        need_wholes("slot", (2**70,), "extents")
    assert need_whole("x", np.int64(2), "") == 2
    assert need_wholes("x", [1, 2], "") == (1, 2)
