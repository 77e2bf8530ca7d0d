"""Patterns: names that stand twice, operands in either order, comparisons from either side."""

from __future__ import annotations

import math

import pytest

from poot.ir.text import parse
from poot.passes.engine import Rule, Scope, rewrite
from poot.passes.selection.pattern import (
    Bind,
    Either,
    Index,
    Number,
    Of,
    Pattern,
    Reshaped,
    is_index,
    match,
    match_eqn,
    number_at,
    var_at,
)

HEAD = "in v0: i32[2,3]\nin v1: i32[2,3]\n"


def found_in(text: str, pattern: Pattern) -> dict[str, object] | None:
    """What a pattern finds in the operand of the graph's last eqn, a neg."""
    got: list[dict[str, object] | None] = []

    def look(eqn, scope: Scope) -> None:
        found = match(scope, eqn.ins[0], pattern)
        got.append(None if found is None else {n: str(v) for n, v in found.items()})

    rewrite(parse(HEAD + text), (Rule("look", ("neg",), look),))
    return got[-1]


PLUS = "v2: i32[2,3] = add(v0, v1)\nv3: i32[2,3] = neg(v2)\nout v3"
LESS = (
    "v2: bool[2,3] = lt(v0, v1)\nv3: i32[2,3] = cast(v2) dtype=i32\nv4: i32[2,3] = neg(v3)\nout v4"
)


def test_a_sum_matches_in_either_order():
    two = Of("add", (Bind("a"), Bind("b")))
    assert found_in(PLUS, two) == {"a": "v0", "b": "v1"}
    assert found_in(PLUS, Of("add", (Of("neg", (Bind("a"),)), Bind("b")))) is None


def test_a_name_that_stands_twice_is_one_value():
    twice = Of("add", (Bind("a"), Bind("a")))
    assert found_in(PLUS, twice) is None
    assert found_in(PLUS.replace("add(v0, v1)", "add(v0, v0)"), twice) == {"a": "v0"}


@pytest.mark.parametrize("op, a, b", [("lt", "v0", "v1"), ("gt", "v1", "v0")])
def test_a_comparison_matches_from_either_side(op, a, b):
    pattern = Of("cast", (Of(op, (Bind("a"), Bind("b"))),))
    assert found_in(LESS, pattern) == {"a": a, "b": b}
    assert found_in(LESS, Of("cast", (Of("le", (Bind("a"), Bind("b"))),))) is None


def test_numbers_are_matched_or_bound():
    text = PLUS.replace("v2: i32", "v5: i32[] = const() dtype=i32 shape=() value=7\nv2: i32", 1)
    text = text.replace("add(v0, v1)", "add(v0, v5)")
    assert found_in(text, Of("add", (Bind("a"), Number(7)))) == {"a": "v0"}
    assert found_in(text, Of("add", (Bind("a"), Number(8)))) is None
    assert found_in(text, Of("add", (Bind("a"), Number("n")))) == {"a": "v0", "n": "7.0"}
    nan = """v2: f32[] = const() dtype=f32 shape=() value=nan
             v3: f32[] = neg(v2)
             out v3"""
    assert found_in(nan, Number(math.nan)) == {}


def test_reshapes_are_passed_and_bound():
    text = """v2: i32[6] = reshape(v0) shape=(6,)
              v3: i32[6,1] = reshape(v2) shape=(6, 1)
              v4: i32[6,1] = neg(v3)
              out v4"""
    assert found_in(text, Reshaped(Bind("a"), "b")) == {"a": "v0", "b": "v3"}


def test_the_first_of_several_that_fits():
    either = Either((Of("mul", (Bind("a"), Bind("b"))), Of("add", (Bind("a"), Bind("b")))))
    assert found_in(PLUS, either) == {"a": "v0", "b": "v1"}


def test_reductions_are_of_a_kind_and_an_axis():
    text = """v2: i32[2,1] = reduce(v0) axis=(1,) keepdim=True kind=max
              v3: i32[2,1] = neg(v2)
              out v3"""
    fold = Of("reduce", (Bind("a"),), kind="max", axis=-1)
    assert found_in(text, fold) == {"a": "v0"}
    assert found_in(text, Of("reduce", (Bind("a"),), kind="min", axis=-1)) is None
    assert found_in(text, Of("reduce", (Bind("a"),), kind="max", axis=-2)) is None


@pytest.mark.parametrize(
    "shape, axis, at, is_one",
    [((1, 5), 1, -1, True), ((2, 5), 1, -1, False), ((5, 1), 0, -2, True), ((5, 1), 0, -1, False)],
)
def test_an_index_runs_along_one_axis_alone(shape, axis, at, is_one):
    dims = ",".join(map(str, shape))
    text = f"""v2: i32[{dims}] = iota() axis={axis} dtype=i32 shape={shape}
               v3: i32[{dims}] = neg(v2)
               out v3"""
    assert (found_in(text, Index(at)) == {}) == is_one


def test_an_eqn_under_rewrite_is_matched_itself():
    got = []

    def look(eqn, scope):
        found = match_eqn(scope, eqn, Of("neg", (Bind("a"),)))
        got.append(found and str(var_at(found, "a")))
        assert not is_index(scope, eqn.ins[0], -1)

    rewrite(parse(HEAD + PLUS), (Rule("look", ("neg",), look),))
    assert got == ["v2"]
    assert number_at({"n": 2.0}, "n") == 2.0
