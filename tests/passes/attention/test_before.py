"""Claims that a position comes before a limit, followed through moves."""

from __future__ import annotations

import pytest

from poot.ir.text import parse
from poot.passes.attention.before import Before, before_of, zeroed_view
from poot.passes.engine import Scope


def claim(condition: str, *, holds: bool = True) -> Before | None:
    """What a comparison of keys v1 [1,1,1,7] and lengths v3 [2,1,1,1] claims of [2,1,1,7]."""
    graph = parse(
        f"""
        slot v0: i32[2] "n" range=(1, 8)
        v1: i32[1,1,1,7] = iota() axis=3 dtype=i32 shape=(1, 1, 1, 7)
        v2: i32[] = const() dtype=i32 shape=() value=2
        v3: i32[2,1,1,1] = reshape(v0) shape=(2, 1, 1, 1)
        v4: i32[1,1,1,7] = add(v1, v2)
        v5: i32[2,1,1,1] = sub(v3, v2)
        v6: i32[1,1,1,7] = mul(v1, v2)
        v7: bool[2,1,1,7] = {condition}
        out v7
        """
    )
    scope = Scope(graph)
    scope.sweep(())
    return before_of(scope, graph.outputs[0], holds, (2, 1, 1, 7))


STEPS = (((2, 0),), (), (), ((7, 1),))
LIES = (((2, 1),), (), (), ((7, 0),))


@pytest.mark.parametrize(
    "text, holds, at",
    [
        ("lt(v1, v3)", True, 0),
        ("le(v1, v3)", True, 1),
        ("gt(v3, v1)", True, 0),
        ("ge(v3, v1)", True, 1),
        ("ge(v1, v3)", False, 0),
        ("gt(v1, v3)", False, 1),
        ("lt(v4, v3)", True, -2),
        ("lt(v1, v5)", True, -2),
        ("le(v4, v5)", True, -3),
    ],
)
def test_every_spelling_of_before_is_one_claim(text: str, holds: bool, at: int):
    got = claim(text, holds=holds)
    assert got is not None
    assert (got.limit.id, got.steps, got.lies, got.at) == (0, STEPS, LIES, at)


@pytest.mark.parametrize(
    "text, holds",
    [("gt(v1, v3)", True), ("lt(v1, v3)", False), ("eq(v1, v3)", True), ("lt(v3, v1)", True)],
)
def test_what_claims_no_such_thing_is_none(text: str, holds: bool):
    assert claim(text, holds=holds) is None


def test_a_position_in_other_steps_is_none_of_ours():
    """2t < n: what multiplies is not followed, and a value that has keys of its own is the limit's
    other side."""
    assert claim("lt(v6, v3)") is None


def test_a_claim_follows_the_moves_of_what_it_is_about():
    graph = parse(
        """
        in v0: f32[2,3,7,4]
        slot v1: i32[2] "n" range=(1, 8)
        v2: i32[1,1,7,1] = iota() axis=2 dtype=i32 shape=(1, 1, 7, 1)
        v3: i32[2,1,1,1] = reshape(v1) shape=(2, 1, 1, 1)
        v4: bool[2,1,7,1] = lt(v2, v3)
        v5: f32[] = const() dtype=f32 shape=() value=0.0
        v6: f32[2,3,7,4] = select(v4, v0, v5)
        v7: f32[2,3,1,7,4] = reshape(v6) shape=(2, 3, 1, 7, 4)
        v8: f32[2,3,2,7,4] = broadcast(v7) shape=(2, 3, 2, 7, 4)
        v9: f32[2,6,7,4] = reshape(v8) shape=(2, 6, 7, 4)
        v10: f32[2,6,4,7] = transpose(v9) perm=(0, 1, 3, 2)
        out v10
        """
    )
    scope = Scope(graph)
    scope.sweep(())
    got = zeroed_view(scope, graph.outputs[0])
    assert got.view.base.id == 0
    assert got.view.axes == (((2, 84),), ((3, 28), (2, 0)), ((4, 1),), ((7, 4),))
    (found,) = got.claims
    assert found.steps == (((2, 0),), ((6, 0),), ((4, 0),), ((7, 1),))
    assert found.lies == (((2, 1),), ((6, 0),), ((4, 0),), ((7, 0),))


@pytest.mark.parametrize("fill", ["1.0", "-inf"])
def test_a_select_of_another_number_is_looked_at_no_further(fill: str):
    graph = parse(
        f"""
        in v0: f32[7]
        slot v1: i32[] "n" range=(1, 8)
        v2: i32[7] = iota() axis=0 dtype=i32 shape=(7,)
        v3: bool[7] = lt(v2, v1)
        v4: f32[] = const() dtype=f32 shape=() value={fill}
        v5: f32[7] = select(v3, v0, v4)
        out v5
        """
    )
    scope = Scope(graph)
    scope.sweep(())
    got = zeroed_view(scope, graph.outputs[0])
    assert got.view.base.id == 5
    assert got.claims == ()


def test_numbers_near_the_end_of_i32_claim_nothing():
    text = """
        slot v0: i32[] "n" range=(1, 8)
        v1: i32[7] = iota() axis=0 dtype=i32 shape=(7,)
        v2: i32[] = const() dtype=i32 shape=() value=2147483640
        v3: i32[7] = add(v1, v2)
        v4: bool[7] = lt(v3, v0)
        out v4
        """
    graph = parse(text)
    scope = Scope(graph)
    scope.sweep(())
    assert before_of(scope, graph.outputs[0], True, (7,)) is None
