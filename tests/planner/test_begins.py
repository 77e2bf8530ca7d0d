"""Where a decode's keys begin, read off a mask of -inf: what is taken for it, and what it saves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.ir.text import parse
from poot.limits import DeviceLimits, profile
from poot.planner.begins import begin_of
from poot.planner.schedules import choose
from tests.support.attention_forms import Form, form_text
from tests.support.attention_steps import check_form
from tests.support.grouped import card
from tests.support.launch import BASELINE, LAVAPIPE, loads_of, request_of, run_request, wanted

CPU = replace(profile("cpu-avx2"), vector=4, subgroup=4)
GPU = replace(LAVAPIPE, subgroup=8, is_software=False, compute_units=4)
FORM = Form(2, 4, 2, 1, 200, 64, 64, begin=True, live=True)


def text(mask: str, fill: str = "-inf", rows: int = 1) -> str:
    attrs = f"mask_fill={fill} operands=(q, k, v, mask) scale=1.0"
    return f"""
        slot v0: f32[2,4,{rows},8] "q"
        slot v1: f32[2,2,30,8] "k"
        slot v2: f32[2,2,30,8] "v"
        slot v3: i32[2,1,1,1] "from"
        v4: i32[1,1,1,30] = iota() axis=3 dtype=i32 shape=(1, 1, 1, 30)
        v5: bool[2,1,1,30] = {mask}
        v6: f32[2,4,{rows},8] = attention(v0, v1, v2, v5) {attrs}
        out v6"""


def found(of: str):
    graph = parse(of)
    return begin_of(graph, graph.eqns[-1])


@pytest.mark.parametrize(
    "mask, more", [("gt(v4, v3)", 1), ("ge(v4, v3)", 0), ("lt(v3, v4)", 1), ("le(v3, v4)", 0)]
)
def test_a_comparison_of_keys_with_a_limit_of_their_row_is_a_begin(mask: str, more: int):
    begin = found(text(mask))
    assert begin is not None
    assert (begin.limit.id, begin.more, begin.is_of_rows) == (3, more, True)


@pytest.mark.parametrize(
    "given", [text("lt(v4, v3)"), text("ne(v4, v3)"), text("gt(v4, v3)", "-1e9"),
              text("gt(v4, v3)", rows=2)]
)  # fmt: skip
def test_anything_else_stays_a_mask(given: str):
    assert found(given) is None


@pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE, CPU, GPU, card(3)], ids=lambda x: x.name)
def test_every_schedule_begins_there_and_reads_no_key_before(limits: DeviceLimits):
    request = check_form(FORM, limits)
    _, feed = form_text(FORM)
    feed["len"][:] = 200
    reads: list[int] = []
    for limit in (-1, 199 - 64):
        feed["mask"][:] = limit
        reads.append(loads_of(request, list(feed.values()), limits, 1))
    assert reads[1] < reads[0] / 2, request.schedule
    reason = choose(request.body, "attention", (), limits).reason
    assert "keys before the limit that the mask is of are not visited" in reason


def test_the_paged_form_and_the_last_block_too():
    for limits in (CPU, GPU, LAVAPIPE):
        for seed in range(2):
            check_form(replace(FORM, paged=True, keys=70, sink=True), limits, seed)


@pytest.mark.parametrize("sink", [False, True])
def test_a_row_that_sees_no_key_is_nan_or_its_sink(sink: bool):
    form = replace(FORM, sink=sink, keys=40)
    text, feed = form_text(form)
    feed["mask"][:], feed["len"][:] = (39, 12), (40, 20)
    for limits in (CPU, card(3)):
        request = request_of(parse(text), "attention", limits=limits)
        (got,) = run_request(request, list(feed.values()), limits)
        (want,) = wanted(request, list(feed.values()))
        np.testing.assert_allclose(got, want, atol=2e-5)
        assert np.isnan(want[0]).all() == (not sink)
