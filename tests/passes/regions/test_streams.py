"""Which products stream, and which rotations turn pairs of their columns."""

from __future__ import annotations

import pytest

from poot.ir.graph import Graph
from poot.ir.text import parse
from poot.limits import PROFILES
from poot.passes.regions.streams import (
    cone_inputs,
    piece_width,
    stream_width,
    turned_pairs,
    why_not_stream,
)
from tests.support.products import BODIES, matmul_text
from tests.support.streams import turned_text

CARD = PROFILES["h200"]


def makers_of(text: str) -> tuple[Graph, dict]:
    graph = parse(text)
    return graph, {v.id: e for e in graph.eqns for v in e.outs}


def products(text: str) -> list:
    graph, makers = makers_of(text)
    return [(makers, e) for e in graph.eqns if e.op == "matmul"]


@pytest.mark.parametrize("dtype, width", [("bf16", 8), ("f16", 8), ("f32", 4)])
def test_a_piece_is_16_bytes(dtype, width):
    ((makers, eqn),) = products(matmul_text(1, 64, 8, True, dtype))
    assert stream_width(makers, eqn, CARD) == width


def test_a_piece_of_codes_shares_a_scale():
    ((makers, eqn),) = products(BODIES["q4_1"][0])
    inputs = cone_inputs(makers, eqn.ins[1])
    assert inputs is not None
    assert piece_width(inputs) == 32
    assert sorted(v.type.dtype for v in inputs) == ["f16", "f16", "u32"]


def test_a_right_operand_that_is_computed_does_not_stream():
    text = """in v0: f32[1,8]
              in v1: f32[8,8]
              v2: f32[8,8] = matmul(v1, v1)
              v3: f32[1,8] = matmul(v0, v2)
              out v3"""
    makers, eqn = products(text)[1]
    assert cone_inputs(makers, eqn.ins[1]) is None
    assert "more than a weight" in why_not_stream(makers, eqn, CARD)
    assert stream_width(makers, eqn, CARD) == 0


def ropes(text: str) -> list:
    graph, makers = makers_of(text)
    return [turned_pairs(makers, e) for e in graph.eqns if e.op == "rope"]


def test_whole_heads_side_by_side_are_turned():
    assert ropes(turned_text(3, False)) == [16, 16]


@pytest.mark.parametrize(
    "change",
    [
        ("in v3: f32[1,8]", "in v3: f32[1,4]", "in v4: f32[1,8]", "in v4: f32[1,4]"),
        ("perm=(0, 2, 1, 3)", "perm=(0, 1, 3, 2)", "f32[1,6,1,16] = t", "f32[1,1,16,6] = t"),
    ],
    ids=["parts of heads", "heads that lie across"],
)
def test_other_rotations_are_not(change):
    text = turned_text(1, False)
    if change[0].startswith("in"):
        for old, new in (change[:2], change[2:]):
            text = text.replace(old, new)
        assert ropes(text) == [0, 0]
        return
    across = """in v0: f32[1,64]
                in v1: f32[64,16]
                in v2: f32[1,8]
                v3: f32[1,16] = matmul(v0, v1)
                v4: f32[1,16,1,1] = reshape(v3) shape=(1, 16, 1, 1)
                v5: f32[1,1,1,16] = transpose(v4) perm=(0, 2, 3, 1)
                v6: f32[1,1,1,16] = rope(v5, v2, v2) interleaved=False
                out v6"""
    assert ropes(across) == [0]


def test_a_rotation_of_an_input_turns_no_products_columns():
    text = """in v0: f32[1,2,1,16]
              in v1: f32[1,8]
              v2: f32[1,2,1,16] = rope(v0, v1, v1) interleaved=False
              out v2"""
    assert ropes(text) == [0]
