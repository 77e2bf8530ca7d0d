"""Which products go to matrix units, in which parts and tiles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poot.codegen.kir.frags import AMD_FAMILIES
from poot.ir.graph import Graph
from poot.ir.text import parse
from poot.limits import profile
from poot.planner.matrix import (
    choose_matrix,
    exact_dtype,
    family_of,
    left_scratch,
    pairs_of,
    precision_of,
    together,
)
from poot.planner.request import Schedule
from tests.support.matrix import AMPERE, H200, Form


def chosen(text: str, limits=H200) -> Schedule | str:
    body = parse(text)
    found = choose_matrix(body, _products(body), (), limits)
    return found if isinstance(found, str) else found[0]


def _products(body: Graph):
    return [e for e in body.eqns if e.op == "matmul"]


@pytest.mark.parametrize(
    "x, weight, dtype, parts",
    [
        ("bf16", "bf16", "bf16", (1, 1)),
        ("f16", "f16", "f16", (1, 1)),
        ("f32", "bf16", "bf16", (3, 1)),
        ("f32", "f16", "bf16", (3, 2)),
        ("f32", "f32", "bf16", (3, 3)),
        ("f32", "f8e4m3", "bf16", (3, 1)),
    ],
)
def test_parts_hold_what_the_operands_hold(x, weight, dtype, parts):
    body = parse(Form(70, 64, 64, x, weight).text())
    found = precision_of({v.id: e for e in body.eqns for v in e.outs}, _products(body))
    assert (found.dtype, (found.left, found.right)) == (dtype, parts)


def test_products_below_f32s_last_place_are_left_out():
    assert pairs_of(3, 3) == ((0, 2), (1, 1), (2, 0), (0, 1), (1, 0), (0, 0))
    assert pairs_of(3, 1) == ((2, 0), (1, 0), (0, 0))


def test_a_value_that_was_rounded_is_as_narrow_as_that():
    body = parse(
        """in v0: f32[4,4]
           v1: bf16[4,4] = cast(v0) dtype=bf16
           v2: f32[4,4] = cast(v1) dtype=f32
           v3: f16[4,4] = cast(v1) dtype=f16
           v4: f32[4,4] = cast(v3) dtype=f32
           v5: f32[4,4] = add(v2, v4)
           out v5"""
    )
    makers = {v.id: e for e in body.eqns for v in e.outs}
    dtypes = [exact_dtype(makers, e.out) for e in body.eqns]
    assert dtypes == ["bf16", "bf16", "f16", "f16", "f32"]


def test_fragments_are_those_that_the_emitter_knows():
    of_wave = {64: profile("mi300x"), 32: profile("rdna3")}
    for family, (wave, archs) in AMD_FAMILIES.items():
        assert {family_of(replace(of_wave[wave], arch=arch)) for arch in archs} == {family}
        assert family_of(replace(of_wave[96 - wave], arch=archs[0])) == ""
    found = [family_of(profile(n)) for n in ("h200", "mi300x", "rdna3", "lavapipe", "cpu-avx2")]
    assert found == ["mma", "mfma", "wmma", "", ""]
    assert family_of(replace(H200, has_matrix_units=False)) == ""


@pytest.mark.parametrize(
    "form, limits, words",
    [
        (Form(8, 64, 64), H200, "little work"),
        (Form(70, 64, 32), H200, "little work"),
        (Form(70, 64, 64), profile("lavapipe"), "no matrix units"),
    ],
)
def test_a_step_stays_away_with_a_reason(form, limits, words):
    assert words in str(chosen(form.text(), limits))


def test_a_fold_before_the_products_stays_away():
    text = """in v0: f32[70,64]
              in v1: f32[64,64]
              v2: f32[70,1] = reduce(v0) axis=(1,) keepdim=True kind=max
              v3: f32[70,64] = sub(v0, v2)
              v4: f32[70,64] = matmul(v3, v1)
              out v4"""
    assert "fold" in str(chosen(text))


@pytest.mark.parametrize(
    "form, want",
    [
        (Form(4096, 4096, 4096), {"tile_m": 128, "tile_n": 256, "stages": 4, "swapped": 0}),
        (Form(16, 4096, 4096, "f32"), {"tile_m": 64, "tile_n": 16, "swapped": 1}),
        (Form(64, 4096, 4096, is_turned=True), {"tile_m": 64, "tile_n": 64, "swapped": 0}),
        (Form(512, 4096, 4096, "f32"), {"tile_m": 64, "tile_n": 256, "swapped": 0}),
    ],
    ids=str,
)
def test_tiles_fill_the_device(form, want):
    found = chosen(form.text())
    assert isinstance(found, Schedule)
    assert want.items() <= dict(found.params).items()


def test_a_small_workgroup_memory_takes_smaller_tiles():
    found = [chosen(Form(512, 256, 256, "f32", "f32").text(), AMPERE),
             chosen(Form(512, 256, 256).text(), profile("rdna3"))]  # fmt: skip
    assert all(isinstance(f, Schedule) and f.name == "matrix" for f in found)
    tiny = replace(H200, workgroup_nbytes=16384)
    assert "fits 16384 bytes" in str(chosen(Form(512, 256, 256).text(), tiny))


def test_products_that_outputs_share_are_counted_together():
    text = Form(70, 64, 64, "f32", is_double=True).text()
    body = parse(text)
    assert together(body, _products(body), ()) == 2
    apart = parse(text.replace("out v40", "out v12, v22"))
    assert together(apart, _products(apart), ()) == 1


def test_a_left_operand_that_no_input_holds_has_scratch():
    assert left_scratch(parse(Form(70, 72, 64).text())) == ()
    (scratch,) = left_scratch(parse(Form(70, 70, 64, "f32").text()))
    assert (scratch.dtype, scratch.elems) == ("bf16", 3 * 70 * 72)


def test_parts_that_spill_on_wmma_are_left_to_gemm():
    assert "WMMA" in str(chosen(Form(512, 256, 256, "f32", "f32").text(), profile("rdna3")))
