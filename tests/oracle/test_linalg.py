"""Matrix products."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.support.check import plain
from tests.support.evaluate import one


def test_batches_broadcast():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((2, 1, 3, 4)).astype(np.float32)
    b = rng.standard_normal((5, 4, 6)).astype(np.float32)
    np.testing.assert_allclose(one("matmul", a, b), np.matmul(a, b), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_16_bit_products_are_summed_in_f32_and_rounded_once(dtype: type):
    a = np.full((1, 4096), 1.0, np.float32).astype(dtype)
    got = one("matmul", a, a.reshape(-1, 1))
    assert got.dtype == dtype
    assert plain(got).tolist() == [[4096.0]]


def test_a_product_over_nothing_is_zero():
    got = one("matmul", np.ones((2, 0), np.float32), np.ones((0, 3), np.float32))
    np.testing.assert_array_equal(got, np.zeros((2, 3)))


def test_zero_times_nan_and_infinity_is_nan():
    a = np.array([[0.0, 1.0]], np.float32)
    for wild in (np.nan, np.inf):
        assert np.isnan(one("matmul", a, np.array([[wild], [1.0]], np.float32)))


def test_f64_mode_sums_in_f64():
    a = np.array([[1e8, 1.0, -1e8]], np.float32)
    assert one("matmul", a, np.ones((3, 1), np.float32), f64=True) == 1.0
