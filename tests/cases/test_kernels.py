"""Hard cases of what kernels may ask of a device: workgroup memory, lanes, barriers, time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import poot
from poot import ops
from poot.api import Program, compile
from poot.codegen.kir.nodes import Ins, Kernel
from poot.codegen.kir.parse import parse
from poot.codegen.kir.sim.run import walk
from poot.codegen.kir.text import show
from poot.codegen.kir.verify import verify
from poot.errors import AttentionLds, CapabilityError, VerifyError
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Graph
from poot.limits import DeviceLimits, profile
from poot.ops import Array
from tests.support.attention import bottom_right, qkv, reference
from tests.support.everywhere import compile_on, fused_count, on, run_program
from tests.support.hard import feed_of
from tests.support.sim_device import SimDevice
from tests.support.tol import assert_within
from tests.support.traced import graph_of, normal


def capped(**numbers: int) -> DeviceLimits:
    """lavapipe with these limits instead of its own."""
    return replace(profile("lavapipe"), **numbers)


def shared_nbytes(kernel: Kernel) -> int:
    return sum(s.elems * DTYPES[s.dtype].nbytes for s in kernel.shared)


def on_capped(graph: Graph, limits: DeviceLimits) -> Program:
    """Compiled for these limits, on a simulator that has them."""
    program = compile(graph, target=limits, cache=False)
    return replace(program, device=SimDevice(limits))


def causal(q: Array, k: Array, v: Array) -> object:
    return ops.attention_prefill(q, k, v, scale=q.shape[3] ** -0.5)


def mixed(x: Array, w: Array) -> object:
    """Products and reductions beside attention."""
    return ops.softmax(ops.rms_norm(x, w[0], 1e-5) @ w)


@pytest.mark.parametrize("cap", [16384, 32768, 49152, 65536])
def test_case_123_workgroup_memory_stays_below_any_cap(cap: int):
    limits = capped(workgroup_nbytes=cap)
    for width in (64, 128, 256, 576):
        q, k, v = qkv(1, 2, 1, 2, 9, width, width)
        graph = graph_of(causal, q, k, v)
        program = on_capped(graph, limits)
        assert fused_count(program, "attention") == 1
        assert all(shared_nbytes(c.kernel) <= cap for c in program.codes)
        got = run_program(program, feed_of(graph, (q, k, v))).outputs[0]
        want = reference(q, k, v, width**-0.5, keep=bottom_right(2, 9))[0]
        assert_within(got, want.astype(np.float32), "attention", f"{cap} {width}")
    x, w = normal(0, 70, 64), normal(1, 64, 64)
    for code in compile(graph_of(mixed, x, w), target=limits, cache=False).codes:
        assert shared_nbytes(code.kernel) <= cap


def test_case_123_where_not_one_lane_fits_the_numbers_are_named():
    x = np.zeros((1, 1, 1, 64), np.float32)
    graph = graph_of(causal, x, x, x)
    with pytest.raises(AttentionLds, match=r"64 wide needs 264 bytes .* lavapipe has 256"):
        compile(graph, target=capped(workgroup_nbytes=256), cache=False)


@pytest.mark.parametrize("cap", [256, 128, 32])
def test_case_124_no_kernel_has_more_lanes_than_a_group_holds(cap: int):
    limits = capped(threads=cap)
    q, k, v = qkv(1, 2, 1, 1, 40, 512, 512)
    graph = graph_of(causal, q, k, v)
    program = on_capped(graph, limits)
    assert all(c.kernel.threads <= cap for c in program.codes)
    got = run_program(program, feed_of(graph, (q, k, v))).outputs[0]
    assert_within(got, reference(q, k, v, 512**-0.5)[0].astype(np.float32), "attention")
    x, w = normal(0, 3, 1000), normal(1, 1000, 5)
    graph = graph_of(lambda x, w: ops.softmax(x) @ w, x, w)
    program = on_capped(graph, limits)
    assert all(c.kernel.threads <= cap for c in program.codes)
    e = np.exp(x.astype(float) - x.max(1, keepdims=True))
    got = run_program(program, feed_of(graph, (x, w))).outputs[0]
    assert_within(got, (e / e.sum(1, keepdims=True) @ w).astype(np.float32), "matmul")


def barriers(kernel: Kernel) -> Iterator[Ins]:
    return (s for s in walk(kernel.body) if isinstance(s, Ins) and s.op == "barrier")


def every_kind() -> Graph:
    """A program whose kernels meet at barriers: attention, a normed product, ranks, folds."""

    def fn(q: Array, k: Array, x: Array, w: Array) -> object:
        values, index = ops.topk(x, 5)
        return causal(q, k, k), mixed(x, w), values, index, ops.argmax(x, 1), ops.max(x, 0)

    q, k = (poot.weight((1, 4, n, 64)) for n in (3, 300))
    return poot.trace(fn, (q, k, poot.weight((70, 64)), poot.weight((64, 64))))


@pytest.mark.parametrize("target", ["webgpu-baseline", "lavapipe", "h200", "cpu-avx2"])
def test_case_120_every_barrier_is_reached_by_the_whole_group(target: str):
    """The verifier refuses a barrier under control that lanes part at; it reads every kernel."""
    program = compile(every_kind(), target=target, cache=False)
    met = 0
    for code in program.codes:
        verify(code.kernel)
        met += len(list(barriers(code.kernel)))
    assert met > 3


def test_case_120_a_barrier_that_lanes_part_before_is_refused():
    text = """kernel parts threads=64 {
  param out0: f32[64] w align=16
  t1: i32 = lane
  t2: bool = lt t1, 32
  if t2 {
    barrier scope=group
  }
}"""
    kernel = parse(text)
    assert "barrier" in show(kernel)
    with pytest.raises(VerifyError, match="barrier"):
        verify(kernel)


@pytest.mark.parametrize("keys, width", [(131072, 64), (4096, 512)])
@on("vulkan", "wgpu", "cpu", "cuda")
def test_case_126_no_launch_over_many_keys_lasts_a_second(target: str, keys: int, width: int):
    """Nor does a driver that counts the trips of a lane's loops end them too early."""
    rng = np.random.default_rng(0)
    k = rng.standard_normal((1, 1, keys, width)).astype(np.float32)
    q = rng.standard_normal((1, 2, 1, width)).astype(np.float32)
    graph = graph_of(causal, q, k, k)
    program = compile_on(target, graph)
    assert fused_count(program, "attention") == 1
    session = program.bind({"q": q, "k": k, "v": k})
    got = np.asarray(session.step())
    times = [session.profile().launches for _ in range(3)]
    session.close()
    longest = [min(us for *_, us in launch) for launch in zip(*times, strict=True)]
    assert all(0 <= us <= 1e6 for us in longest), longest  # nan is no time
    assert_within(got, reference(q, k, k, width**-0.5)[0].astype(np.float32), "attention")


