"""Edges of folds and ranks."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from tests.support.check import plain
from tests.support.evaluate import evaluate, one

NAN, INF = math.nan, math.inf
BF16 = ml_dtypes.bfloat16
FLOATS = [np.float32, np.float16, BF16]


def fold(
    x: np.ndarray, kind: str, axis: tuple[int, ...] = (0,), keepdim: bool = False
) -> np.ndarray:
    return one("reduce", x, kind=kind, axis=axis, keepdim=keepdim)


@pytest.mark.parametrize("dtype", FLOATS)
def test_max_and_min_give_nan_if_any_element_is(dtype: type):
    x = np.array([[1.0, NAN], [3.0, INF], [-INF, 0.0]], np.float32).astype(dtype)
    np.testing.assert_array_equal(plain(fold(x, "max")), [3.0, NAN])
    np.testing.assert_array_equal(plain(fold(x, "min")), [-INF, NAN])


def test_integer_sums_wrap():
    x = np.array([2**31 - 1, 1], np.int32)
    assert fold(x, "sum") == -(2**31)
    assert fold(np.array([2**32 - 1, 2], np.uint32), "sum") == 1


@pytest.mark.parametrize("dtype", [np.float16, BF16])
def test_16_bit_sums_are_held_in_f32_and_rounded_once(dtype: type):
    x = np.full(4096, 1.0, np.float32).astype(dtype)
    assert float(fold(x, "sum")) == 4096.0
    wide = np.array([60000.0, 60000.0, -60000.0], np.float32).astype(dtype)
    assert float(fold(wide, "sum")) == float(wide[0])


def test_a_sum_of_nothing_is_zero_and_axes_may_stay():
    assert fold(np.ones((0, 3), np.float32), "sum").tolist() == [0, 0, 0]
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert fold(x, "sum", (0, 2), True).shape == (1, 3, 1)
    np.testing.assert_array_equal(fold(x, "sum", (0, 2)), x.sum((0, 2)))


@pytest.mark.parametrize(
    "x, want",
    [
        ([1, 3, 3, 2], 1),
        ([NAN, 1, 5], 2),
        ([5, NAN, 5], 0),
        ([NAN, -INF, NAN], 1),
        ([NAN, NAN], 0),
        ([-INF, -INF], 0),
        ([-0.0, 0.0], 0),
        ([INF, NAN], 0),
    ],
)
@pytest.mark.parametrize("dtype", FLOATS)
def test_argmax_takes_the_lower_index_on_ties_and_nan_last(x: list[float], want: int, dtype: type):
    array = np.array(x, np.float32).astype(dtype)
    got = one("argmax", array, axis=0)
    assert got.dtype == np.int32
    assert got == want
    both = one("argmax", np.stack((array, array[::-1])), axis=1)
    assert both[0] == want


def test_argmax_of_integers_and_bools():
    assert one("argmax", np.array([-(2**31), 7, 7], np.int32), axis=0) == 1
    assert one("argmax", np.array([False, True, True]), axis=0) == 1


@pytest.mark.parametrize("dtype", FLOATS)
def test_topk_is_descending_with_the_lower_index_first_and_nan_last(dtype: type):
    x = np.array([[2, NAN, 5, 2, -INF, 5]], np.float32).astype(dtype)
    values, indices = evaluate("topk", x, k=6)
    assert indices.dtype == np.int32
    assert indices.tolist() == [[2, 5, 0, 3, 4, 1]]
    np.testing.assert_array_equal(plain(values), [[5, 5, 2, 2, -INF, NAN]])


def test_topk_of_integers_reaches_both_ends():
    _, indices = evaluate("topk", np.array([0, -(2**31), 2**31 - 1], np.int32), k=3)
    assert indices.tolist() == [2, 0, 1]
    values, _ = evaluate("topk", np.array([0, 2**32 - 1, 1], np.uint32), k=2)
    assert values.tolist() == [2**32 - 1, 1]
