"""Grouped decode with rows in registers, on subgroups of every width, against the oracle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.codegen.gen.lower import lower
from poot.codegen.kir.nodes import Ins
from poot.codegen.kir.ops import KIR_OPS
from poot.codegen.kir.sim.run import walk
from poot.ir.text import parse
from poot.limits import DeviceLimits, profile
from poot.planner.grouped_split import split_numbers
from poot.planner.request import Layout, Request, Schedule
from poot.planner.schedules import split_scratch
from poot.planner.spills import spill_scratch
from poot.planner.steps import canonical_body
from tests.support.attention_forms import Form, form_text
from tests.support.grouped import decode
from tests.support.launch import assert_close, run_request, wanted

NARROW = replace(profile("lavapipe"), compute_units=2)
WIDE = replace(profile("mi300x"), compute_units=2)
WARP = replace(profile("rdna3"), compute_units=2)
WITHIN = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}


def request_for(form: Form, limits: DeviceLimits) -> Request:
    """The form's request under this schedule, also on a software device."""
    graph = canonical_body(parse(form_text(form)[0]))
    (eqn,) = (e for e in graph.eqns if e.op == "attention")
    schedule = split_numbers(graph, eqn, limits)
    assert isinstance(schedule, Schedule), schedule
    scratch = spill_scratch(graph, "attention", (), limits)
    scratch = (*scratch, split_scratch(eqn, schedule.get("splits")))
    layouts = (Layout(),) * len(graph.inputs)
    return Request(graph, "attention", (), layouts, schedule, scratch)


def check(form: Form, limits: DeviceLimits, feed: dict[str, np.ndarray] | None = None) -> None:
    request = request_for(form, limits)
    ins = list((feed or form_text(form)[1]).values())
    for got, want in zip(run_request(request, ins, limits), wanted(request, ins), strict=True):
        assert_close(got, want, WITHIN[form.dtype])


@pytest.mark.parametrize("limits", [NARROW, WARP, WIDE], ids=lambda d: d.name)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_every_subgroup_width_and_dtype_is_the_oracles(limits, dtype):
    check(decode(2, 8, 2, 150, 64, dtype, live=True), limits)
    check(decode(2, 6, 2, 90, 128, dtype, live=True, paged=True, lse=True, sink=True), limits)


@pytest.mark.parametrize("limits", [NARROW, WARP, WIDE], ids=lambda d: d.name)
@pytest.mark.parametrize("codes", ["i8", "f8e4m3"])
def test_codes_are_read_as_words_with_their_scales(limits: DeviceLimits, codes: str):
    check(decode(2, 8, 2, 150, 64, "f32", codes=codes, query="bf16", live=True), limits)
    check(decode(2, 6, 2, 90, 128, "bf16", codes=codes, live=True, paged=True, lse=True), limits)
    check(decode(1, 4, 1, 70, 96, "f32", codes=codes, paged=True, begin=True), limits)


@pytest.mark.parametrize(
    "rest",
    [
        {"mask": "hk", "softcap": 3.0},
        {"mask": "bk", "fill": float("-inf")},
        {"mask": "bk", "fill": -1e9, "live": True},
        {"causal": 60, "window": 20},
    ],
    ids=str,
)
def test_every_form_of_score_is_the_oracles(rest):
    check(decode(1, 9, 1, 130, 96, "f32", **rest), WARP)


def test_what_lies_past_a_rows_end_does_not_matter():
    form = decode(2, 4, 2, 100, 64, "f32", live=True)
    _, feed = form_text(form)
    feed["len"] = np.array([1, 33], np.int32)
    for name in ("k", "v"):
        for b in range(2):
            feed[name][b, :, feed["len"][b] :] = float("nan")
    check(form, WARP, feed)


def test_only_portable_ops_are_asked_for():
    calls = lower(request_for(decode(2, 8, 2, 150, 64, "bf16"), WARP), WARP).calls
    ops = {s.op for call in calls for s in walk(call.kernel.body) if isinstance(s, Ins)}
    assert all(KIR_OPS[op].portable for op in ops)
