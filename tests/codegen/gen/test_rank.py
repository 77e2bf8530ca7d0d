"""argmax and topk: order, ties, NaN, and every dtype."""

from __future__ import annotations

import numpy as np
import pytest

from poot.errors import CapabilityError
from tests.support.launch import BASELINE, LAVAPIPE, check_step

DTYPES = ("f32", "f16", "bf16", "i32", "u32", "i8", "u8", "bool")
LIMITS = pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE], ids=["lavapipe", "baseline"])


def argmax(shape: str, out: str, axis: int, dtype: str = "f32") -> str:
    return f"""in v0: {dtype}[{shape}]
               v1: i32[{out}] = argmax(v0) axis={axis}
               out v1"""


def topk(shape: str, out: str, k: int, dtype: str = "f32") -> str:
    return f"""in v0: {dtype}[{shape}]
               v1: {dtype}[{out}], v2: i32[{out}] = topk(v0) k={k}
               out v1, v2"""


@LIMITS
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("edges", [False, True])
def test_argmax_of_every_dtype(dtype, edges, limits):
    check_step(argmax("7,70", "7", 1, dtype), "none", limits=limits, edges=edges)


@pytest.mark.parametrize("axis, out", [(0, "5,9"), (1, "3,9"), (2, "3,5")])
def test_argmax_over_any_axis(axis, out):
    check_step(argmax("3,5,9", out, axis), "none")


@pytest.mark.parametrize("cols", [1, 2, 33, 64, 65, 300, 9000])
def test_argmax_of_rows_of_any_length(cols):
    check_step(argmax(f"3,{cols}", "3", 1), "none")


@LIMITS
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("edges", [False, True])
def test_topk_of_every_dtype(dtype, edges, limits):
    check_step(topk("5,70", "5,9", 9, dtype), "none", limits=limits, edges=edges)


@pytest.mark.parametrize("k", [1, 2, 33])
def test_topk_may_take_the_whole_row(k):
    check_step(topk("2,33", f"2,{k}", k), "none")


ROWS = np.array(
    [
        [1.0, 3.0, 3.0, 2.0],
        [np.nan, 3.0, np.nan, -np.inf],
        [np.nan, np.nan, np.nan, np.nan],
        [-np.inf, -np.inf, -np.inf, np.nan],
        [0.0, -0.0, 0.0, -1.0],
        [-0.0, 0.0, -0.0, np.inf],
    ],
    np.float32,
)


def test_ties_take_the_lower_index_and_nan_comes_last():
    check_step(argmax("6,4", "6", 1), "none", ins=[ROWS])
    check_step(topk("6,4", "6,4", 4), "none", ins=[ROWS])


def test_a_prologue_is_pulled():
    text = """in v0: f32[4,33]
              in v1: f32[33]
              v2: f32[4,33] = mul(v0, v1)
              v3: f32[33,4] = transpose(v2) perm=(1, 0)
              v4: i32[4] = argmax(v3) axis=0
              out v4"""
    check_step(text, "none")


def test_an_epilogue_is_refused():
    text = """in v0: f32[4,33]
              v1: i32[4] = argmax(v0) axis=1
              v2: i32[4] = add(v1, v1)
              out v2"""
    with pytest.raises(CapabilityError, match="its outputs"):
        check_step(text, "none")
