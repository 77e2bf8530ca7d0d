"""Schedules by shape and device, with the numbers that decide."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poot.errors import AttentionLds, CapabilityError
from poot.ir.graph import TensorType
from poot.ir.text import parse
from poot.limits import PROFILES, DeviceLimits
from poot.planner.request import Choice
from poot.planner.schedules import PORTABLE, choose, streaming_lanes
from tests.support.launch import body_of
from tests.support.requests import attention_text

BASELINE, H200 = PROFILES["webgpu-baseline"], PROFILES["h200"]


def chosen(text: str, anchor: str, limits: DeviceLimits = BASELINE) -> Choice:
    return choose(parse(text), anchor, (), limits)


@pytest.mark.parametrize("nbytes", [16384, 32768, 49152, 65536])
@pytest.mark.parametrize("width", [1, 64, 128, 256, 512, 576])
def test_streaming_takes_the_most_lanes_that_fit(nbytes, width):
    lanes = streaming_lanes(width, replace(BASELINE, workgroup_nbytes=nbytes))
    assert lanes & (lanes - 1) == 0
    assert 1 <= lanes <= 64
    assert lanes * (width + 2) * 4 <= nbytes
    assert lanes == 64 or 2 * lanes * (width + 2) * 4 > nbytes


def test_a_value_too_wide_for_one_lane_is_refused_with_its_bytes():
    with pytest.raises(AttentionLds, match=r"4095 wide needs 16388 bytes .* has 16384"):
        streaming_lanes(4095, BASELINE)


def test_the_query_is_staged_where_it_fits_beside_the_lanes():
    roomy = chosen(attention_text(widths=(64, 64)), "attention", H200)
    assert roomy.schedule.get("stage_q") == 1
    tight = chosen(attention_text(widths=(576, 510)), "attention")
    assert tight.schedule.get("lanes") == 8
    assert tight.schedule.get("stage_q") == 0


@pytest.mark.parametrize("rows, cols, lanes", [(1, 4, 1), (3, 65, 64), (1, 100000, 256)])
def test_long_rows_have_many_lanes_and_short_ones_one(rows, cols, lanes):
    text = f"""in v0: f32[{rows},{cols}]
               v1: f32[{rows}] = reduce(v0) axis=(1,) keepdim=False kind=sum
               out v1"""
    schedule = chosen(text, "reduce").schedule
    assert schedule.get("lanes") == lanes
    assert schedule.get("threads") % lanes == 0


def test_columns_apart_in_memory_are_folded_by_a_lane_each():
    text = """in v0: f32[50,4096]
              v1: f32[4096] = reduce(v0) axis=(0,) keepdim=False kind=sum
              out v1"""
    assert chosen(text, "reduce").schedule.get("lanes") == 1


def test_many_elements_are_four_a_lane():
    few = choose(body_of("neg", TensorType("f32", (100,))), "none", (), BASELINE)
    many = choose(body_of("neg", TensorType("f32", (1 << 20,))), "none", (), BASELINE)
    assert (few.schedule.get("per"), many.schedule.get("per")) == (1, 4)
    assert many.reason == "1048576 elements"


@pytest.mark.parametrize("threads", [128, 256])
@pytest.mark.parametrize("anchor", PORTABLE)
def test_no_schedule_passes_the_devices_threads(anchor, threads):
    texts = {
        "none": "in v0: f32[4,70000]\nv1: i32[4] = argmax(v0) axis=1\nout v1",
        "reduce": "in v0: f32[4,70000]\n"
        "v1: f32[4] = reduce(v0) axis=(1,) keepdim=False kind=sum\nout v1",
        "matmul": "in v0: f32[70,64]\nin v1: f32[64,512]\nv2: f32[70,512] = matmul(v0, v1)\nout v2",
        "attention": attention_text(),
    }
    limits = replace(BASELINE, threads=threads)
    schedule = chosen(texts[anchor], anchor, limits).schedule
    params = dict(schedule.params)
    used = params.get("threads") or params.get("lanes")
    if schedule.name == "gemm":
        used = (params["tile_m"] // params["lane_m"]) * (params["tile_n"] // params["lane_n"])
    assert used is not None
    assert used <= threads


def test_an_anchor_that_its_step_lacks_is_refused():
    with pytest.raises(CapabilityError, match="anchored by reduce has none"):
        chosen("in v0: f32[4]\nv1: f32[4] = neg(v0)\nout v1", "reduce")
