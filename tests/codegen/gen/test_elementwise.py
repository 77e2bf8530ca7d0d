"""The elementwise generator: items, words, launches that updates and outputs share, grids."""

from __future__ import annotations

import pytest

from poot.codegen.gen.lower import lower
from poot.ir.build import Builder
from poot.ir.graph import Slot, TensorType
from poot.planner.request import Schedule
from tests.support.launch import BASELINE, LAVAPIPE, body_of, check_step, request_of


def test_a_value_used_twice_in_each_of_40_eqns_is_made_once():
    b = Builder()
    v = b.input(TensorType("f32", (70,)), "x", Slot())
    for _ in range(40):
        v = b.one("add", v, v)
    half = b.one("const", shape=(), dtype="f32", value=2.0**-40)
    request = check_step(b.graph((b.one("mul", v, half),)), "none")
    assert len(request.body.eqns) == 42


def test_a_chain_of_3000_eqns_needs_no_recursion():
    b = Builder()
    v = b.input(TensorType("f32", (3,)), "x", Slot())
    for _ in range(3000):
        v = b.one("neg", v)
    check_step(b.graph((v,)), "none")


@pytest.mark.parametrize("per", [1, 4])
@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000])
def test_group_counts_cover_the_elements_and_no_more(count, per):
    schedule = Schedule("elementwise", (("per", per), ("threads", 64)))
    body = body_of("neg", TensorType("f32", (count,)))
    check_step(body, "none", schedule=schedule)


@pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE], ids=["lavapipe", "baseline"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i8", "u8", "bool"])
@pytest.mark.parametrize("count", [1, 2, 3, 33, 63, 130])
def test_odd_counts_of_every_dtype(count, dtype, limits):
    text = f"""in v0: {dtype}[{count}]
               v1: {dtype}[1,{count}] = reshape(v0) shape=(1, {count})
               v2: f32[{count}] = cast(v0) dtype=f32
               out v1, v2"""
    check_step(text, "none", limits=limits)


def test_updates_and_outputs_share_a_launch():
    text = """in v0: f32[2,9,4]
              in v1: f32[2,9,4]
              in v2: f32[2,1,4]
              in v3: i32[]
              v4: f32[2,1,4] = exp(v2)
              v5: f32[2,9,4] = dynamic_update_slice(v0, v4, v3) axis=1
              v6: f32[2,9,4] = dynamic_update_slice(v1, v2, v3) axis=1
              out v5, v6, v4"""
    check_step(text, "none", ((0, 0), (1, 1)))


def test_a_grid_past_the_first_axis_folds_and_leaves_whole_groups():
    body = body_of("neg", TensorType("f32", (65537 * 64 + 1,)))
    schedule = Schedule("elementwise", (("per", 1), ("threads", 64)))
    (call,) = lower(request_of(body, "none", schedule=schedule), BASELINE).calls
    assert call.grid == (32769, 2, 1)
