"""Which comparisons of positions bound the key by the row."""

from __future__ import annotations

import numpy as np
import pytest

from poot.ir.text import parse
from poot.oracle import run
from poot.passes.attention.hidden import Bound, bound_of, conjuncts
from poot.passes.engine import Scope

ROW = "v0: i32[3,1] = iota() axis=0 dtype=i32 shape=(3, 1)\n"
KEY = "v1: i32[5] = iota() axis=0 dtype=i32 shape=(5,)\n"
TWO = "v2: i32[] = const() dtype=i32 shape=() value=2\n"
LAST = "v3: i32[3,1] = add(v0, v2)\n"


def scope_of(text: str) -> tuple[Scope, object]:
    graph = parse(text)
    scope = Scope(graph)
    scope.sweep(())
    return scope, graph.outputs[0]


@pytest.mark.parametrize(
    "cond, want",
    [
        ("le(v1, v3)", Bound(True, 2)),
        ("lt(v1, v3)", Bound(True, 1)),
        ("ge(v3, v1)", Bound(True, 2)),
        ("gt(v1, v0)", Bound(False, 1)),
        ("ge(v1, v3)", Bound(False, 2)),
        ("lt(v0, v1)", Bound(False, 1)),
    ],
)
@pytest.mark.parametrize("holds", [True, False])
def test_a_bound_keeps_the_same_keys_as_the_comparison(cond: str, want: Bound, holds: bool):
    text = f"{ROW}{KEY}{TWO}{LAST}v4: bool[3,5] = {cond}\nout v4"
    scope, out = scope_of(text)
    bound = bound_of(scope, out, holds, (2, 3, 5))
    assert bound is not None
    if holds:
        assert bound == want
    seen = run(parse(text), {}).outputs[0] == holds
    r, t = np.arange(3)[:, None], np.arange(5)
    kept = t <= r + bound.at if bound.is_upper else t >= r + bound.at
    np.testing.assert_array_equal(kept, seen)


def test_one_query_row_is_bounded_by_a_number():
    text = f"{KEY}{TWO}v4: bool[5] = le(v1, v2)\nout v4"
    scope, out = scope_of(text)
    assert bound_of(scope, out, True, (1, 5)) == Bound(True, 2)
    assert bound_of(scope, out, True, (4, 5)) is None, "every row sees the same keys"


@pytest.mark.parametrize(
    "text",
    [
        f"in v9: i32[]\n{ROW}{KEY}v3: i32[3,1] = add(v0, v9)\nv4: bool[3,5] = le(v1, v3)\nout v4",
        f"{ROW}{KEY}{TWO}v3: i32[3,1] = mul(v0, v2)\nv4: bool[3,5] = le(v1, v3)\nout v4",
        f"{ROW}{KEY}v4: bool[3,5] = eq(v1, v0)\nout v4",
        "v0: i32[3,5] = iota() axis=0 dtype=i32 shape=(3, 5)\nv1: bool[3,5] = le(v0, v0)\nout v1",
    ],
)
def test_other_conditions_are_no_bound(text: str):
    scope, out = scope_of(text)
    assert bound_of(scope, out, True, (3, 5)) is None


def test_moves_of_positions_are_followed():
    text = """
        v0: i32[3] = iota() axis=0 dtype=i32 shape=(3,)
        v1: i32[3,1] = reshape(v0) shape=(3, 1)
        v2: i32[5,3] = iota() axis=0 dtype=i32 shape=(5, 3)
        v3: i32[3,5] = transpose(v2) perm=(1, 0)
        v4: i32[3,5] = sub(v3, v1)
        v5: i32[] = const() dtype=i32 shape=() value=1
        v6: bool[3,5] = le(v4, v5)
        v7: bool[1,1,3,5] = reshape(v6) shape=(1, 1, 3, 5)
        out v7
        """
    scope, out = scope_of(text)
    assert bound_of(scope, out, True, (1, 1, 3, 5)) == Bound(True, 1)


def test_ands_and_nots_are_taken_apart():
    text = """
        in v0: bool[2]
        in v1: bool[2]
        in v2: bool[2]
        v3: bool[2] = not(v2)
        v4: bool[2] = or(v1, v3)
        v5: bool[2] = not(v4)
        v6: bool[2] = and(v0, v5)
        out v6
        """
    scope, out = scope_of(text)
    assert [(v.id, h) for v, h in conjuncts(scope, out, True)] == [(0, True), (1, False), (2, True)]
    assert [v.id for v, _ in conjuncts(scope, out, False)] == [6]
