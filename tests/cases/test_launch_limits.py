"""Cases of launches at a device's limits: grids, workgroup memory, lanes, barriers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.codegen.gen.lower import lower
from poot.codegen.kir.verify import verify
from poot.ir.graph import TensorType
from poot.planner.request import Schedule
from tests.support.launch import (
    BASELINE,
    assert_close,
    body_of,
    check_step,
    device_buffers,
    inputs_of,
    outputs_of,
    request_of,
    simulate_lowered,
    wanted,
)
from tests.support.requests import CASES, attention_text

SOFTMAX = """in v0: f32[{rows},3]
             v1: f32[{rows},1] = reduce(v0) axis=(1,) keepdim=True kind=max
             v2: f32[{rows},3] = sub(v0, v1)
             v3: f32[{rows},3] = exp(v2)
             v4: f32[{rows},1] = reduce(v3) axis=(1,) keepdim=True kind=sum
             v5: f32[{rows},3] = div(v3, v4)
             out v5"""


def test_case_37_a_softmax_of_65537_groups_folds_the_grid_and_writes_its_rows_alone():
    schedule = Schedule("reduce", (("lanes", 1), ("threads", 1)))
    request = request_of(SOFTMAX.format(rows=65537), "reduce", (), BASELINE, schedule)
    lowered = lower(request, BASELINE)
    assert lowered.calls[0].grid == (32769, 2, 1)
    ins = inputs_of(request)
    buffers = device_buffers(request, ins)
    guard = np.full(64, 0xA5, np.uint8)
    whole = np.concatenate([buffers["out", 0], guard])
    buffers["out", 0] = whole[:-64]
    simulate_lowered(lowered, buffers)
    np.testing.assert_array_equal(whole[-64:], guard)
    assert_close(outputs_of(request, buffers)[0], wanted(request, ins)[0], 1e-6)


@pytest.mark.parametrize("n, groups", [(1, 1), (63, 1), (64, 1), (65, 2), (1000, 16)])
def test_case_38_a_launch_has_as_many_groups_as_its_elements_fill(n, groups):
    request = request_of(body_of("neg", TensorType("f32", (n,))), "none", (), BASELINE)
    (call,) = lower(request, BASELINE).calls
    assert (call.kernel.threads, call.grid) == (64, (groups, 1, 1))


@pytest.mark.parametrize("name", CASES)
def test_case_120_every_barrier_is_met_by_the_whole_group(name):
    for call in lower(CASES[name].request(BASELINE), BASELINE).calls:
        verify(call.kernel, BASELINE)


@pytest.mark.parametrize("nbytes", [16384, 32768, 49152, 65536])
@pytest.mark.parametrize("width", [64, 128, 256, 576])
def test_case_123_declared_workgroup_memory_stays_under_the_cap(nbytes, width):
    limits = replace(BASELINE, workgroup_nbytes=nbytes)
    text = attention_text(widths=(width, width), rows=1, keys=5)
    request = request_of(text, "attention", (), limits)
    for call in lower(request, limits).calls:
        assert call.kernel.shared_nbytes <= nbytes
        verify(call.kernel, limits)
    check_step(text, "attention", limits=limits, within=2e-5)


@pytest.mark.parametrize("threads", [128, 256])
def test_case_124_a_group_never_has_more_lanes_than_the_device(threads):
    limits = replace(BASELINE, threads=threads)
    for case in CASES.values():
        if case.schedule is None:
            for call in lower(case.request(limits), limits).calls:
                assert call.kernel.threads <= threads
    wide = attention_text(widths=(512, 512), rows=1, keys=5)
    check_step(wide, "attention", limits=limits, within=2e-5)


@pytest.mark.parametrize("cols", [33, 64, 65])
def test_case_128_a_maximum_in_lane_40_is_found(cols):
    x = np.zeros((2, cols), np.float32)
    x[:, 40 % cols] = 7.0
    text = f"""in v0: f32[2,{cols}]
               v1: f32[2] = reduce(v0) axis=(1,) keepdim=False kind=max
               out v1"""
    request = check_step(text, "reduce", ins=[x])
    assert lower(request, BASELINE).calls[0].kernel.subgroup is None
