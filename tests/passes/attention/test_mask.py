"""Masks of every shape and kind, and what their combinations become."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from poot import ops
from poot.ops import Array
from poot.oracle import run
from tests.support.attention import reference
from tests.support.check import assert_same
from tests.support.fused import CLOSE, only, operands, rewrite_of, rewritten
from tests.support.tol import tolerance
from tests.support.traced import graph_of, normal

INF = math.inf
B, HQ, HKV, LQ, LK = 2, 6, 2, 35, 50


def attend(change: Callable[..., Array]) -> Callable[..., Array]:
    """Attention of the first three arguments, the scores changed by the rest."""

    def fn(q: Array, k: Array, v: Array, *masks: Array) -> Array:
        k, v = (ops.repeat_kv(x, q.shape[1] // x.shape[1]) for x in (k, v))
        scores = change((q @ k.swapaxes(2, 3)) * 0.3, *masks)
        return ops.softmax(scores, 3) @ v

    return fn


def qkv(lq: int = LQ, lk: int = LK, dtype: str = "f32") -> tuple[np.ndarray, ...]:
    shapes = ((B, HQ, lq, 8), (B, HKV, lk, 8), (B, HKV, lk, 4))
    return tuple(normal(n, *shape, dtype=dtype) for n, shape in enumerate(shapes))


@pytest.mark.parametrize(
    "shape",
    [
        (LQ, LK),
        (1, LK),
        (LQ, 1),
        (1, 1),
        (),
        (LK,),
        (B, 1, 1, LK),
        (1, HQ, LQ, LK),
        (B, 1, LQ, 1),
        (B, HQ, LQ, LK),
        (HQ, 1, 1),
    ],
)
def test_a_mask_of_any_shape_is_the_expanded_mask(shape: tuple[int, ...]):
    mask = normal(9, *shape)
    got = only(rewrite_of(attend(lambda s, m: s + m), *qkv(), np.asarray(mask)))
    padded = (1,) * (4 - len(shape)) + shape
    assert operands(got)["mask"] == f"f32[{','.join(map(str, padded))}]"
    keep = np.asarray(mask) > -1
    got = only(rewrite_of(attend(lambda s, m: ops.where(m > -1, s, -1e9)), *qkv(), mask))
    assert got.attr("mask_fill") == -1e9
    assert keep.shape == shape


def test_either_polarity_keeps_its_own_keys():
    """Case 12."""
    keep = np.ones((5, 5), bool)
    keep[0] = [False, False, False, True, False]
    arrays = qkv(5, 5)
    bits = keep.astype(np.int32)
    outs: list[np.ndarray] = []
    for swap in (False, True):
        fn = attend(lambda s, m, swap=swap: ops.where(m == 1, *((-INF, s) if swap else (s, -INF))))
        graph = graph_of(fn, *arrays, bits)
        got = rewritten(graph)
        assert len(got.eqns("attention")) == 1
        feed = dict(zip([i.name for i in graph.inputs], (*arrays, bits), strict=True))
        want, ours = run(graph, feed), run(got.after, feed)
        assert_same(want, ours, CLOSE)
        outs.append(ours.outputs[0])
    assert np.isnan(outs[1]).any() != np.isnan(outs[0]).any()


def test_added_masks_become_their_sum():
    got = only(
        rewrite_of(
            attend(lambda s, a, b: s + a - b), *qkv(), normal(4, B, 1, 1, LK), normal(5, HQ, 1, 1)
        )
    )
    assert operands(got)["mask"] == f"f32[{B},{HQ},1,{LK}]"


def test_selects_to_one_number_become_one_mask():
    fn = attend(lambda s, a, b: ops.where(b > 0, -INF, ops.where(a > 0, s, -INF)))
    a, b = np.abs(normal(4, B, 1, 1, LK)), -np.abs(normal(5, LQ, LK))
    got = only(rewrite_of(fn, *qkv(), a, b))
    assert operands(got)["mask"] == f"bool[{B},1,{LQ},{LK}]"


def test_a_bias_before_a_select_stands_beside_the_mask():
    """Case 8: cap, then bias, then mask."""
    fn = attend(lambda s, a, b: ops.where(b > -1, ops.softcap(s, 30.0) + a, -INF))
    got = only(rewrite_of(fn, *qkv(), normal(4, HQ, LQ, LK), normal(5, LQ, LK)))
    assert operands(got)["bias"] == f"f32[1,{HQ},{LQ},{LK}]"
    assert operands(got)["mask"] == f"bool[1,1,{LQ},{LK}]"
    assert got.attr("softcap") == 30.0


@pytest.mark.parametrize("dead", [math.nan, INF, -INF, 1e30])
def test_what_a_hidden_key_holds_does_not_matter_under_a_select(dead: float):
    """Case 9, the key's half."""
    q, k, v = qkv(3, 4)
    keep = np.array([1, 1, 0, 1], np.int32)
    graph = graph_of(attend(lambda s, m: ops.where(m == 1, s, -INF)), q, k, v, keep)
    fused = rewritten(graph).after
    outs: list[np.ndarray] = []
    for value in (0.0, dead):
        k = k.copy()
        k[:, :, 2] = value
        feed = dict(zip([i.name for i in graph.inputs], (q, k, v, keep), strict=True))
        outs.append(run(fused, feed).outputs[0])
    np.testing.assert_array_equal(outs[0], outs[1])
    assert np.isfinite(outs[0]).all()


