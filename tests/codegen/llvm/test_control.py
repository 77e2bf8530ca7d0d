"""Control that lanes take apart, against the simulator: hand-made cases, and kernels drawn at
random."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.kir.build import I32, KernelBuilder
from poot.codegen.kir.nodes import Kernel, Role, Roles
from poot.codegen.llvm.emit import function_text
from poot.errors import DtypeLowering
from tests.support.cpu import WIDTHS, agrees, cpu
from tests.support.random_kernels import drawn_inputs, drawn_kernel


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("seed", range(12))
def test_drawn_kernels_do_what_the_simulator_does(seed, width):
    threads = (16, 64, 5, 1, 33, 128)[seed % 6]
    kernel = drawn_kernel(seed, threads, meets=seed % 2 == 0)
    agrees(kernel, drawn_inputs(seed), (3, 1, 1), width=width)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(100, 400))
def test_many_drawn_kernels_do_what_the_simulator_does(seed):
    threads = (16, 64, 5, 1, 33, 128)[seed % 6]
    kernel = drawn_kernel(seed, threads, meets=seed % 2 == 0)
    for width in WIDTHS:
        agrees(kernel, drawn_inputs(seed), (3, 1, 1), width=width)


def loop_kernel(threads: int) -> Kernel:
    """Each lane counts to its own number, and keeps the count of the trips it made."""
    k = KernelBuilder("trips", threads)
    n, y = k.param("n", "i32", threads, "r"), k.param("y", "i32", threads, "w")
    lane = k.lane()
    count = k.var(k.lit(0, I32))
    with k.for_(0, k.load(n, lane)):
        k.set(count, k.copy(count) + 1)
    k.store(y, lane, count)
    return k.kernel()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_lane_that_left_a_loop_keeps_what_it_had(width):
    n = np.arange(48, dtype=np.int32)[::-1].copy() % 11
    got = agrees(loop_kernel(48), {"n": n, "y": np.zeros(48, np.int32)}, width=width)
    np.testing.assert_array_equal(got["y"], n)


def test_no_lane_without_a_turn_touches_memory():
    """The body's address is outside for every lane but those that take the branch."""
    k = KernelBuilder("guarded", 16)
    x, y = k.param("x", "f32", 4, "r"), k.param("y", "f32", 16, "w")
    lane = k.lane()
    with k.if_(lane < 4):
        k.store(y, lane, k.load(x, lane))
    with k.if_(lane > 100):
        k.store(y, lane, k.load(x, lane * (1 << 20) + 7))
    x_values = np.arange(4, dtype=np.float32)
    agrees(k.kernel(), {"x": x_values, "y": np.zeros(16, np.float32)})


def test_roles_are_refused_by_name():
    body = (Roles((Role("producer", 0, 1, 0, ()),)),)
    kernel = Kernel("split", (), (), (), (), 32, cpu().limits.subgroup, body)
    with pytest.raises(DtypeLowering, match=r"kernel split: llvm has no roles .*producer"):
        function_text(kernel, cpu().limits)
