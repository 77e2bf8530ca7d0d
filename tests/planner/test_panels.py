"""What the CPU's matmul schedule decides: strips, panels, packings, what is staged, what is left to
others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poot.ir.graph import Graph, Weight
from poot.ir.text import parse
from poot.limits import profile
from poot.planner.panels import (
    ANOTHER_WAY,
    choose_panels,
    columns_axes,
    is_in_panels,
    panel_width,
    strip_rows,
)
from poot.planner.request import Choice, Layout
from poot.planner.steps import canonical_body
from tests.support.products import BODIES, matmul_text
from tests.support.quantised import q4_text, q8_text

AVX2 = profile("cpu-avx2")
AVX512 = replace(AVX2, vector=16, subgroup=16)


def chosen(text: str, bound: tuple[int, ...] = (1,), limits=AVX2) -> Choice:
    choice = choose_panels(canonical_body(parse(text), bound), limits)
    assert choice is not None
    return choice


@pytest.mark.parametrize("rows", range(1, 80))
def test_strips_fill_the_registers_evenly(rows):
    for limits, registers in ((AVX2, 16), (AVX512, 32)):
        strip = strip_rows(rows, limits)
        assert strip * 2 + 3 <= registers
        strips = -(-rows // strip)
        assert strips * strip - rows < strips


def test_weights_are_packed_by_their_columns_whichever_axis_those_are():
    width = panel_width(AVX2)
    assert chosen(matmul_text(3, 64, 40, False)).layouts[1] == Layout("panels", (1, width))
    assert chosen(matmul_text(3, 64, 40, True)).layouts[1] == Layout("panels", (0, width))
    assert chosen(matmul_text(3, 64, 40, True), bound=()).layouts[1] == Layout()


def test_codes_scales_and_minima_are_packed_alike():
    choice = chosen(q4_text(1, 64, 40), bound=(1, 2, 3))
    assert choice.layouts == (Layout(), *[Layout("panels", (0, 16))] * 3)
    assert choice.schedule.get("run") == 32
    assert chosen(q8_text(1, 64, 40), bound=(1, 2)).schedule.get("run") == 32


def test_a_weight_that_is_read_elsewhere_too_stays_as_it_is():
    text = """in v0: f32[4,4]
              in v1: f32[4,4]
              v2: f32[4,4] = matmul(v0, v1)
              v3: f32[4,4] = add(v2, v1)
              out v3"""
    assert chosen(text).layouts == (Layout(), Layout())


def test_few_rows_are_staged_and_many_packed_into_scratch():
    few, many = chosen(matmul_text(4, 64, 40, True)), chosen(matmul_text(50, 64, 40, True))
    assert (few.schedule.get("stage_left"), few.scratch) == (1, ())
    assert many.schedule.get("stage_left") == 0
    strip = many.schedule.get("strip")
    assert many.scratch[0].elems == -(-50 // strip) * strip * 64


def test_a_right_operand_is_staged_where_several_strips_read_it_and_it_is_not_ready():
    assert chosen(matmul_text(50, 64, 40, True)).schedule.get("stage_right") == 0
    assert chosen(matmul_text(50, 64, 40, True), bound=()).schedule.get("stage_right") == 1
    assert chosen(q4_text(50, 64, 40), bound=(1, 2, 3)).schedule.get("stage_right") == 1
    assert chosen(q4_text(2, 64, 40), bound=(1, 2, 3)).schedule.get("stage_right") == 0
    tight = replace(AVX2, workgroup_nbytes=4096)
    assert chosen(q4_text(50, 64, 40), (1, 2, 3), tight).schedule.get("stage_right") == 0


def test_batches_of_right_operands_and_sums_of_nothing_are_left_to_other_schedules():
    for text in (BODIES["scores"][0], BODIES["batch_broadcast"][0], matmul_text(3, 0, 4, False),
                 matmul_text(0, 3, 4, False)):  # fmt: skip
        assert choose_panels(canonical_body(parse(text)), AVX2) is None


def _axes(text: str) -> list[set[int | None]]:
    graph = parse(text)
    found: dict[int, set[int | None]] = {}
    product = next(e for e in graph.eqns if e.op == "matmul")
    columns_axes(graph, product.ins[1], found)
    return [found.get(i.var.id, set()) for i in graph.inputs]


def test_the_columns_are_followed_back_to_each_inputs_axis():
    assert _axes(matmul_text(3, 8, 5, True)) == [set(), {0}]
    assert _axes(q4_text(1, 64, 40)) == [set(), {0}, {0}, {0}]
    text = """in v0: f32[4,6]
              in v1: f32[6,5]
              in v2: f32[6,1]
              in v3: f32[2,15]
              v4: f32[6,5] = reshape(v3) shape=(6, 5)
              v5: f32[6,5] = mul(v1, v2)
              v6: f32[6,5] = add(v5, v4)
              v7: f32[4,5] = matmul(v0, v6)
              out v7"""
    assert _axes(text) == [set(), {1}, {None}, {ANOTHER_WAY}]


def test_the_filling_can_be_read_only_where_all_that_differs_by_column_is_packed():
    def body(text: str, bound: tuple[int, ...]) -> Graph:
        made = canonical_body(parse(text), bound)
        assert all(isinstance(made.inputs[n].storage, Weight) for n in bound)
        return made

    whole = body(q4_text(1, 64, 40), (1, 2, 3))
    product = next(e for e in whole.eqns if e.op == "matmul")
    packed = chosen(q4_text(1, 64, 40), bound=(1, 2, 3)).layouts
    assert is_in_panels(whole, product, packed)
    assert not is_in_panels(whole, product, (*packed[:3], Layout()))


def test_folds_that_the_epilogue_needs_are_left_to_other_schedules():
    text = """in v0: f32[4,8]
              in v1: f32[8,6]
              v2: f32[4,1] = reduce(v0) axis=(1,) keepdim=True kind=sum
              v3: f32[4,8] = mul(v0, v2)
              v4: f32[4,6] = matmul(v3, v1)
              v5: f32[4,6] = add(v4, v2)
              out v5"""
    assert choose_panels(canonical_body(parse(text)), AVX2) is None
    early = text.replace("v5: f32[4,6] = add(v4, v2)", "v5: f32[4,6] = neg(v4)")
    assert choose_panels(canonical_body(parse(early)), AVX2) is not None