def test_case_126_what_a_driver_would_cut_short_is_refused_or_shared_out():
    long = poot.weight((1, 1, 131072, 64))
    prefill = poot.trace(causal, (poot.weight((1, 1, 2, 64)), long, long))
    with pytest.raises(CapabilityError, match="lavapipe ends them after 65535"):
        compile(prefill, target="lavapipe", cache=False)
    columns = poot.trace(lambda x: ops.sum(x, 0), (poot.weight((70000, 256)),))
    (step,) = compile(columns, target="lavapipe", cache=False).plan.entries[0].steps
    assert step.request.schedule.get("lanes") > 1


@on(but="emulated")
def test_case_128_a_maximum_past_the_first_half_of_a_wave_is_found(target: str):
    def fn(x: Array) -> object:
        return ops.max(x, 1), ops.argmax(x, 1), ops.sum(x, 1)

    for n in (33, 64, 65, 129):
        x = np.zeros((3, n), np.float32)
        x[:, min(40, n - 1)] = 7
        graph = graph_of(fn, x)
        top, at, total = run_program(compile_on(target, graph), {"x": x}).outputs
        np.testing.assert_array_equal(top, np.full(3, 7))
        np.testing.assert_array_equal(at, np.full(3, min(40, n - 1)))
        np.testing.assert_array_equal(total, np.full(3, 7))
