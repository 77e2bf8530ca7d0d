"""Which axis of a right operand lies in a row."""

from __future__ import annotations

import pytest

from poot.ir.contiguity import is_summed_axis_in_a_row
from poot.ir.text import parse
from tests.support.products import BODIES, matmul_text


def lies_along_k(text: str) -> bool:
    body = parse(text)
    makers = {v.id: e for e in body.eqns for v in e.outs}
    return is_summed_axis_in_a_row(makers, next(e for e in body.eqns if e.op == "matmul"))


def test_a_transposed_weight_is_summed_along_its_rows():
    assert lies_along_k(matmul_text(1, 64, 32, True))
    assert not lies_along_k(matmul_text(1, 64, 32, False))


@pytest.mark.parametrize(
    "name, along_k", [("q4_1", True), ("scores", True), ("swiglu", True), ("scatter", False)]
)
def test_casts_shifts_reshapes_and_repeated_heads_are_seen_through(name, along_k):
    assert lies_along_k(BODIES[name][0]) is along_k


def test_a_gathered_weight_is_seen_through():
    text = """in v0: f32[2,1,8]
              in v1: f32[5,8,6]
              in v2: i32[2]
              v3: f32[2,8,6] = gather(v1, v2) axis=0
              v4: f32[2,1,6] = matmul(v0, v3)
              out v4"""
    assert not lies_along_k(text)
