"""The schedule that reads the shared part of a split key once for several query heads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.codegen.gen.lower import lower
from poot.ir.text import parse
from poot.limits import DeviceLimits
from tests.support.attention_forms import Form, form_text
from tests.support.attention_steps import check_form
from tests.support.launch import BASELINE, LAVAPIPE, request_of, run_request, wanted
from tests.support.ptx_agree import H200, assembled
from tests.support.ptxas import ARCHES

PREFILL = Form(1, 8, 8, 2, 40, 192, 128, shared=64)
DECODE = Form(1, 8, 1, 1, 300, 576, 512, shared=64)
FORMS = (
    Form(width=24, shared=5),
    Form(1, 18, 1, 1, 20, 24, 20, shared=8),  # 18 heads of a key head: five loads of a value
    Form(1, 6, 2, 1, 33, 9, 1, shared=8),
    Form(2, 4, 2, 3, 50, 24, 17, mask="hk", fill=float("-inf"), live=True, shared=8, sink=True,
         lse=True),
    Form(2, 4, 4, 3, 50, 24, dtype="f16", live=True, paged=True, shared=8, sink=True, causal=47,
         lse=True),
    Form(2, 4, 2, 3, 50, 24, dtype="bf16", mask="bqk", softcap=5.0, paged=True, shared=8),
    Form(rows=7, keys=9, width=24, shared=8, causal=2, window=3),
    Form(rows=7, keys=5, width=24, shared=8, causal=-2, lse=True),
    Form(1, 4, 2, 1, 300, 24, live=True, paged=True, shared=8, lse=True),
)  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form_of_a_split_key_is_the_oracles(form: Form):
    assert check_form(form, LAVAPIPE).schedule.name == "shared_key"


@pytest.mark.parametrize("limits", [BASELINE, LAVAPIPE, H200], ids=lambda x: x.name)
@pytest.mark.parametrize("form", [PREFILL, replace(DECODE, keys=40), replace(DECODE, paged=True)],
                         ids=["prefill", "absorbed", "paged, absorbed and split"])  # fmt: skip
def test_deepseeks_sizes_are_the_oracles_on_small_devices_and_large_ones(
    form: Form, limits: DeviceLimits
):
    if limits is H200:
        form = replace(form, keys=20)
    request = check_form(form, limits)
    assert request.schedule.name == "shared_key"
    for call in lower(request, limits).calls:
        assert sum(4 * s.elems for s in call.kernel.shared) <= limits.workgroup_nbytes


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_a_group_of_a_part_of_a_key_head_s_query_heads_finds_its_key_head(heads: int):
    """Workgroup memory holds two query heads, of 4 that share a key head or of one each."""
    form = Form(2, 4, heads, 2, 33, 24, 16, shared=8)
    request = check_form(form, replace(LAVAPIPE, workgroup_nbytes=1300))
    assert (request.schedule.name, request.schedule.get("heads")) == ("shared_key", 2)


@pytest.mark.parametrize("paged", [False, True])
def test_what_lies_past_the_length_is_never_read(paged: bool):
    form = Form(2, 4, 2, 1, 300, 24, 16, live=True, paged=paged, shared=8)
    text, feed = form_text(form)
    feed["len"][:] = (1, 17)
    request = request_of(parse(text), "attention")
    want = wanted(request, list(feed.values()))[0]
    live = np.arange(form.keys) < feed["len"][:, None]
    feed["k_shared"][np.broadcast_to(~live[:, None], (2, 1, form.keys))] = np.nan
    if paged:
        named = np.zeros(len(feed["k"]), bool)
        named[feed["read"][live]] = True
        dead = ~named
    else:
        dead = np.broadcast_to(~live[:, None], (2, 2, form.keys))
    feed["k"][dead], feed["v"][dead] = np.nan, np.nan
    got = run_request(request, list(feed.values()))[0]
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_a_nan_in_a_visible_value_reaches_the_heads_of_its_key_head_alone():
    form = Form(1, 4, 2, 1, 20, 24, 16, shared=8)
    text, feed = form_text(form)
    feed["v"][0, 1, 3, 5] = np.nan
    request = request_of(parse(text), "attention")
    got = run_request(request, list(feed.values()))[0]
    where = np.zeros(got.shape, bool)
    where[0, 2:, 0, 5] = True
    np.testing.assert_array_equal(np.isnan(got), where)


def test_splits_share_a_scratch_of_a_state_each_and_empty_ones_publish_nothing():
    form = Form(1, 4, 2, 1, 1024, 24, 16, live=True, shared=8, lse=True)
    for seed in range(2):
        request = check_form(form, BASELINE, seed)
    splits = request.schedule.get("splits")
    assert splits == 8
    assert request.scratch[-1].elems == 4 * splits * (16 + 2)
    partials, merge = lower(request, BASELINE).calls
    assert (partials.grid, merge.grid) == ((2 * splits, 1, 1), (4, 1, 1))


@pytest.mark.parametrize("form", [PREFILL, replace(DECODE, heads=16, keys=40),
                                  replace(DECODE, dtype="bf16", paged=True, live=True)],
                         ids=["prefill", "absorbed", "absorbed and paged"])  # fmt: skip
def test_deepseeks_sizes_assemble_without_a_spill(form: Form):
    limits = replace(H200, compute_units=1, is_software=True)
    request = request_of(parse(form_text(form)[0]), "attention", limits=limits)
    assert request.schedule.get("heads") == form.heads
    for call in lower(request, limits).calls:
        assert [r.spills for r in assembled(call.kernel)] == [0] * len(ARCHES)
