"""The comparison of targets with the oracle finds what it should."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.support.tol import TOLERANCES, assert_within, difference


def f32(*x: float) -> np.ndarray:
    return np.asarray(x, np.float32)


def test_every_row_has_a_reason_and_a_bound():
    for row, tol in TOLERANCES.items():
        assert tol.why, row
        assert 0 < tol.within_rel + tol.within_abs < 0.3, row


@pytest.mark.parametrize(
    "got, want, kind",
    [
        (f32(1.0), f32(np.nan), "math"),
        (f32(np.nan), f32(1.0), "math"),
        (f32(np.inf), f32(1e38), "math"),
        (f32(1e38), f32(np.inf), "math"),
        (f32(-np.inf), f32(np.inf), "math"),
        (f32(1.0), f32(1.00001), "arith"),
        (f32(1.0), f32(1.0, 1.0), "arith"),
        (np.int32([3]), np.int32([4]), "math"),
        (np.int32([3]), np.uint32([3]), "exact"),
        (np.asarray([1.0], ml_dtypes.bfloat16), np.asarray([1.02], ml_dtypes.bfloat16), "arith"),
        (f32(1e-3), f32(0.0), "matmul"),
    ],
)
def test_a_difference_is_found(got: np.ndarray, want: np.ndarray, kind: str):
    assert difference(got, [want], kind) is not None
    with pytest.raises(AssertionError, match="here: "):
        assert_within(got, want, kind, "here")


@pytest.mark.parametrize(
    "got, want, kind",
    [
        (f32(np.nan, np.inf, -np.inf), f32(np.nan, np.inf, -np.inf), "exact"),
        (f32(0.0), f32(1e-40), "exact"),
        (f32(1.0), f32(1.0000001), "arith"),
        (np.float16([0.0]), np.float16([6e-8]), "exact"),
        (f32(-0.0), f32(0.0), "exact"),
        (np.bool_(True), np.bool_(True), "exact"),
        (f32(), f32(), "exact"),
    ],
)
def test_what_is_allowed_is_not_found(got: np.ndarray, want: np.ndarray, kind: str):
    assert difference(np.asarray(got), [np.asarray(want)], kind) is None


def test_each_element_may_be_any_of_those_wanted():
    assert difference(f32(1, 2), [f32(1, 5), f32(7, 2)], "exact") is None
    assert difference(f32(1, 3), [f32(1, 5), f32(7, 2)], "exact") is not None
