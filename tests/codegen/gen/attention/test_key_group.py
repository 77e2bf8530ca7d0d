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


@pytest.mark.parametrize("rows, few", [(1, 1), (17, 0)])
def test_the_shared_part_of_a_key_is_read_once_for_all_key_heads_of_a_group(rows, few):
    form = Form(batch=1, heads=2, kv_heads=2, rows=rows, keys=320, width=24, shared=8)
    request, loads = reads_of(form, "k_shared")
    assert request.schedule.get("few") == few
    assert request.schedule.get("heads") == form.kv_heads
    assert loads == form.keys * form.shared


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 4, 8])
@pytest.mark.parametrize("rows, splits", [(3, 1), (1, 2)])
def test_any_target_reads_the_shared_part_once_a_query_row_for_all_heads(
    rows, splits, kv_heads, paged
):
    form = Form(1, 8, kv_heads, rows, 300, 24, shared=8, paged=paged)
    request, loads = reads_of(form, "k_shared", LAVAPIPE)
    assert request.schedule.name == "shared_key"
    assert request.schedule.get("splits") == splits
    assert loads == form.rows * form.keys * form.shared
    if paged:
        assert reads_of(form, "read", LAVAPIPE)[1] == form.rows * form.keys


@pytest.mark.parametrize(
    "form",
    [Form(1, 32, 32, 2, 20, 192, 128, shared=64), Form(1, 8, 1, 1, 20, 576, 512, shared=64)],
    ids=["prefill", "absorbed"],
)
def test_deepseeks_shared_part_is_read_once_for_as_many_heads_as_fit(form: Form):
    baseline = replace(profile("webgpu-baseline"), is_software=True)
    for limits, sets in ((LAVAPIPE, 1), (baseline, 2)):
        limits = replace(limits, compute_units=1)
        request, loads = reads_of(form, "k_shared", limits)
        assert request.schedule.get("heads") * sets == form.heads
        assert loads == sets * form.rows * form.keys * form.shared


@pytest.mark.parametrize("heads, reads", [(4, 1), (8, 1), (16, 2), (24, 3)])
def test_values_of_a_key_head_are_read_once_for_four_of_its_query_heads(heads, reads):
    form = Form(1, heads, 2, 1, 40, 24, 16, shared=8)
    want = reads * form.kv_heads * form.keys * form.value_width
    assert reads_of(form, "v", LAVAPIPE)[1] == want


@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("repeat, reads", [(2, 2), (18, 1)])
def test_a_map_is_read_for_all_heads_of_a_group_and_ahead_where_rows_are_few(
    kv_heads, repeat, reads
):
    form = Form(1, repeat * kv_heads, kv_heads, 1, keys=320, paged=True)
    request, loads = reads_of(form, "read")
    assert request.schedule.get("heads") == kv_heads
    assert loads == reads * form.keys


@pytest.mark.parametrize("heads, few", [(16, 1), (34, 0)])
def test_a_split_key_s_own_part_and_a_pool_s_rows_are_read_once(heads, few):
    form = Form(batch=1, heads=heads, kv_heads=2, rows=1, keys=320, width=24, shared=8, paged=True)
    request, loads = reads_of(form, "k")
    assert request.schedule.get("few") == few
    assert loads == form.keys * form.kv_heads * (form.width - form.shared)
