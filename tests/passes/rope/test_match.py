"""Rotations recognised in every spelling, and near misses left alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from poot import ops
from poot.limits import profile
from poot.ops import Array
from poot.oracle import run
from poot.passes.canonicalize import canonicalize
from poot.passes.rope.match import fuse_rope
from tests.support.check import assert_same, check_pass
from tests.support.fused import only, rewrite_of, rewritten
from tests.support.traced import graph_of, normal

LIMITS = profile("lavapipe")


def fuse(graph):
    return fuse_rope(canonicalize(graph, LIMITS).graph, LIMITS).graph


def test_turned_halves_become_one_eqn():
    check_pass(
        fuse,
        """
        in v0: f32[2,3,4]
        in v1: f32[3,2]
        in v2: f32[3,2]
        v3: f32[2,3,2] = slice(v0) start=(0, 0, 0) step=(1, 1, 1) stop=(2, 3, 2)
        v4: f32[2,3,2] = slice(v0) start=(0, 0, 2) step=(1, 1, 1) stop=(2, 3, 4)
        v5: f32[2,3,2] = mul(v3, v1)
        v6: f32[2,3,2] = mul(v4, v2)
        v7: f32[2,3,2] = sub(v5, v6)
        v8: f32[2,3,2] = mul(v4, v1)
        v9: f32[2,3,2] = mul(v3, v2)
        v10: f32[2,3,2] = add(v8, v9)
        v11: f32[2,3,4] = concat(v7, v10) axis=2
        out v11
        """,
        """
        in v0: f32[2,3,4]
        in v1: f32[3,2]
        in v2: f32[3,2]
        v3: f32[2,3,4] = rope(v0, v1, v2) interleaved=False
        out v3
        """,
    )


POSITIONS = np.arange(5, dtype=np.int32) * 3


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dim", [8, 6, 2, 16])
def test_the_rope_of_ops_is_recognised_at_full_and_partial_width(interleaved: bool, dim: int):
    def fn(x: Array, p: Array) -> Array:
        return ops.rope(x, p, 10000.0, dim=dim, interleaved=interleaved)

    got = only(rewrite_of(fn, normal(0, 2, 3, 5, 16), POSITIONS), "rope")
    assert dim == 2 or got.attr("interleaved") is interleaved, "one pair is either"
    assert str(got.ins[0].type) == "f32[2,3,5,16]"
    assert str(got.ins[1].type) == f"f32[5,{dim // 2}]"


def halves(x: Array) -> tuple[Array, Array]:
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def table(p: Array, half: int, theta: float = 100.0) -> tuple[Array, Array]:
    rates = (theta ** (-np.arange(half) / half)).astype(np.float32)
    angles = p.astype("f32").reshape(-1, 1) * rates
    return ops.cos(angles), ops.sin(angles)


def rotate_half(x: Array) -> Array:
    a, b = halves(x)
    return ops.concat([-b, a], -1)


def rotate_pairs(x: Array) -> Array:
    a, b = x[..., 0::2], x[..., 1::2]
    return ops.stack([-b, a], -1).reshape(x.shape)


def turned_pairs(x: Array, c: Array, s: Array) -> Array:
    a, b = x[..., 0::2], x[..., 1::2]
    return ops.stack([a * c - b * s, a * s + b * c], -1).reshape(x.shape)


def by_split(x: Array, c: Array, s: Array) -> Array:
    """Pairs split off by a reshape, kept as an axis of their own."""
    pairs = x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2)
    a, b = pairs[..., 0:1], pairs[..., 1:2]
    c, s = (t.reshape(*t.shape, 1) for t in (c, s))
    return ops.concat([a * c - b * s, b * c + a * s], -1).reshape(x.shape)


def twice(t: Array) -> Array:
    return ops.concat([t, t], -1)


def each_twice(t: Array) -> Array:
    return ops.stack([t, t], -1).reshape(*t.shape[:-1], 2 * t.shape[-1])


def spellings() -> dict[str, tuple[Callable[[Array, Array, Array], Array], bool]]:
    """name -> (x and half-wide cos and sin turned, whether by pairs)."""

    def joined(x: Array, c: Array, s: Array) -> Array:
        a, b = halves(x)
        return ops.concat([c * a + -(s * b), a * s + c * b], -1)

    def two_rows(x: Array, c: Array, s: Array) -> Array:
        rows = x.reshape(*x.shape[:-1], 2, x.shape[-1] // 2)
        a, b = rows[..., 0, :], rows[..., 1, :]
        return ops.concat([a * c - b * s, b * c + a * s], -1)

    return {
        "joined halves, factors in any order": (joined, False),
        "halves split by a reshape": (two_rows, False),
        "rotate_half": (lambda x, c, s: x * twice(c) + rotate_half(x) * twice(s), False),
        "rotate_half, sin first": (
            lambda x, c, s: twice(s) * rotate_half(x) + twice(c) * x,
            False,
        ),
        "stacked pairs": (turned_pairs, True),
        "pairs split by a reshape": (by_split, True),
        "rotate_pairs": (
            lambda x, c, s: x * each_twice(c) + rotate_pairs(x) * each_twice(s),
            True,
        ),
        "back by halves": (
            lambda x, c, s: x * twice(c) - rotate_half(x) * twice(s),
            False,
        ),
    }


@pytest.mark.parametrize("name", list(spellings()))
@pytest.mark.parametrize("computed", [True, False])
def test_one_rotation_in_many_spellings(name: str, computed: bool):
    turn, interleaved = spellings()[name]

    def from_positions(x: Array, p: Array) -> Array:
        return turn(x, *table(p, x.shape[-1] // 2))

    x = normal(0, 2, 5, 8)
    if computed:
        got = rewrite_of(from_positions, x, POSITIONS)
    else:
        got = rewrite_of(turn, x, normal(1, 5, 4), normal(2, 5, 4))
    assert only(got, "rope").attr("interleaved") is interleaved
    assert str(only(got, "rope").ins[1].type) == "f32[5,4]"
    assert got.eqns("concat") == []


def test_angles_computed_twice_as_wide_are_computed_half_as_wide():
    """cos(concat(f, f)) as Hugging Face writes it."""

    def fn(x: Array, p: Array) -> Array:
        rates = np.float32([1.0, 0.1, 0.01, 0.001])
        angles = twice(p.astype("f32").reshape(-1, 1) * rates)
        return x * (ops.cos(angles) * 1.5) + rotate_half(x) * (ops.sin(angles) * 1.5)

    got = rewrite_of(fn, normal(0, 2, 3, 5, 8), POSITIONS)
    only(got, "rope")
    assert {str(e.out.type) for e in got.eqns("cos")} == {"f32[5,4]"}


def test_a_table_of_rows_is_cut_where_its_halves_are_equal():
    half = np.cos(np.arange(40, dtype=np.float32)).reshape(10, 4)
    wide = np.concatenate([half, half], -1)

    def fn(x: Array, p: Array) -> Array:
        t = ops.take(wide, p, 0)
        return x * t + rotate_half(x) * t

    only(rewrite_of(fn, normal(0, 2, 3, 5, 8), np.arange(5, dtype=np.int32)), "rope")


def test_a_table_of_unlike_halves_is_declined_with_a_reason():
    wide = normal(3, 10, 8)

    def fn(x: Array, p: Array) -> Array:
        t = ops.take(wide, p, 0)
        return x * t + rotate_half(x) * t

    got = rewrite_of(fn, normal(0, 2, 3, 5, 8), np.arange(5, dtype=np.int32))
    assert got.eqns("rope") == []
    assert got.declined == ("not fused: the two halves of cos can't be proved equal",)


def test_a_table_given_at_run_time_is_declined():
    def fn(x: Array, c: Array, s: Array) -> Array:
        return x * c + rotate_half(x) * s

    got = rewrite_of(fn, normal(0, 2, 5, 8), normal(1, 5, 8), normal(2, 5, 8))
    assert got.eqns("rope") == []
    assert "cos can't be proved" in got.declined[0]


@pytest.mark.parametrize(
    "turn",
    [
        pytest.param(lambda a, b, c, s: (a * c + b * s, b * c + a * s), id="two pluses"),
        pytest.param(lambda a, b, c, s: (a * c - b * s, b * s + a * c), id="cos and sin mixed up"),
        pytest.param(lambda a, b, c, s: (a * c - a * s, b * c + b * s), id="one piece only"),
        pytest.param(lambda a, b, c, s: (b * c + a * s, a * c - b * s), id="halves swapped"),
    ],
)
def test_what_is_no_rotation_stays(turn: Callable[..., tuple[Array, Array]]):
    def fn(x: Array, c: Array, s: Array) -> Array:
        return ops.concat(list(turn(*halves(x), c, s)), -1)

    got = rewrite_of(fn, normal(0, 2, 5, 8), normal(1, 5, 4), normal(2, 5, 4))
    assert got.eqns("rope") == []


def test_halves_and_pairs_are_not_mixed_up():
    """Case 66: x = (1, 2, 3, 4) at position 1 with theta (1, 0.01)."""
    x = np.float32([[1, 2, 3, 4]])
    angles = np.float64([1.0, 0.01])
    c, s = np.cos(angles), np.sin(angles)
    adjacent = [1 * c[0] - 2 * s[0], 2 * c[0] + 1 * s[0], 3 * c[1] - 4 * s[1], 4 * c[1] + 3 * s[1]]
    apart = [1 * c[0] - 3 * s[0], 2 * c[1] - 4 * s[1], 3 * c[0] + 1 * s[0], 4 * c[1] + 2 * s[1]]
    for interleaved, want in ((True, adjacent), (False, apart)):

        def fn(x: Array, p: Array, interleaved: bool = interleaved) -> Array:
            return ops.rope(x, p, 10000.0, interleaved=interleaved)

        graph = graph_of(fn, x, np.int32([1]))
        got = rewritten(graph)
        only(got, "rope")
        names = [i.name for i in graph.inputs]
        out = run(got.after, dict(zip(names, (x, np.int32([1])), strict=False))).outputs[0]
        np.testing.assert_allclose(out[0], want, rtol=0, atol=1e-6)


def test_elements_past_a_partial_width_keep_every_bit():
    """Case 67: D = 80, rotary 32."""
    x = normal(0, 1, 5, 80)

    def fn(x: Array, p: Array) -> Array:
        return ops.rope(x, p, 10000.0, dim=32)

    graph = graph_of(fn, x, POSITIONS)
    got = rewritten(graph)
    only(got, "rope")
    names = [i.name for i in graph.inputs]
    out = run(got.after, dict(zip(names, (x, POSITIONS), strict=False))).outputs[0]
    np.testing.assert_array_equal(out[..., 32:], x[..., 32:])
    norms = np.linalg.norm(out[..., :32], axis=-1), np.linalg.norm(x[..., :32], axis=-1)
    np.testing.assert_allclose(*norms, rtol=1e-5)


def test_a_part_in_the_middle_is_turned_where_it_lies():
    def fn(x: Array, c: Array, s: Array) -> Array:
        a, b = halves(x[..., 4:12])
        return ops.concat([x[..., :4], a * c - b * s, b * c + a * s, x[..., 12:]], -1)

    got = rewrite_of(fn, normal(0, 5, 16), normal(1, 5, 4), normal(2, 5, 4))
    eqn = only(got, "rope")
    assert str(eqn.ins[0].type) == "f32[5,12]"


def test_16_bit_rotations_get_f32_intermediates():
    def fn(x: Array, c: Array, s: Array) -> Array:
        return x * twice(c) + rotate_half(x) * twice(s)

    arrays = (normal(0, 2, 5, 8), normal(1, 5, 4), normal(2, 5, 4))
    arrays = tuple(x.astype(np.float16) for x in arrays)
    graph = graph_of(fn, *arrays)
    got = rewritten(graph)
    only(got, "rope")
    feed = dict(zip([i.name for i in graph.inputs], arrays, strict=True))
    assert_same(run(graph, feed), run(got.after, feed), 2e-3)


def test_angles_that_stretch_x_are_declined():
    def fn(x: Array, c: Array, s: Array) -> Array:
        a, b = halves(x)
        return ops.concat([a * c - b * s, b * c + a * s], -1)

    got = rewrite_of(fn, normal(0, 1, 8), normal(1, 5, 4), normal(2, 5, 4))
    assert got.eqns("rope") == []
    assert "not fused" in got.declined[0]
