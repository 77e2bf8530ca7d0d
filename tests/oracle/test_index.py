"""Edges of addresses: everything clamps, or writes nothing."""

from __future__ import annotations

import numpy as np
import pytest

from poot.errors import SlotMapError
from tests.support.evaluate import one

FAR = [-(2**31), -1, 0, 2, 3, 2**31 - 1]
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_a_gather_clamps_into_its_axis():
    got = one("gather", X, i32(*FAR), axis=0)
    np.testing.assert_array_equal(got, X[[0, 0, 0, 2, 2, 2]])


def test_an_index_stands_where_its_axis_stood():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    index = i32(2, 0, 1, 1).reshape(2, 2)
    np.testing.assert_array_equal(one("gather", x, index, axis=1), np.take(x, index, 1))
    np.testing.assert_array_equal(one("gather", x, np.int32(7), axis=1), x[:, 2])


@pytest.mark.parametrize("start", FAR)
def test_a_dynamic_slice_clamps_so_that_its_window_fits(start: int):
    first = min(max(start, 0), 2)
    got = one("dynamic_slice", X, np.int32(start), axis=1, size=2)
    np.testing.assert_array_equal(got, X[:, first : first + 2])


def test_a_dynamic_slice_takes_a_start_a_row():
    x = np.arange(48, dtype=np.float32).reshape(3, 4, 4)
    got = one("dynamic_slice", x, i32(-5, 1, 9), axis=1, size=2)
    np.testing.assert_array_equal(got, np.stack((x[0, :2], x[1, 1:3], x[2, 2:])))


@pytest.mark.parametrize("start", FAR)
def test_an_update_clamps_so_that_its_window_fits(start: int):
    first = min(max(start, 0), 1)
    got = one("dynamic_update_slice", X, np.full((2, 4), -1, np.float32), np.int32(start), axis=0)
    want = X.copy()
    want[first : first + 2] = -1
    np.testing.assert_array_equal(got, want)


def test_an_update_takes_a_start_a_row_and_leaves_its_operand():
    x = np.zeros((3, 4, 2), np.float32)
    update = np.arange(1, 7, dtype=np.float32).reshape(3, 1, 2)
    got = one("dynamic_update_slice", x, update, i32(-1, 2, 99), axis=1)
    want = np.zeros((3, 4, 2), np.float32)
    want[0, 0], want[1, 2], want[2, 3] = update[0, 0], update[1, 0], update[2, 0]
    np.testing.assert_array_equal(got, want)
    assert not x.any()


def test_an_update_of_nothing_changes_nothing():
    got = one("dynamic_update_slice", X, np.ones((0, 4), np.float32), np.int32(1), axis=0)
    np.testing.assert_array_equal(got, X)


def test_a_row_outside_writes_nothing():
    """Case 21: -1, one too many, and the largest int all leave every row as it was."""
    update = np.full((5, 4), 9, np.float32)
    got = one("scatter_update", X, update, i32(-1, 3, 1, 2**31 - 1, -(2**31)))
    want = X.copy()
    want[1] = 9
    np.testing.assert_array_equal(got, want)


def test_a_row_named_twice_is_refused():
    with pytest.raises(SlotMapError, match="each row once: 1"):
        one("scatter_update", X, np.ones((2, 4), np.float32), i32(1, 1))
