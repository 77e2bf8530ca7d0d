"""Pieces of a last axis, and sums of products."""

from __future__ import annotations

import pytest

from poot.ir.text import parse
from poot.passes.engine import Scope
from poot.passes.rope.pieces import Piece, Term, piece_of, terms


def scope_of(text: str):
    graph = parse(text)
    scope = Scope(graph)
    scope.sweep(())
    return scope, graph


@pytest.mark.parametrize(
    "lines, want",
    [
        ("v1: f32[2,4] = slice(v0) start=(0, 4) step=(1, 1) stop=(2, 8)\nout v1", (4, 1, 4)),
        ("v1: f32[2,4] = slice(v0) start=(0, 1) step=(1, 2) stop=(2, 8)\nout v1", (1, 2, 4)),
        (
            """v1: f32[2,4,2] = reshape(v0) shape=(2, 4, 2)
            v2: f32[2,4,1] = slice(v1) start=(0, 0, 1) step=(1, 1, 1) stop=(2, 4, 2)
            v3: f32[2,4] = reshape(v2) shape=(2, 4)
            out v3""",
            (1, 2, 4),
        ),
        (
            """v1: f32[2,2,4] = reshape(v0) shape=(2, 2, 4)
            v2: f32[2,1,4] = slice(v1) start=(0, 1, 0) step=(1, 1, 1) stop=(2, 2, 4)
            v3: f32[2,4] = reshape(v2) shape=(2, 4)
            out v3""",
            (4, 1, 4),
        ),
    ],
)
def test_a_piece_is_found_however_it_was_cut(lines: str, want: tuple[int, int, int]):
    scope, graph = scope_of(f"in v0: f32[2,8]\n{lines}")
    assert piece_of(scope, graph.outputs[0]) == Piece(graph.inputs[0].var, *want)


@pytest.mark.parametrize(
    "lines",
    [
        "v1: f32[1,8] = slice(v0) start=(0, 0) step=(1, 1) stop=(1, 8)\nout v1",
        "v1: f32[2,8] = exp(v0)\nout v1",
        """v1: f32[2,4] = slice(v0) start=(0, 4) step=(1, 1) stop=(2, 8)
        v2: f32[4,2] = reshape(v1) shape=(4, 2)
        out v2""",
        "out v0",
    ],
)
def test_other_values_are_no_piece(lines: str):
    scope, graph = scope_of(f"in v0: f32[2,8]\n{lines}")
    assert piece_of(scope, graph.outputs[0]) is None


def test_a_sum_of_two_products_has_two_terms():
    scope, graph = scope_of(
        """
        in v0: f32[2]
        in v1: f32[2]
        v2: f32[2] = neg(v1)
        v3: f32[2] = mul(v0, v2)
        v4: f32[2] = mul(v1, v1)
        v5: f32[2] = sub(v3, v4)
        out v5
        """
    )
    a, b = (i.var for i in graph.inputs)
    assert terms(scope, graph.outputs[0]) == (Term(-1, (a, b)), Term(-1, (b, b)))


def test_what_is_no_such_sum_is_itself():
    scope, graph = scope_of(
        """
        in v0: f32[2]
        v1: f32[2] = mul(v0, v0)
        v2: f32[2] = mul(v1, v0)
        v3: f32[2] = add(v1, v1)
        v4: f32[2] = add(v3, v0)
        out v2, v4
        """
    )
    cube, three = graph.outputs
    assert terms(scope, cube) == (Term(1, (cube,)),)
    assert terms(scope, three) == (Term(1, (three,)),)
