"""How many query heads share a reading of a split key's shared part, and where none do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poot.codegen.gen.lower import lower
from poot.codegen.kir.trips import most_trips
from poot.ir.text import parse
from poot.limits import PROFILES, DeviceLimits
from poot.planner.request import Choice
from poot.planner.schedules import choose
from poot.planner.shared_key import SharedKey, shared_key
from tests.support.attention_forms import Form
from tests.support.launch import request_of

BASELINE, LAVAPIPE = PROFILES["webgpu-baseline"], PROFILES["lavapipe"]
H200, MI300X = PROFILES["h200"], PROFILES["mi300x"]
DEEPSEEK = Form(1, 128, 128, 1, 300, 192, 128, shared=64)
ABSORBED = Form(1, 128, 1, 1, 300, 576, 512, shared=64)


def text_of(f: Form) -> str:
    """The form without inputs to draw."""
    kv = f"{f.batch},{f.kv_heads},{f.keys}"
    own, names = f.width - f.shared, "q, k, v"
    ins = [f"{f.batch},{f.heads},{f.rows},{f.width}", f"{kv},{own}", f"{kv},{f.value_width}"]
    if f.shared:
        ins.append(f"{f.batch},1,{f.keys},{f.shared}")
        names += ", k_shared"
    lines = [f"in v{n}: f32[{shape}]" for n, shape in enumerate(ins)]
    at = len(ins)
    operands = ", ".join(f"v{n}" for n in range(at))
    out = f"f32[{f.batch},{f.heads},{f.rows},{f.value_width}]"
    lines.append(f"v{at}: {out} = attention({operands}) operands=({names}) scale=0.25")
    return "\n".join([*lines, f"out v{at}"])


def numbers(form: Form, limits: DeviceLimits) -> SharedKey | None:
    (eqn,) = parse(text_of(form)).eqns
    return shared_key(eqn, limits)


def chosen(form: Form, limits: DeviceLimits) -> Choice:
    return choose(parse(text_of(form)), "attention", (), limits)


@pytest.mark.parametrize(
    "limits, heads, absorbed",
    [(BASELINE, 16, 4), (LAVAPIPE, 32, 8), (MI300X, 64, 16), (H200, 128, 64)],
    ids=lambda x: getattr(x, "name", x),
)
def test_as_many_query_heads_share_a_reading_as_workgroup_memory_holds(limits, heads, absorbed):
    for form, many in ((DEEPSEEK, heads), (ABSORBED, absorbed)):
        got = numbers(form, replace(limits, compute_units=1, is_software=True))
        assert got is not None
        assert got.heads == many
        assert got.groups == form.heads // many


def test_groups_are_as_many_as_a_card_s_compute_units_want():
    prefill = replace(DEEPSEEK, rows=64)
    for form, heads in ((prefill, 8), (replace(prefill, rows=1024), 128), (DEEPSEEK, 2)):
        got = numbers(form, H200)
        assert got is not None
        assert got.heads == heads
    long = numbers(replace(ABSORBED, batch=8, keys=4096), H200)
    assert long is not None
    assert long.heads == 16


def test_a_group_has_whole_key_heads_or_an_even_part_of_one():
    form = Form(1, 12, 4, 1, 40, 24, 16, shared=8)
    one = replace(LAVAPIPE, compute_units=1)
    for nbytes in range(900, 3000, 50):
        got = numbers(form, replace(one, workgroup_nbytes=nbytes))
        assert got is None or got.heads in (3, 6, 12), nbytes
    got = numbers(form, one)
    assert got is not None
    assert got.heads == 12


def test_a_key_without_a_shared_part_and_one_query_head_are_left_to_streaming():
    assert numbers(Form(), LAVAPIPE) is None
    assert numbers(Form(heads=1, kv_heads=1, width=24, shared=8), LAVAPIPE) is None
    assert numbers(Form(width=24, shared=8), replace(LAVAPIPE, workgroup_nbytes=600)) is None
    assert chosen(Form(heads=1, kv_heads=1, width=24, shared=8), LAVAPIPE).schedule.name == (
        "streaming"
    )


def test_a_prefill_whose_loops_a_device_would_cut_short_is_left_to_streaming():
    long = Form(1, 16, 16, 2, 8192, 192, 128, shared=64)
    assert chosen(long, LAVAPIPE).schedule.name == "streaming"
    assert chosen(replace(long, keys=64), LAVAPIPE).schedule.name == "shared_key"
    assert chosen(long, BASELINE).schedule.name == "shared_key"


def test_no_kernel_takes_more_trips_through_loops_than_the_planner_counts():
    for form in (
        replace(DEEPSEEK, heads=16, kv_heads=16, rows=2, keys=1024),
        replace(ABSORBED, heads=16, keys=1024),
        Form(1, 18, 1, 2, 1000, 30, 17, shared=8),
    ):
        got = numbers(form, LAVAPIPE)
        assert got is not None
        request = request_of(parse(text_of(form)), "attention", limits=LAVAPIPE)
        assert most_trips(lower(request, LAVAPIPE).calls[0].kernel) <= got.trips


def test_a_decode_is_split_where_its_groups_leave_compute_units_idle():
    few = Form(1, 16, 16, 1, 4096, 192, 128, shared=64)
    one = chosen(few, BASELINE)
    assert (one.schedule.get("heads"), one.schedule.get("splits")) == (4, 4)
    assert one.scratch[-1].elems == 16 * 4 * (128 + 2)
    assert "share a reading" in one.reason
    many = chosen(replace(DEEPSEEK, batch=8), BASELINE)
    assert many.schedule.get("splits") == 1
    assert not many.scratch


def test_queries_are_staged_where_there_is_room_beside_the_states():
    got = numbers(DEEPSEEK, H200)
    assert got is not None
    assert got.stage_q == 1
    tight = numbers(replace(ABSORBED, batch=2), LAVAPIPE)
    assert tight is not None
    assert tight.stage_q == 0
