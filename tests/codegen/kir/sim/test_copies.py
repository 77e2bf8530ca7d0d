"""Asynchronous copies land as late as their wait allows."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.kir.frags import swizzle
from poot.codegen.kir.sim import TensorMap
from poot.errors import SimulationError
from tests.support.kernels import run_kernel

pytestmark = pytest.mark.quick

HEAD = """
  param x: f32[256] r align=16
  param out: f32[128] w align=16
  shared s: f32[128] align=16
"""
START = "l: i32 = lane\ni: i32 = mul l, 4\nx1: i32 = xor l, 1\n"
X = np.arange(256, dtype=np.float32)


def run(body: str, is_verified: bool = True) -> np.ndarray:
    out = np.zeros(128, np.float32)
    given = {"x": X, "out": out}
    run_kernel(START + body, HEAD, given, threads=32, width=32, is_verified=is_verified)
    return out


COPY = "cp_async s[i], x[i] nbytes=16\nt: token[copy] = async_commit\n"
READ = "v: f32x4 = load s[i]\nstore out[i], v"


def test_a_copy_is_there_after_its_wait():
    np.testing.assert_array_equal(run(COPY + "wait t pending=0\n" + READ), X[:128])


def test_other_lanes_see_it_after_a_barrier():
    body = (
        COPY
        + "wait t pending=0\nBARRIER\nj: i32 = mul x1, 4\nv: f32x4 = load s[j]\nstore out[i], v"
    )
    want = X[:128].reshape(16, 2, 4)[:, ::-1].reshape(-1)
    np.testing.assert_array_equal(run(body.replace("BARRIER", "barrier scope=subgroup")), want)
    with pytest.raises(SimulationError) as found:
        run(body.replace("BARRIER", ""))
    assert found.value.kind == "race"


@pytest.mark.parametrize(
    "body",
    [
        COPY + READ,
        COPY + "wait t pending=1\n" + READ,
        "cp_async s[i], x[i] nbytes=16\n" + READ,
        COPY + "store s[i], 0.0:f32x4",
        COPY + "cp_async s[i], x[i] nbytes=16",
    ],
    ids=["no wait", "a wait that leaves it open", "no commit", "a store", "a second copy"],
)
def test_what_a_copy_still_writes_is_not_touched(body):
    with pytest.raises(SimulationError) as found:
        run(body, is_verified=False)
    assert found.value.kind == "in-flight"


def test_a_ring_of_groups_ends_them_in_order():
    """Three stages: the wait leaves one group open, and the stage before it is there."""
    body = """
      cp_async s[l], x[l] nbytes=4
      a: token[copy] = async_commit
      l1: i32 = add l, 32
      cp_async s[l1], x[l1] nbytes=4
      b: token[copy] = async_commit
      for n: i32 = 0, 4, 1 {
        wait b pending=PENDING
        stage: i32 = rem n, 3
        base: i32 = mul stage, 32
        at: i32 = add base, l
        v: f32 = load s[at]
        row: i32 = mul n, 32
        to: i32 = add row, l
        store out[to], v
        next: i32 = add n, 2
        here: bool = lt next, 4
        if here {
          nstage: i32 = rem next, 3
          nbase: i32 = mul nstage, 32
          nat: i32 = add nbase, l
          nrow: i32 = mul next, 32
          from: i32 = add nrow, l
          cp_async s[nat], x[from] nbytes=4
        }
        c: token[copy] = async_commit
      }
    """
    np.testing.assert_array_equal(run(body.replace("PENDING", "1")), X[:128])
    with pytest.raises(SimulationError) as found:
        run(body.replace("PENDING", "2"))
    assert found.value.kind == "in-flight"


def test_a_lane_told_not_to_copy_writes_zeros_and_reads_nothing():
    body = """
      far: i32 = mul l, 100
      here: bool = lt l, 2
      cp_async s[i], x[far], here nbytes=16
      t: token[copy] = async_commit
      wait t pending=0
    """
    got = run(body + READ)
    np.testing.assert_array_equal(got[:8], [0, 1, 2, 3, 100, 101, 102, 103])
    assert not got[8:].any()
    with pytest.raises(SimulationError, match="x has 256 elements, 4 at 300"):
        run(body.replace("lt l, 2", "lt l, 4") + READ)


def test_a_branch_may_copy_and_close_groups_of_its_own():
    body = """
      c: bool = lt l, 4
      if c {
        cp_async s[i], x[i] nbytes=16
        t: token[copy] = async_commit
        wait t pending=0
        v: f32x4 = load s[i]
        store out[i], v
      }
    """
    np.testing.assert_array_equal(run(body)[:16], X[:16])


MAPS = """
  param x: f32[512] r align=128
  param out: f32[512] w align=128
  blob in: bytes[128] align=64 dtype=f32 box=(32, 4) swizzle=SWIZZLE
  blob to: bytes[128] align=64 dtype=f32 box=(32, 4) swizzle=SWIZZLE
  shared s: f32[256] align=1024
  shared bar: mbar[1] align=8
