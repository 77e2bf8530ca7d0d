"""Buffers that hold only the pages touched."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.kir.sim import SparseBuffer, simulate
from poot.errors import SimulationError
from tests.support.kernels import kernel_of

pytestmark = pytest.mark.quick

HUGE = 1 << 40


def test_what_was_never_touched_is_what_fill_says():
    buffer = SparseBuffer("f32", HUGE, lambda at: at % 7)
    at = np.array([[0, 5], [HUGE - 1, 123456789012]])
    np.testing.assert_array_equal(buffer.read(at), at % 7)
    assert SparseBuffer("i32", HUGE).read(np.array([HUGE - 1]))[0] == 0


def test_what_was_written_is_there_and_listed():
    buffer = SparseBuffer("i32", HUGE)
    at = np.array([HUGE - 1, 3, 1 << 33])
    buffer.write(at, np.array([1, 2, 3], np.int32))
    np.testing.assert_array_equal(buffer.read(at), [1, 2, 3])
    np.testing.assert_array_equal(buffer.written(), [3, 1 << 33, HUGE - 1])
    assert buffer.read(np.array([4]))[0] == 0
    assert SparseBuffer("i32", HUGE).written().size == 0


@pytest.mark.parametrize("in_waves", [False, True], ids=["vector", "waves"])
def test_groups_run_at_their_real_addresses(in_waves):
    groups = 1 << 30
    head = f"param x: f32[{groups * 64}] r align=16\nparam y: f32[{groups * 64}] w align=16"
    body = """
      g: i32 = group_id axis=0
      l: i32 = lane
      g64: i64 = cast g
      l64: i64 = cast l
      base: i64 = mul g64, 64:i64
      i: i64 = add base, l64
      v: f32 = load x[i]
      w: f32 = add v, 1.0
      store y[i], w
    """
    x = SparseBuffer("f32", groups * 64, lambda at: at % 1000)
    y = SparseBuffer("f32", groups * 64)
    chosen = [0, 5, groups - 1]
    simulate(kernel_of(body, head), {"x": x, "y": y}, groups, chosen, in_waves=in_waves)
    want = (np.asarray(chosen)[:, None] * 64 + np.arange(64)).reshape(-1)
    np.testing.assert_array_equal(y.written(), want)
    np.testing.assert_array_equal(y.read(want), want % 1000 + 1)


def test_its_contents_are_what_it_says_they_are():
    kernel = kernel_of("", "param x: f32[64] r align=16")
    with pytest.raises(SimulationError, match="x is sparse"):
        simulate(kernel, {"x": SparseBuffer("f32", 64)}, 1, uninitialised=("x",))


def test_races_are_looked_for_in_arrays_alone():
    """Every lane writes one element: found in an array, and a sparse buffer takes no stamp of 2^40
    elements.
    """
    kernel = kernel_of("store y[0], 1.0", f"param y: f32[{HUGE}] w align=16")
    simulate(kernel, {"y": SparseBuffer("f32", HUGE)}, 1, buffer_races=True)


def test_its_bounds_are_the_parameters():
    head = f"param x: f32[{HUGE}] r align=16"
    body = (
        f"i: i64 = set {HUGE - 10}:i64\nl: i32 = lane\nl64: i64 = cast l\n"
        f"k: i64 = add i, l64\nv: f32 = load x[k]"
    )
    with pytest.raises(SimulationError, match="out-of-bounds"):
        simulate(kernel_of(body, head), {"x": SparseBuffer("f32", HUGE)}, 1)
