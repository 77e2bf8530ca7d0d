"""Asynchronous products: right numbers after their wait, nothing before."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from poot.errors import SimulationError
from tests.support.kernels import run_kernel

pytestmark = pytest.mark.quick
BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(0)

HEAD = """
  param a: bf16[8192] r align=16
  param b: bf16[8192] r align=16
  param y: f32[4096] w align=16
  shared sa: bf16[8192] align=1024
  shared sb: bf16[8192] align=1024
"""
FILL = """
  l: i32 = lane
  for i: i32 = 0, 64, 1 {
    row: i32 = mul i, 128
    at: i32 = add row, l
    va: bf16 = load a[at]
    vb: bf16 = load b[at]
    line: i32 = div at, 64
    turn: i32 = and line, 7
    step: i32 = mul turn, 8
    to: i32 = xor at, step
    store sa[to], va
    store sb[to], vb
  }
  FENCE
  barrier scope=group
  z: frag[wgmma,acc,64,64,f32] = frag_fill 0.0
  var c: frag[wgmma,acc,64,64,f32] = set z
"""
END = "\nwait t pending=0\nfrag_store y[0], 64, c"


def panels(x: np.ndarray) -> np.ndarray:
    """[rows, 128] as two panels of 64 columns, which FILL swizzles on the way in."""
    return np.ascontiguousarray(x.reshape(-1, 2, 64).transpose(1, 0, 2)).reshape(-1)


A, B = (RNG.standard_normal((64, 128)).astype(BF16) for _ in range(2))
WIDE_A, WIDE_B = A.astype(np.float32), B.astype(np.float32)


def run(body: str, fence: str = "fence scope=async", is_verified: bool = True) -> np.ndarray:
    y = np.zeros(4096, np.float32)
    given = {"a": panels(A), "b": panels(B), "y": y}
    text = FILL.replace("FENCE", fence) + body
    run_kernel(text, HEAD, given, threads=128, width=32, is_verified=is_verified)
    return y.reshape(64, 64)


COMMIT = "\nt: token[wgmma] = wgmma_commit"
BOTH = "c = wgmma sa[0], sb[0] k=128 stride_a=4096 stride_b=4096" + COMMIT


def test_two_tiles_of_workgroup_memory():
    np.testing.assert_allclose(run(BOTH + END), WIDE_A @ WIDE_B.T, rtol=1e-5, atol=1e-4)


def test_a_transposed_tile_and_rows_in_registers():
    """b as [k, n]: the first panel is 64 keys by 64 columns."""
    body = """
      fa: frag[wgmma,a,64,64,bf16] = frag_load a[0], 64
      c = wgmma fa, sb[0] k=64 trans_b=true
    """
    got = run(body + COMMIT + END)
    np.testing.assert_allclose(got, WIDE_A[:, :64] @ WIDE_B[:, :64], rtol=1e-5, atol=1e-4)


def test_products_add_up_and_zero_starts_anew():
    twice = (
        BOTH + "\nc = wgmma sa[0], sb[0] k=128 stride_a=4096 stride_b=4096ZERO\n"
        "u: token[wgmma] = wgmma_commit"
    )
    want = WIDE_A @ WIDE_B.T
    np.testing.assert_allclose(run(twice.replace("ZERO", "") + END), 2 * want, rtol=1e-4, atol=1e-3)
    got = run(twice.replace("ZERO", " zero=true") + END)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


def test_an_accumulator_cannot_be_read_before_its_wait():
    with pytest.raises(SimulationError, match="accumulator c is read before its wait") as found:
        run(BOTH + "\nfrag_store y[0], 64, c", is_verified=False)
    assert found.value.kind == "in-flight"
    with pytest.raises(SimulationError, match="accumulator c"):
        run(BOTH + "\nwait t pending=1\nfrag_store y[0], 64, c", is_verified=False)
    with pytest.raises(SimulationError, match="accumulator c"):
        run(BOTH + "\nc = set z", is_verified=False)


def test_a_tile_cannot_be_written_before_the_wait():
    with pytest.raises(
        SimulationError, match="work not waited for still reads element 0 of sa"
    ) as found:
        run(
            BOTH + "\none: bool = eq l, 0\nif one {\nstore sa[0], 0.0:bf16\n}" + END,
            is_verified=False,
        )
    assert found.value.kind == "in-flight"


def test_ordinary_stores_need_an_async_fence_before_a_product():
    with pytest.raises(SimulationError, match="that no async fence followed") as found:
        run(BOTH + END, fence="")
    assert found.value.kind == "race"


def test_a_tile_stands_where_its_swizzle_begins():
    with pytest.raises(SimulationError, match=r"sa\[64\] is not at a multiple of 1024 bytes"):
        run("c = wgmma sa[64], sb[0] k=64" + COMMIT + END)


def test_a_tile_stays_inside_its_array():
    with pytest.raises(SimulationError, match="sb has 8192 elements, the tile reaches 12287"):
        run("c = wgmma sa[0], sb[4096] k=128 stride_a=4096 stride_b=4096" + COMMIT + END)
