"""Edges of the rows that move, make and rename elements."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.support.evaluate import one

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def test_a_reshape_keeps_row_major_order_of_a_transposed_value():
    moved = one("transpose", X, perm=(2, 0, 1))
    np.testing.assert_array_equal(one("reshape", moved, shape=(24,)), X.transpose(2, 0, 1).ravel())
    assert one("reshape", np.ones((0, 3), np.float32), shape=(3, 0, 2)).shape == (3, 0, 2)


def test_axis_i_of_a_transpose_is_axis_perm_i():
    got = one("transpose", X, perm=(2, 0, 1))
    assert got.shape == (4, 2, 3)
    assert got[3, 1, 2] == X[1, 2, 3]


def test_a_broadcast_repeats_extents_of_one():
    got = one("broadcast", X[:, :1], shape=(5, 2, 3, 4))
    assert got.shape == (5, 2, 3, 4)
    np.testing.assert_array_equal(got[4, 1, 2], X[1, 0])
    assert one("broadcast", np.ones((1, 3), np.float32), shape=(0, 3)).shape == (0, 3)


def test_a_slice_takes_every_step_th_up_to_stop():
    got = one("slice", X, start=(0, 1, 0), stop=(2, 3, 4), step=(1, 1, 3))
    np.testing.assert_array_equal(got, X[0:2, 1:3, 0:4:3])
    assert one("slice", X, start=(1, 0, 0), stop=(1, 3, 4), step=(1, 1, 1)).shape == (0, 3, 4)


def test_concat_joins_along_its_axis():
    got = one("concat", X, X[:, :1], X[:, :0], axis=1)
    np.testing.assert_array_equal(got, np.concatenate((X, X[:, :1]), 1))


@pytest.mark.parametrize("dtype", ["i32", "u32"])
def test_iota_is_exact_above_the_integers_of_f32(dtype: str):
    n = 2**24 + 2
    got = one("iota", shape=(n,), axis=0, dtype=dtype)
    assert got[-1] == 2**24 + 1
    assert got[-1] != got[-2]


def test_iota_counts_along_its_axis_alone():
    got = one("iota", shape=(2, 3), axis=1, dtype="i32")
    np.testing.assert_array_equal(got, [[0, 1, 2], [0, 1, 2]])


def test_a_const_is_its_value_rounded_to_its_dtype_in_f64_mode_too():
    assert one("const", shape=(2,), dtype="f32", value=0.1, f64=True)[1] == np.float32(0.1)
    assert one("const", shape=(), dtype="bf16", value=0.1) == ml_dtypes.bfloat16(0.1)
    assert one("const", shape=(), dtype="f32", value=float("-inf")) == -np.inf
    assert one("const", shape=(3,), dtype="bool", value=True).tolist() == [True] * 3
    assert one("const", shape=(), dtype="u32", value=2**32 - 1) == 2**32 - 1
