"""What a group of the key_blocks schedule reads of a map and of a shared part, counted by the
simulator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poot.codegen.gen.lower import lower
from poot.codegen.kir.sim.run import Stats, simulate
from poot.codegen.kir.sim.values import NUMPY
from poot.ir.text import parse
from poot.limits import DeviceLimits, profile
from poot.planner.request import Request
from tests.support.attention_forms import Form, form_text
from tests.support.launch import LAVAPIPE, device_buffers, request_of

SMALL = replace(profile("cpu-avx2"), vector=4, subgroup=4)


def reads_of(form: Form, operand: str, limits: DeviceLimits = SMALL) -> tuple[Request, int]:
    """The request of a form, and how many elements of an operand its first launch loads."""
    text, feed = form_text(form)
    request = request_of(parse(text), "attention", limits=limits)
    buffers = device_buffers(request, list(feed.values()))
    call = lower(request, limits).calls[0]
    arrays = {
        p.name: buffers[arg].view(NUMPY[p.dtype])
        for p, arg in zip(call.kernel.params, call.args, strict=True)
    }
    number = list(feed).index(operand)
    stats: Stats = simulate(call.kernel, arrays, call.grid)
    return request, stats.loads[f"in{number}"]


def test_the_shared_part_of_a_key_is_read_once_for_all_query_heads_of_a_key_head():
    form = Form(batch=2, heads=8, kv_heads=1, rows=1, keys=64, width=24, shared=8)
    assert reads_of(form, "k_shared")[1] == form.batch * form.keys * form.shared


def test_the_shared_part_of_a_key_is_read_once_for_all_key_heads_of_a_group():
    form = Form(batch=1, heads=4, kv_heads=4, rows=5, keys=320, width=24, shared=8)
    request, loads = reads_of(form, "k_shared")
    assert request.schedule.get("heads") == form.kv_heads
    assert loads == form.keys * form.shared


def test_a_few_rows_read_the_shared_part_once_for_each_key_head():
    form = Form(batch=1, heads=8, kv_heads=4, rows=1, keys=320, width=24, shared=8)
    request, loads = reads_of(form, "k_shared")
    assert request.schedule.get("few") == 1
    assert loads == form.kv_heads * form.keys * form.shared


def test_streaming_reads_the_shared_part_once_for_each_query_head_and_row():
    form = Form(batch=1, heads=8, kv_heads=4, rows=3, keys=70, width=24, shared=8)
    request, loads = reads_of(form, "k_shared", LAVAPIPE)
    assert request.schedule.name == "streaming"
    assert loads == form.heads * form.rows * form.keys * form.shared


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_a_map_is_read_once_a_key_for_all_heads_of_a_group(kv_heads):
    form = Form(batch=1, heads=8, kv_heads=kv_heads, rows=1, keys=320, paged=True)
    request, loads = reads_of(form, "read")
    assert request.schedule.get("heads") == kv_heads
    assert loads == form.keys


def test_a_split_key_s_own_part_and_a_pool_s_rows_are_read_once():
    form = Form(batch=1, heads=16, kv_heads=4, rows=1, keys=320, width=24, shared=8, paged=True)
    request, loads = reads_of(form, "k")
    assert request.schedule.get("few") == 0
    assert loads == form.keys * form.kv_heads * (form.width - form.shared)
