"""Keys hidden by what compares positions: bounds, lengths from a position, and what is assumed."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import poot
from poot import ops
from poot.ir.graph import Graph
from poot.ir.text import parse
from poot.limits import profile
from poot.ops import Array
from poot.oracle import run
from poot.passes.attention.hides import hides_of, last_hidden
from poot.passes.attention.match import fuse_attention
from poot.passes.attention.scores import Stage
from poot.passes.canonicalize import canonicalize
from poot.passes.engine import Scope
from tests.support.check import assert_same
from tests.support.fused import CLOSE, Rewritten, only, operands, rewritten
from tests.support.traced import normal

B, H, LK, D = 2, 2, 9, 8
INF = math.inf
Mask = Callable[[Array], Array]


def traced(mask: Mask, rows: int = 1, shape: tuple[int, ...] = (), *, top: int | None = None):
    """Attention whose scores `mask` makes of the plain ones and a position in 0..Lk-rows."""

    def fn(q: Array, k: Array, v: Array, pos: Array) -> Array:
        return ops.softmax(mask((q @ k.swapaxes(2, 3)) * 0.3, pos), 3) @ v

    floats = [poot.weight((B, H, n, D), "f32") for n in (rows, LK, LK)]
    top = LK - rows + 1 if top is None else top
    return poot.trace(fn, (*floats, poot.slot(shape, "i32", kind="pos", range=(0, top))))


def feed_of(graph: Graph, pos: object) -> dict[str, object]:
    arrays = [normal(n, *i.var.type.shape) for n, i in enumerate(graph.inputs[:3])]
    return dict(zip("qkv", arrays, strict=True)) | {"pos": np.asarray(pos, np.int32)}


def fuses(graph: Graph, *positions: object) -> Rewritten:
    got = rewritten(graph)
    for pos in positions:
        got.check(feed_of(graph, pos))
    return got


def masks(
    rows: int, start: object, window: int | None = None
) -> dict[str, Callable[[Array], Array]]:
    keep = ops.causal_mask(rows, LK, start=start, window=window)
    return {
        "select": lambda s: ops.where(keep, s, -INF),
        "plane": lambda s: s + ops.additive_mask(keep),
    }


@pytest.mark.parametrize("kind", ["select", "plane"])
@pytest.mark.parametrize("shape", [(), (B,)])
def test_a_decode_visits_the_keys_up_to_its_position(kind: str, shape: tuple[int, ...]):
    graph = traced(lambda s, pos: masks(1, pos)[kind](s), 1, shape)
    got = fuses(graph, np.full(shape, 0), np.full(shape, 4), np.full(shape, LK - 1))
    assert operands(only(got))["len"] == f"i32[{B}]"
    assert "mask" not in operands(only(got))
    assert got.declined == ()


@pytest.mark.parametrize("kind", ["select", "plane"])
def test_a_chunk_visits_the_keys_of_its_last_row_under_its_mask(kind: str):
    got = fuses(traced(lambda s, pos: masks(4, pos)[kind](s), 4), 0, 3, LK - 4)
    assert operands(only(got))["len"] == f"i32[{B}]"
    assert operands(only(got))["mask"].endswith(f"[1,1,4,{LK}]")


def test_a_window_behind_a_position_stays_a_mask():
    got = fuses(traced(lambda s, pos: masks(1, pos, 3)["select"](s)), 0, 5, 8)
    assert operands(only(got))["len"] == f"i32[{B}]"
    assert operands(only(got))["mask"] == f"bool[1,1,1,{LK}]"


def test_an_added_plane_of_a_static_causal_mask_is_a_bound():
    def of(s: Array, pos: Array) -> Array:
        return s + ops.additive_mask(ops.causal_mask(4, LK)) + pos.astype("f32") * 0.0

    got = fuses(traced(of, 4), 0)
    assert only(got).attr("causal") == LK - 4


@pytest.mark.parametrize(
    "top, why",
    [(LK + 1, "a position of Lk"), (None, "")],
)
def test_a_position_that_may_pass_the_cache_bounds_nothing(top: int | None, why: str):
    got = fuses(traced(lambda s, pos: masks(1, pos)["select"](s), 1, top=top), 3, LK - 1)
    assert ("len" in operands(only(got))) == (why == "")
    assert len(got.declined) == (why != "")


def test_a_finite_fill_after_a_hidden_range_brings_it_back():
    def of(s: Array, pos: Array) -> Array:
        keep = ops.causal_mask(1, LK, start=pos)
        s = ops.where(keep, s, -INF)
        return ops.where(ops.iota((1, LK), 1) != 5, s, 2.0)

    got = fuses(traced(of), 0, 8)
    assert got.eqns("attention") == []


@pytest.mark.parametrize("kind", ["user", "pos"])
def test_only_a_declared_position_hides_by_the_scores_alone(kind: str):
    def fn(q: Array, k: Array, v: Array, n: Array) -> Array:
        s = ops.where(ops.iota((1, 1, 1, LK), 3) < n + 1, q @ k.swapaxes(2, 3), -INF)
        return ops.softmax(s, 3) @ v

    floats = [poot.weight((B, H, n, D), "f32") for n in (1, LK, LK)]
    got = rewritten(poot.trace(fn, (*floats, poot.slot((), "i32", kind=kind, range=(0, LK)))))
    assert ("len" in operands(only(got))) == (kind == "pos")
    want = "not live: keys and values past the length are not selected to zero"
    assert got.declined == (() if kind == "pos" else (want,))


def both(graph: Graph) -> tuple[object, object]:
    limits = profile("lavapipe")
    plain = canonicalize(graph, limits).graph
    return tuple(
        next(
            e
            for e in fuse_attention(plain, limits, assume_hidden=a).graph.eqns
            if e.op == "attention"
        )
        for a in (False, True)
    )


@pytest.mark.parametrize("fill", [-1e9, float(np.finfo(np.float32).min), -1e8])
@pytest.mark.parametrize("added", [False, True])
def test_a_finite_fill_hides_only_where_that_is_assumed(fill: float, added: bool):
    def of(s: Array, pos: Array) -> Array:
        keep = ops.causal_mask(1, LK, start=pos)
        return s + ops.additive_mask(keep, fill=fill) if added else ops.where(keep, s, fill)

    graph = traced(of)
    kept, assumed = both(graph)
    assert "mask" in operands(kept)
    assert "len" not in operands(kept)
    assert ("len" in operands(assumed)) == (fill <= -1e9)
    if fill <= -1e9:
        limits = profile("lavapipe")
        after = fuse_attention(canonicalize(graph, limits).graph, limits, assume_hidden=True).graph
        for pos in (0, 5):
            feed = feed_of(graph, pos)
            assert_same(run(graph, feed, f64=True), run(after, feed, f64=True), CLOSE)


def test_what_is_assumed_is_printed():
    limits = profile("lavapipe")
    graph = canonicalize(traced(lambda s, pos: masks(1, pos)["select"](s)), limits).graph
    notes = fuse_attention(graph, limits, assume_hidden=True).notes
    assert "finite masks assumed to hide" in notes[0].what


def test_hidden_to_the_end_means_that_no_later_fill_is_above():
    graph = parse(
        """
        in v0: f32[2,3]
        in v1: bool[2,3]
        out v0
        """
    )
    scope = Scope(graph)
    cond = graph.inputs[1].var

    def select(fill: float) -> Stage:
        return Stage("select", (2, 3), "", fill, cond)

    hides = [hides_of(scope, s) for s in (select(-INF), select(-1e9), select(-INF))]
    assert last_hidden(hides, -INF) == [False, False, True]
    assert last_hidden(hides, -1e9) == [True, True, True]
    added = hides_of(scope, Stage("add", (2, 3), "", operand=graph.inputs[0].var))
    assert added is None
    assert last_hidden([hides[0], added, hides[2]], -INF) == [True, False, True]


@pytest.mark.parametrize("order", ["bias first", "plane first"])
def test_a_plane_in_a_sum_of_masks_bounds_the_keys_and_the_rest_is_the_mask(order: str):
    bias = normal(7, H, 1, LK)

    def mask(s: Array, pos: Array) -> Array:
        plane = ops.additive_mask(ops.causal_mask(1, LK, start=pos))
        return s + (plane + bias if order == "plane first" else bias + plane)

    got = fuses(traced(mask, 1, (B,)), [0, 4], [LK - 1, 2])
    assert operands(only(got))["len"] == f"i32[{B}]"
    assert operands(only(got))["mask"] == f"f32[1,{H},1,{LK}]"
    assert got.eqns("select") == []


def test_a_sum_of_masks_without_a_plane_of_positions_is_one_mask():
    bias, plane = normal(7, H, 1, LK), np.where(normal(8, 1, 1, LK) > 0, 0, -INF)

    def mask(s: Array, pos: Array) -> Array:
        return s + (plane.astype(np.float32) + ops.add(bias, pos.astype("f32")))

    got = fuses(traced(mask), 3)
    assert operands(only(got))["mask"] == f"f32[1,{H},1,{LK}]"
