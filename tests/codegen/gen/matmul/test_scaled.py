"""Which right operands are codes with a scale a run, and which only look like it."""

from __future__ import annotations

from poot.codegen.gen.matmul.scaled import Scaled, scaled_of
from poot.ir.text import parse
from tests.support.products import matmul_text
from tests.support.quantised import q4_text, q8_text


def found(text: str) -> Scaled | None:
    graph = parse(text)
    product = next(e for e in graph.eqns if e.op == "matmul")
    return scaled_of(graph, product.ins[1])


def test_codes_scale_and_minimum_are_told_apart():
    made = found(q4_text(1, 64, 40))
    assert made is not None
    assert made.codes.type.dtype == "f32"
    assert made.scale.type.shape == (40, 2, 1)
    assert made.minimum is not None
    assert [e.op for e in made.path] == ["transpose", "reshape"]


def test_a_scale_alone_has_no_minimum():
    made = found(q8_text(1, 64, 40))
    assert made is not None
    assert made.minimum is None


def test_plain_weights_and_scaled_floats_are_none():
    assert found(matmul_text(1, 8, 4, True)) is None
    text = """in v0: f32[1,8]
              in v1: f32[8,4]
              in v2: f32[1,4]
              v3: f32[8,4] = mul(v1, v2)
              v4: f32[1,4] = matmul(v0, v3)
              out v4"""
    assert found(text) is None


def test_a_product_in_16_bits_keeps_its_roundings():
    text = """in v0: f16[1,8]
              in v1: i8[8,4]
              in v2: f16[1,4]
              v3: f16[8,4] = cast(v1) dtype=f16
              v4: f16[8,4] = mul(v3, v2)
              v5: f16[1,4] = matmul(v0, v4)
              out v5"""
    assert found(text) is None
