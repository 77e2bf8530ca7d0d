"""States by way of workgroup memory, for each matrix unit whose elements lie otherwise in each
role, or where nobody says."""

from dataclasses import replace

import numpy as np
import pytest

from poot.limits import profile
from tests.support.attention_forms import form_text
from tests.support.launch import check_step
from tests.support.subgroup_tiles import COOP, check, prefill, shape_of

UNITS = {"coop": COOP, "mfma": profile("mi300x"), "wmma": profile("rdna3")}
FORMS = (
    prefill(40, 70, causal=20),
    prefill(20, 90, 96, shared=32, value_width=64, live=True),
    prefill(30, 100, live=True, paged=True, causal=70, window=50),
    prefill(20, 60, mask="qk", softcap=5.0, sink=True, lse=True, live=True),
)


@pytest.mark.parametrize("family", UNITS)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form_is_the_oracles(family, form):
    assert shape_of(form, UNITS[family]).family == family
    check(form, UNITS[family])


@pytest.mark.parametrize("lanes", [16, 64])
def test_subgroups_of_other_widths_share_the_rows_too(lanes):
    check(prefill(20, 40, dtype="f16"), replace(COOP, subgroup=lanes))


def test_rows_that_see_nothing_are_nan_and_with_a_sink_zero():
    check(prefill(20, 50, causal=-10), COOP)
    check(prefill(20, 50, causal=-10, sink=True), COOP)


def test_scores_that_grow_towards_the_first_key_rescale_the_channels():
    form = prefill(20, 200, scale=1.0)
    text, feed = form_text(form)
    ramp = np.linspace(3.0, 0.1, 200)[None, None, :, None]
    feed["k"] = (feed["k"].astype(np.float32) * ramp).astype(feed["k"].dtype)
    check_step(text, "attention", limits=COOP, ins=list(feed.values()), within=3e-2)


def test_a_query_that_is_not_a_number_makes_its_row_none():
    form = prefill(20, 40)
    text, feed = form_text(form)
    feed["q"][0, 1, 3, 5] = float("nan")
    for limits in UNITS.values():
        check_step(text, "attention", limits=limits, ins=list(feed.values()), within=3e-2)


def test_little_workgroup_memory_takes_smaller_tiles_then_fewer_subgroups():
    wide = prefill(100, 100, 256)
    sizes = [(s.warps, s.tile) for nbytes in (65536, 49152, 32768, 24576)
             for s in [shape_of(wide, replace(COOP, workgroup_nbytes=nbytes))]]  # fmt: skip
    assert sizes == [(4, 32), (4, 32), (4, 16), (2, 16)]