@pytest.mark.parametrize("lq, lk", [(2, 5), (5, 2), (1, 9), (4, 4)])
@pytest.mark.parametrize("window", [None, 1, 3])
def test_a_causal_select_becomes_its_bound(lq: int, lk: int, window: int | None):
    """Cases 53, 54 and 58."""

    def fn(q: Array, k: Array, v: Array) -> Array:
        out = ops.attention_prefill(q, k, v, scale=0.5, window=window)
        assert isinstance(out, Array)
        return out

    arrays = qkv(lq, lk)
    graph = graph_of(fn, *arrays)
    got = rewritten(graph)
    eqn = only(got)
    assert "mask" not in operands(eqn)
    assert eqn.attr("causal") == lk - lq
    assert eqn.attr("window") == window
    feed = dict(zip([i.name for i in graph.inputs], arrays, strict=True))
    assert_same(run(graph, feed, f64=True), run(got.after, feed, f64=True), CLOSE)


def test_a_lower_triangle_at_the_top_left_keeps_its_own_meaning():
    """Case 53: the other alignment."""
    fn = attend(lambda s: ops.where(ops.causal_mask(5, 9, 0), s, -INF))
    assert only(rewrite_of(fn, *qkv(5, 9))).attr("causal") == 0


def test_causal_beside_an_added_mask_needs_no_bool_mask():
    def fn(q: Array, k: Array, v: Array) -> Array:
        bias = ops.alibi_bias(ops.alibi_slopes(HQ), LQ, LK)
        out = ops.attention_prefill(q, k, v, scale=0.5, mask=bias)
        assert isinstance(out, Array)
        return out

    got = only(rewrite_of(fn, *qkv()))
    assert list(operands(got)) == ["q", "k", "v", "mask"]
    assert got.attr("causal") == LK - LQ


def test_a_finite_causal_fill_is_a_mask_and_no_bound():
    fn = attend(lambda s: ops.where(ops.causal_mask(LQ, LK), s, -1e9))
    got = only(rewrite_of(fn, *qkv()))
    assert got.attr("causal") is None
    assert operands(got)["mask"] == f"bool[1,1,{LQ},{LK}]"


def test_a_position_that_comes_at_run_time_is_a_mask():
    fn = attend(lambda s, p: ops.where(ops.causal_mask(LQ, LK, p), s, -INF))
    got = only(rewrite_of(fn, *qkv(), np.asarray(11, np.int32)))
    assert operands(got)["mask"] == f"bool[1,1,{LQ},{LK}]"
    assert got.attr("causal") is None


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_finite_minima_added_twice_leave_live_rows_alone(dtype: str):
    """Case 5: causal and padding planes of finfo.min, summed before they are added."""
    least = {"f16": -65504.0, "bf16": -3.3895313892515355e38}.get(dtype, -3.4028234663852886e38)
    length, padding = 8, 3
    keys = np.arange(length)
    causal = np.where(keys[:, None] >= keys, 0.0, least).astype(np.float32)
    pad = np.where(keys >= padding, 0.0, least).astype(np.float32).reshape(1, 1, 1, -1)

    def fn(q: Array, k: Array, v: Array, a: Array, b: Array) -> Array:
        mask = a.astype(dtype) + b.astype(dtype)
        k, v = (ops.repeat_kv(x, HQ // HKV) for x in (k, v))
        return ops.softmax((q @ k.swapaxes(2, 3)) * 0.5 + mask, 3) @ v

    arrays = (*qkv(length, length, dtype), causal, pad)
    graph = graph_of(fn, *arrays)
    feed = dict(zip([i.name for i in graph.inputs], arrays, strict=True))
    got = rewritten(graph)
    only(got)
    out = run(got.after, feed).outputs[0].astype(np.float64)
    assert np.isfinite(out[:, :, padding:]).all()
    keep = (keys[:, None] >= keys) & (keys >= padding)
    want = reference(*(np.asarray(x, np.float64) for x in arrays[:3]), 0.5, keep=keep)[0]
    tol = tolerance("attention", dtype).within_abs
    np.testing.assert_allclose(out[:, :, padding:], want[:, :, padding:], rtol=0, atol=tol)


def test_an_empty_row_is_nan_as_in_the_chain_and_touches_no_other():
    """Case 1."""
    for dtype in ("f32", "f16"):
        keep = np.zeros((8, 8), np.int32)
        keep[:4, :4] = 1
        arrays = (*qkv(8, 8, dtype), keep)
        graph = graph_of(attend(lambda s, m: ops.where(m == 1, s, -INF)), *arrays)
        feed = dict(zip([i.name for i in graph.inputs], arrays, strict=True))
        out = run(rewritten(graph).after, feed).outputs[0].astype(np.float32)
        assert np.isnan(out[:, :, 4:]).all()
        assert np.isfinite(out[:, :, :4]).all()
