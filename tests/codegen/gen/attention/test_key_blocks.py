"""The key_blocks generator in the simulator; every form on the device is in tests/suites."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poot.codegen.gen.lower import lower
from poot.ir.text import parse
from poot.limits import profile
from tests.support.attention_forms import ALONE, Form, form_text
from tests.support.launch import check_step, request_of

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
        Form(batch=1, heads=6, kv_heads=6, rows=5, keys=270, paged=True, causal=265, lse=True),
        Form(batch=1, heads=4, kv_heads=4, rows=1, keys=300, paged=True, width=10, value_width=7),
        Form(batch=1, heads=4, kv_heads=4, rows=5, keys=300, width=22, shared=7),
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
