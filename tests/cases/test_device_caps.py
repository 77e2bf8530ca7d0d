"""Hard cases of wide heads and of many rows on devices with less than usual: workgroup memory, grid
axes. Traced, fused and planned whole, then run by the simulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot import ops
from poot.api import Program, compile
from poot.codegen.kir.verify import verify
from poot.errors import AttentionLds, GridLimit
from poot.limits import PROFILES, DeviceLimits
from poot.ops import Array
from tests.support.attention import qkv, reference
from tests.support.everywhere import eqns_of, fused_count, on, run_program
from tests.support.far import launches_of
from tests.support.hard import feed_of, fused_only
from tests.support.sim_device import SimDevice
from tests.support.tol import assert_within
from tests.support.traced import graph_of

CAPS = (16384, 32768, 49152, 65536)
WIDE = ((64, 64), (128, 128), (256, 256), (576, 512), (576, 576))


def attention(q: Array, k: Array, v: Array) -> object:
    return ops.attention_masked(q, k, v, mask=None, scale=q.shape[3] ** -0.5)


def compiled(limits: DeviceLimits, *arrays: np.ndarray) -> Program:
    """The attention's program; every kernel keeps to the limits."""
    program = compile(graph_of(attention, *arrays), target=limits, cache=False)
    for _, grid in launches_of(program):
        assert all(n <= most for n, most in zip(grid, limits.grid, strict=True)), grid
    for entry in program.plan.entries:
        for step in entry.steps:
            for call in program.lowered[step.request].calls:
                assert call.kernel.shared_nbytes <= limits.workgroup_nbytes
                assert call.kernel.threads <= limits.threads
                verify(call.kernel, limits)
    return program


def simulated(program: Program, limits: DeviceLimits, *arrays: np.ndarray) -> np.ndarray:
    ready = replace(program, device=SimDevice(limits), target="simulator")
    return run_program(ready, feed_of(program.entries["main"].source, arrays)).outputs[0]


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("name", ["webgpu-baseline", "lavapipe", "h200", "rdna3", "cpu-avx2"])
def test_case_41_and_123_a_wide_head_takes_fewer_lanes_not_more_memory(name: str, cap: int):
    """Prefill, decode and 16-bit storage; the plan holds the request that fits."""
    limits = replace(PROFILES[name], workgroup_nbytes=cap)
    # A CPU's kernels are machine code, slow to make.
    for dk, dv in WIDE[1:4:2] if name == "cpu-avx2" else WIDE:
        for rows in (3,) if name == "cpu-avx2" else (1, 3):
            q, k, v = qkv(1, 2, 1, rows, 5, dk, dv)
            program = compiled(limits, q, k, v)
            assert fused_count(program, "attention") == 1, program.explain()
            if rows == 3 and name in ("webgpu-baseline", "rdna3"):
                got = simulated(program, limits, q, k, v)
                want = reference(q, k, v, dk**-0.5)[0]
                assert_within(got, want.astype(np.float32), "attention", f"{dk} {dv}")
        halves = [x.astype(np.float16) for x in qkv(1, 2, 1, 1, 5, dk, dv)]
        assert fused_count(compiled(limits, *halves), "attention") == 1


def test_case_41_one_lane_that_does_not_fit_is_refused_with_the_numbers():
    q, k, v = qkv(1, 1, 1, 1, 5, 8, 512)
    limits = replace(PROFILES["webgpu-baseline"], workgroup_nbytes=(512 + 2) * 4)
    assert fused_count(compiled(limits, q, k, v), "attention") == 1
    got = simulated(compiled(limits, q, k, v), limits, q, k, v)
    assert_within(got, reference(q, k, v, 8**-0.5)[0].astype(np.float32), "attention")
    less = replace(limits, workgroup_nbytes=limits.workgroup_nbytes - 1)
    with pytest.raises(AttentionLds, match=r"512 wide needs 2056 bytes .* has 2055"):
        compile(graph_of(attention, q, k, v), target=less, cache=False)


@pytest.mark.parametrize("rows", [1, 8, 9, 63, 64])
def test_case_36_and_37_a_small_grid_folds_to_its_second_axis(rows: int):
    """A grid of 8 by 8 takes 64 query rows; the fold's spare groups write nothing."""
    limits = replace(PROFILES["webgpu-baseline"], grid=(8, 8, 1))
    q, k, v = qkv(rows, 1, 1, 1, 3, 4, 4)
    program = compiled(limits, q, k, v)
    assert fused_count(program, "attention") == 1
    got = simulated(program, limits, q, k, v)
    assert_within(got, reference(q, k, v, 0.5)[0].astype(np.float32), "attention")


def test_case_36_rows_past_every_fold_are_declined_with_the_reason_or_refused():
    limits = replace(PROFILES["webgpu-baseline"], grid=(8, 8, 1))
    q, k, v = qkv(1, 1, 1, 65, 3, 4, 4)
    program = compiled(limits, q, k, v)
    assert fused_count(program, "attention") == 0
    assert "65 query rows fit no grid of 8 by 8" in program.explain()
    assert any(e.op == "matmul" for e in eqns_of(program.entries["main"].final))
    got = simulated(program, limits, q, k, v)
    assert_within(got, reference(q, k, v, 0.5)[0].astype(np.float32), "attention")
    with pytest.raises(GridLimit, match="65 workgroups fits no grid of 8 x 8"):
        compile(graph_of(attention, *qkv(65, 1, 1, 1, 3, 4, 4)), target=limits, cache=False)
    x = np.zeros((64 * 64 + 1,), np.float32)
    with pytest.raises(GridLimit, match="65 workgroups fits no grid of 8 x 8"):
        compile(graph_of(lambda x: -x, x), target=limits, cache=False)


@on(but="simulator emulated")
def test_case_36_heads_past_65535_share_one_key_head(target: str):
    heads, width = 65537, 4
    q, k, v = qkv(1, heads, 1, 1, 2, width, width)
    got = fused_only(target, attention, q, k, v)
    assert isinstance(got, np.ndarray)
    scores = q[0, :, 0].astype(float) @ k[0, 0].astype(float).T * 0.5
    e = np.exp(scores - scores.max(-1, keepdims=True))
    want = e / e.sum(-1, keepdims=True) @ v[0, 0].astype(float)
    assert_within(got[0, :, 0], want.astype(np.float32), "attention")
