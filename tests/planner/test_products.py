"""Schedules of products."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poot.errors import CapabilityError
from poot.ir.text import parse
from poot.limits import PROFILES, DeviceLimits
from poot.planner.products import choose_matmul
from poot.planner.request import Schedule
from tests.support.products import BODIES, matmul_text

BASELINE, LAVAPIPE = PROFILES["webgpu-baseline"], PROFILES["lavapipe"]


def schedule_of(text: str, limits: DeviceLimits = BASELINE) -> Schedule:
    return choose_matmul(parse(text), (), limits)[0]


@pytest.mark.parametrize("rows, name", [(1, "gemv"), (8, "gemv"), (9, "gemm"), (500, "gemm")])
def test_few_rows_are_read_straight_from_memory(rows, name):
    assert schedule_of(matmul_text(rows, 64, 64, True)).name == name


def test_a_linear_weights_lanes_run_along_its_rows():
    linear = schedule_of(matmul_text(1, 512, 64, True))
    plain = schedule_of(matmul_text(1, 512, 64, False))
    assert (linear.get("adjacent"), linear.get("lanes")) == (1, 32)
    assert (plain.get("adjacent"), plain.get("lanes")) == (0, 4)


def test_a_short_sum_is_not_shared():
    assert schedule_of(matmul_text(1, 8, 64, True)).get("lanes") == 1


def test_a_quantised_weight_is_taken_a_scale_at_a_time():
    assert schedule_of(BODIES["q4_1"][0]).get("unroll") == 32
    assert schedule_of(matmul_text(1, 64, 10, True)).get("unroll") == 8


def test_software_gives_each_column_a_lane():
    schedule = schedule_of(matmul_text(64, 512, 4096, True), LAVAPIPE)
    assert schedule.name == "gemv"
    assert (schedule.get("lanes"), schedule.get("rows"), schedule.get("cols")) == (1, 8, 4)


@pytest.mark.parametrize("nbytes", [2048, 4096, 16384])
@pytest.mark.parametrize("name", ["swiglu", "rms_norm"])
def test_tiles_shrink_until_they_fit(name, nbytes):
    text = BODIES[name][0].replace("[1,3,", "[1,70,").replace("[1,5,", "[1,70,")
    params = dict(schedule_of(text, replace(BASELINE, workgroup_nbytes=nbytes)).params)
    count = 2 if name == "swiglu" else 1
    used = (params["tile_m"] + count * params["tile_n"]) * params["tile_k"] * 4
    assert used <= nbytes


def test_a_step_without_a_product_is_refused():
    with pytest.raises(CapabilityError, match="has none"):
        schedule_of("in v0: f32[4]\nv1: f32[4] = neg(v0)\nout v1")
