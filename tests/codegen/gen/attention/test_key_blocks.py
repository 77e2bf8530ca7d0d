"""The key_blocks generator in the simulator; every form on the device is in tests/suites."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.codegen.gen.lower import lower
from poot.ir.text import parse
from poot.limits import profile
from tests.support import selected_forms, selected_steps
from tests.support.attention_forms import ALONE, Form, form_text
from tests.support.launch import check_step, request_of, run_request
from tests.support.selected import list_of, visited

# A vector of 4 keeps the simulator quick.
SMALL = replace(profile("cpu-avx2"), vector=4, subgroup=4)
WITHIN = {"f32": 2e-5, "f16": 2e-3, "bf16": 2e-2}


def check(form: Form) -> str:
    text, feed = form_text(form)
    graph = parse(text)
    ins = [feed[i.name] for i in graph.inputs]
    request = check_step(graph, "attention", limits=SMALL, ins=ins, within=WITHIN[form.dtype])
    return request.schedule.name


@pytest.mark.parametrize("form", ALONE, ids=str)
def test_each_form_alone(form):
    check(form)


@pytest.mark.parametrize(
    "form",
    [
        Form(rows=40, keys=70, causal=30, heads=3, kv_heads=1),
        Form(rows=20, keys=37, width=10, value_width=7),
        Form(batch=1, heads=2, kv_heads=1, rows=1, keys=300, sink=True, lse=True),
        Form(batch=1, heads=1, kv_heads=1, rows=2, keys=1),
    ],
    ids=str,
)
def test_rows_keys_and_widths_that_fill_no_tile(form):
    assert check(form) == "key_blocks"


def test_a_split_decode_is_two_launches():
    form = Form(batch=1, heads=2, kv_heads=1, rows=1, keys=300)
    request = request_of(parse(form_text(form)[0]), "attention", limits=SMALL)
    assert request.schedule.get("splits") > 1
    names = [c.kernel.name for c in lower(request, SMALL).calls]
    assert names == ["attention_blocks", "attention_combine"]


@pytest.mark.parametrize(
    "form",
    [
        Form(batch=1, heads=8, kv_heads=4, rows=1, keys=300, paged=True, live=True, sink=True),
        Form(batch=1, heads=20, kv_heads=4, rows=1, keys=300, paged=True, live=True, mask="hqk"),
        Form(batch=1, heads=36, kv_heads=2, rows=1, keys=300, paged=True, live=True, mask="hqk"),
        Form(batch=1, heads=6, kv_heads=6, rows=5, keys=270, paged=True, causal=265, lse=True),
        Form(batch=1, heads=4, kv_heads=4, rows=1, keys=300, paged=True, width=10, value_width=7),
        Form(batch=1, heads=4, kv_heads=4, rows=5, keys=300, width=22, shared=7),
        Form(batch=1, heads=2, kv_heads=2, rows=17, keys=300, width=22, shared=7),
        Form(batch=1, heads=4, kv_heads=4, rows=1, keys=300, width=22, shared=7, paged=True),
    ],
    ids=str,
)
def test_several_key_heads_of_a_group_stay_apart(form):
    text, feed = form_text(form)
    request = request_of(parse(text), "attention", limits=SMALL)
    assert request.schedule.get("heads") > 1
    assert check(form) == "key_blocks"
    one = replace(SMALL, cores=1)
    check_step(text, "attention", limits=one, ins=list(feed.values()), within=WITHIN["f32"])


@pytest.mark.parametrize(
    "form", [f for f in (*selected_forms.ALONE, *selected_forms.NARROW) if f.rows == 1], ids=str
)
def test_a_decode_over_selected_blocks_runs_over_its_slots(form):
    request = selected_steps.check_form(form, SMALL)
    shared = form.lists == 1 or form.lists == form.kv_heads
    assert request.schedule.name == ("key_blocks" if shared else "selected")


def test_a_selected_decode_may_be_split_and_reads_what_it_visits():
    form = selected_forms.Form(1, 4, 2, 1, 1200, 16, 16, 4, 200, positions=(1199,))
    assert selected_steps.check_form(form, SMALL).schedule.get("splits") > 1
    for keys in (400, 4000):
        form = selected_forms.Form(1, 4, 2, 1, keys, 16, 16, 4, 8, positions=(keys - 2,))
        _, stats = selected_steps.reads_of(form, SMALL)
        assert stats["attention_blocks"].loads["in2"] <= 2 * (8 + 1) * 4 * 16


def test_what_a_selected_decode_does_not_visit_may_be_nan():
    form = selected_forms.Form(keys=30, listed=2, positions=(17, 25))
    text, feed = selected_forms.form_text(form)
    request = request_of(text, "attention", (), SMALL)
    clean = run_request(request, list(feed.values()), SMALL)[0]
    for b in range(2):
        seen = visited(list_of(feed["ids"][b, 0, 0]), int(feed["positions"][b, 0]), 4)
        dead = np.setdiff1d(np.arange(30), seen)
        feed["k"][b, :, dead], feed["v"][b, :, dead] = np.nan, np.nan
    np.testing.assert_array_equal(run_request(request, list(feed.values()), SMALL)[0], clean)
