"""Bounds, alignment, contents nothing wrote, bool words, atomics, counts."""

from __future__ import annotations

import numpy as np
import pytest

from poot.errors import SimulationError
from tests.support.kernels import run_kernel

pytestmark = pytest.mark.quick

HEAD = """
  param x: f32[64] r align=16
  param y: f32[64] rw align=16
  shared s: f32[64] align=16
  shared more: f32[64] align=16
"""


def buffers() -> dict[str, np.ndarray]:
    return {"x": np.arange(64, dtype=np.float32), "y": np.zeros(64, np.float32)}


@pytest.mark.parametrize("in_waves", [False, True], ids=["vector", "waves"])
@pytest.mark.parametrize(
    "body, said",
    [
        ("l: i32 = lane\ni: i32 = add l, 1\nv: f32 = load x[i]", "64 elements, 1 at 64: lane 63"),
        ("l: i32 = lane\ni: i32 = sub l, 1\nv: f32 = load x[i]", "64 elements, 1 at -1: lane 0"),
        (
            "l: i32 = lane\ni: i32 = add l, 1\nstore y[i], 0.0",
            "lane 63 of group (0, 0, 0), at `store",
        ),
        (
            "i: i32 = group_id axis=0\nk: i32 = add i, 64\nv: f32 = load x[k]",
            "64 elements, 1 at 64",
        ),
        ("l: i32 = lane\ni: i32 = add l, 1\nprefetch x[i]", "64 elements, 1 at 64: lane 63"),
        ("l: i32 = lane\ni: i32 = mul l, 4\nv: f32x4 = load x[i]", "64 elements, 4 at 64: lane 16"),
        ("l: i32 = lane\ni: i32 = add l, 1\nstore s[i], 0.0", "s has 64 elements, 1 at 64"),
    ],
)
def test_an_index_outside_is_refused(body, said, in_waves):
    with pytest.raises(SimulationError) as found:
        run_kernel(body, HEAD, buffers(), in_waves=in_waves)
    assert found.value.kind == "out-of-bounds"
    assert said in str(found.value)


def test_lanes_that_are_not_active_touch_nothing():
    body = """
      l: i32 = lane
      i: i32 = mul l, 8
      c: bool = lt l, 8
      if c {
        v: f32 = load x[i]
        store y[i], v
        v4: f32x4 = load x[i]
        store y[i], v4
      }
    """
    given = buffers()
    run_kernel(body, HEAD, given)
    at = np.arange(64)
    np.testing.assert_array_equal(given["y"], np.where(at % 8 < 4, at, 0))


def test_a_vector_stands_at_a_multiple_of_its_length():
    with pytest.raises(SimulationError, match="x by 4 at an index that is no multiple") as found:
        run_kernel("l: i32 = lane\nc: i32 = min l, 40\nv: f32x4 = load x[c]", HEAD, buffers())
    assert found.value.kind == "misaligned"


@pytest.mark.parametrize("in_waves", [False, True], ids=["vector", "waves"])
def test_workgroup_memory_holds_nothing_before_it_is_written(in_waves):
    body = "l: i32 = lane\nc: bool = lt l, 32\nif c {\nstore s[l], 1.0\n}\nv: f32 = load s[l]"
    with pytest.raises(SimulationError, match="s where nothing wrote: lane 32") as found:
        run_kernel(body, HEAD, buffers(), in_waves=in_waves)
    assert found.value.kind == "uninitialised"


def test_each_group_has_workgroup_memory_of_its_own():
    body = """
      g: i32 = group_id axis=0
      c: bool = lt g, 1
      if c {
        store s[0], 1.0
      }
      v: f32 = load s[0]
    """
    with pytest.raises(SimulationError, match=r"where nothing wrote: lane 0 of group \(1, 0, 0\)"):
        run_kernel(body, HEAD, buffers(), threads=1, grid=2)


def test_a_buffer_can_be_said_to_hold_nothing():
    body = "l: i32 = lane\nstore y[l], 1.0\nv: f32 = load y[l]\nw: f32 = load x[l]"
    run_kernel(body, HEAD, buffers(), uninitialised=("y",))
    with pytest.raises(SimulationError, match="x where nothing wrote"):
        run_kernel(body, HEAD, buffers(), uninitialised=("x",))


@pytest.mark.parametrize("kind", [np.bool_, np.uint32], ids=["bool", "words"])
def test_a_bool_buffer_is_numpy_bools_or_words(kind):
    head = "param p: bool[4] r align=4\nparam o: bool[4] w align=4"
    p, o = np.array([0, 1, 1, 0]).astype(kind), np.zeros(4, kind)
    body = "l: i32 = lane\nv: bool = load p[l]\nn: bool = not v\nstore o[l], n"
    run_kernel(body, head, {"p": p, "o": o}, threads=4)
    np.testing.assert_array_equal(o, [1, 0, 0, 1])


@pytest.mark.parametrize("in_waves", [False, True], ids=["vector", "waves"])
@pytest.mark.parametrize(
    "kind, want",
    [("add", 63 * 32 + 5), ("max", 63), ("min", 0), ("or", 63), ("and", 0), ("exchange", 63)],
)
def test_atomics_go_lane_by_lane(kind, want, in_waves):
    head = "param n: i32[2] rw align=4\nparam o: i32[64] w align=4"
    n, o = np.array([5, 0], np.int32), np.zeros(64, np.int32)
    body = f"l: i32 = lane\nold: i32 = atomic n[0], l kind={kind}\nstore o[l], old"
    run_kernel(body, head, {"n": n, "o": o}, in_waves=in_waves, buffer_races=True)
    assert n[0] == want
    if kind == "add":
        np.testing.assert_array_equal(
            np.sort(o), np.sort(5 + np.cumsum(np.arange(64)) - np.arange(64))
        )


def test_loads_and_stores_are_counted_by_the_active_lanes():
    body = """
      l: i32 = lane
      c: bool = lt l, 16
      if c {
        i: i32 = mul l, 4
        v: f32x4 = load x[i]
        store y[i], v
      }
      w: f32 = load x[0]
    """
    stats = run_kernel(body, HEAD, buffers(), grid=3)
    assert stats.loads == {"x": 3 * (64 + 64), "y": 0, "s": 0, "more": 0}
    assert stats.stores == {"x": 0, "y": 3 * 64, "s": 0, "more": 0}
    assert stats.groups == 3