"""
BOX = """
  l: i32 = lane
  one: bool = eq l, 0
  if one {
    mbar_init bar[0] count=1
    mbar_arrive bar[0] expect=512
    tma_load s[0], bar[0], COLUMN, ROW blob=in
  }
  barrier scope=group
  WAIT
  for r: i32 = 0, 4, 1 {
    row: i32 = mul r, 32
    at: i32 = add row, l
    v: f32 = load s[at]
    w: f32 = add v, 1.0
    store s[at], w
  }
  FENCE
  barrier scope=group
  if one {
    t: token[bulk] = tma_store s[0], COLUMN, ROW blob=to
    END
  }
"""
GRID = np.arange(512, dtype=np.float32).reshape(8, 64)
WHOLE = {"WAIT": "mbar_wait bar[0], 0", "FENCE": "fence scope=async", "END": "wait t pending=0"}


def run_box(column: int, row: int, swizzled: bool = False, **changes: str) -> np.ndarray:
    """A tensor of 8 rows of 60 in a buffer of 8 x 64: a box is read, raised by one, and written
    back.
    """
    body = BOX.replace("COLUMN", str(column)).replace("ROW", str(row))
    for name, text in {**WHOLE, **changes}.items():
        body = body.replace(name, text)
    head = MAPS.replace("SWIZZLE", '"128B"' if swizzled else "none")
    out = np.zeros(512, np.float32)
    given = {"x": GRID.reshape(-1).copy(), "out": out}
    maps = {"in": TensorMap("x", (60, 8), (1, 64)), "to": TensorMap("out", (60, 8), (1, 64))}
    run_kernel(body, head, given, threads=32, width=32, blobs=maps)
    return out.reshape(8, 64)


@pytest.mark.parametrize("swizzled", [False, True], ids=["plain", "swizzled"])
@pytest.mark.parametrize("column, row", [(0, 0), (32, 2), (32, 6), (40, -2)])
def test_a_box_goes_and_comes_without_what_is_outside_the_tensor(column, row, swizzled):
    want = np.zeros_like(GRID)
    rows = slice(max(row, 0), min(row + 4, 8))
    columns = slice(column, min(column + 32, 60))
    want[rows, columns] = GRID[rows, columns] + 1
    np.testing.assert_array_equal(run_box(column, row, swizzled), want)


def test_a_swizzled_box_lies_where_the_swizzle_says():
    at = swizzle("128B", np.arange(128), 32, 4)
    np.testing.assert_array_equal(at[:32], np.arange(32))
    np.testing.assert_array_equal(at[32:40], 32 + np.array([4, 5, 6, 7, 0, 1, 2, 3]))
    assert sorted(at) == list(range(128))


@pytest.mark.parametrize(
    "change, kind",
    [
        ({"WAIT": ""}, "in-flight"),
        ({"FENCE": ""}, "race"),
        ({"END": ""}, "in-flight"),
    ],
)
def test_what_a_box_needs_around_it_is_missed(change, kind):
    with pytest.raises(SimulationError) as found:
        run_box(0, 0, **change)
    assert found.value.kind == kind


def test_bytes_that_were_not_expected_leave_the_wait_waiting():
    body_change = {"WAIT": "mbar_wait bar[0], 0"}
    global_text = BOX.replace("expect=512", "expect=516")
    body = global_text.replace("COLUMN", "0").replace("ROW", "0")
    for name, text in {**WHOLE, **body_change}.items():
        body = body.replace(name, text)
    given = {"x": GRID.reshape(-1).copy(), "out": np.zeros(512, np.float32)}
    maps = {"in": TensorMap("x", (60, 8), (1, 64)), "to": TensorMap("out", (60, 8), (1, 64))}
    with pytest.raises(SimulationError, match="0 arrivals and 4 bytes missing"):
        run_kernel(body, MAPS.replace("SWIZZLE", "none"), given, threads=32, width=32, blobs=maps)


def test_a_box_stands_where_its_swizzle_begins():
    head = MAPS.replace("SWIZZLE", '"128B"')
    body = "l: i32 = lane\none: bool = eq l, 0\nif one {\nmbar_init bar[0] count=1\n"
    body += "tma_load s[32], bar[0], 0, 0 blob=in\n}"
    given = {"x": GRID.reshape(-1).copy(), "out": np.zeros(512, np.float32)}
    maps = {"in": TensorMap("x", (60, 8), (1, 64)), "to": TensorMap("out", (60, 8), (1, 64))}
    with pytest.raises(SimulationError, match="not at a multiple of 1024 bytes") as found:
        run_kernel(body, head, given, threads=32, width=32, blobs=maps)
    assert found.value.kind == "misaligned"
