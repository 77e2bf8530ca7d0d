"""Attention's compositions against an independent f64 reference, and the hard cases."""

from __future__ import annotations

import math

import numpy as np
import pytest

import poot
from poot import ops
from poot.errors import TypeRuleError
from poot.ir.graph import Graph
from poot.oracle import run
from tests.support.traced import evaluate, graph_of, normal, value

INF = math.inf


def reference(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    scale: float,
    *,
    cap: float | None = None,
    add: np.ndarray | float = 0.0,
    keep: np.ndarray | bool = True,
    sink: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(out, log-sum-exp) in f64, one head at a time."""
    batch, heads, rows, _ = q.shape
    group = heads // k.shape[1]
    out = np.empty((batch, heads, rows, v.shape[3]))
    lse = np.empty((batch, heads, rows))
    keep = np.broadcast_to(keep, (batch, heads, rows, k.shape[2]))
    add = np.broadcast_to(add, keep.shape)
    with np.errstate(all="ignore"):
        for b in range(batch):
            for h in range(heads):
                g = h // group
                s = q[b, h].astype(float) @ k[b, g].astype(float).T * scale
                s = s if cap is None else cap * np.tanh(s / cap)
                s = np.where(keep[b, h], s + add[b, h], -INF)
                top = s.max(-1, keepdims=True)
                if sink is not None:
                    top = np.maximum(top, sink[h])
                e = np.exp(s - top)
                total = e.sum(-1, keepdims=True)
                lse[b, h] = np.where(np.isinf(s).all(-1), -INF, (np.log(total) + top)[:, 0])
                if sink is not None:
                    total = total + np.exp(sink[h] - top)
                out[b, h] = e / total @ v[b, g].astype(float)
    return out, lse


def qkv(
    b: int, hq: int, hkv: int, lq: int, lk: int, dk: int, dv: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return normal(0, b, hq, lq, dk), normal(1, b, hkv, lk, dk), normal(2, b, hkv, lk, dv)


def close(got: object, want: object, atol: float = 2e-5) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=atol)


def bottom_right(rows: int, keys: int) -> np.ndarray:
    return np.arange(keys) <= np.arange(rows)[:, None] + keys - rows


@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1, 1, 1, 1, 1), (2, 6, 2, 5, 7, 8, 3), (1, 9, 3, 1, 33, 64, 64), (1, 7, 1, 3, 4, 5, 9)],
)
def test_masked_attention_is_its_formula(shape: tuple[int, ...]):
    q, k, v = qkv(*shape)
    b, h, _, lq, lk, _, _ = shape
    mask = normal(3, b, h, lq, lk)
    sink = normal(4, h)

    def fn(q: object, k: object, v: object, mask: object, sink: object) -> object:
        plain = ops.attention_masked(q, k, v, mask=None, scale=0.3)
        added = ops.attention_masked(q, k, v, mask=mask, scale=0.3, softcap=2.0, return_lse=True)
        sunk = ops.attention_masked(q, k, v, mask=mask, scale=0.3, sink=sink, return_lse=True)
        return plain, added, sunk

    plain, added, sunk = evaluate(fn, q, k, v, mask, sink)
    close(plain, reference(q, k, v, 0.3)[0])
    for got, want in zip(added, reference(q, k, v, 0.3, cap=2.0, add=mask), strict=True):
        close(got, want)
    for got, want in zip(sunk, reference(q, k, v, 0.3, add=mask, sink=sink), strict=True):
        close(got, want)


def test_the_chain_is_the_ten_primitives():
    q, k, v = qkv(1, 4, 2, 1, 8, 16, 16)
    mask = normal(3, 1, 1, 1, 8)
    graph = graph_of(
        lambda q, k, v, m: ops.attention_masked(q, k, v, mask=m, scale=0.25), q, k, v, mask
    )
    repeat = ["reshape", "broadcast", "reshape"]
    scores = ["transpose", "matmul", "const", "mul", "add"]
    softmax = ["reduce", "sub", "exp", "reduce", "div"]
    assert [e.op for e in graph.eqns] == [*repeat, *repeat, *scores, *softmax, "matmul"]


def test_case_48_a_key_head_serves_its_group():
    for heads, kv_heads in ((12, 3), (64, 8), (28, 4)):
        q, k, _ = qkv(1, heads, kv_heads, 1, 4, 2, 2)
        v = np.broadcast_to(np.arange(kv_heads, dtype=np.float32)[:, None, None], k.shape).copy()
        got = value(lambda q, k, v: ops.attention_prefill(q, k, v, scale=1.0), q, k, v)
        np.testing.assert_allclose(
            got[0, :, 0, 0], np.arange(heads) // (heads // kv_heads), rtol=1e-6
        )


@pytest.mark.parametrize(
    "shape",
    [
        (35, 50),
        (1, 50),
        (35, 1),
        (1, 1),
        (2, 1, 1, 50),
        (1, 6, 35, 50),
        (2, 1, 35, 1),
        (50,),
        (2, 6, 35, 50),
        (),
    ],
)
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_case_51_masks_broadcast_as_if_expanded(shape: tuple[int, ...], kind: str):
    q, k, v = qkv(2, 6, 2, 35, 50, 8, 8)
    full = (2, 6, 35, 50)
    if kind == "bool":
        mask = np.asarray(np.random.default_rng(3).random(shape) < 0.7)
        if shape:
            mask[..., :1] = True
        want = reference(q, k, v, 0.35, keep=np.broadcast_to(mask, full))[0]
    else:
        mask = np.asarray(np.random.default_rng(3).standard_normal(shape), np.float32)
        want = reference(q, k, v, 0.35, add=np.broadcast_to(mask, full))[0]
    got = value(lambda q, k, v, m: ops.attention_masked(q, k, v, mask=m, scale=0.35), q, k, v, mask)
    close(got, want)


def test_case_53_causal_is_aligned_at_the_bottom_right():
    assert value(lambda x: ops.causal_mask(2, 5), normal(0, 1)).astype(int).tolist() == [
        [1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1],
    ]
    assert value(lambda x: ops.causal_mask(1, 9), normal(0, 1)).all()
    q, k, v = qkv(2, 4, 2, 3, 7, 8, 8)
    got = value(lambda q, k, v: ops.attention_prefill(q, k, v, scale=0.3), q, k, v)
    close(got, reference(q, k, v, 0.3, keep=bottom_right(3, 7))[0])


def test_case_53_a_top_left_constant_keeps_its_own_meaning():
    q, k, v = qkv(1, 2, 2, 3, 7, 8, 8)
    top_left = np.tril(np.ones((3, 7), bool))
    got = value(lambda q, k, v: ops.attention_masked(q, k, v, mask=top_left, scale=0.3), q, k, v)
    close(got, reference(q, k, v, 0.3, keep=top_left)[0])


def test_case_54_rows_before_the_first_key_are_nan_and_alone():
    q, k, v = qkv(1, 2, 1, 5, 2, 4, 4)
    out, lse = evaluate(
        lambda q, k, v: ops.attention_prefill(q, k, v, scale=0.5, return_lse=True), q, k, v
    )
    assert np.isnan(out[:, :, :3]).all()
    np.testing.assert_array_equal(lse[:, :, :3], -INF)
    np.testing.assert_array_equal(out[0, :, 3], np.broadcast_to(v[0, 0, 0], (2, 4)))
    close(out[:, :, 4:], reference(q, k, v, 0.5)[0][:, :, 4:])


def test_case_58_a_window_counts_itself():
    q, k = np.zeros((1, 1, 10, 4), np.float32), normal(1, 1, 1, 10, 4)
    v = np.eye(10, dtype=np.float32)[None, None]

    def fn(q: object, k: object, v: object) -> object:
        return ops.attention_prefill(q, k, v, scale=0.5, window=4)

    got = value(fn, q, k, v)
    assert (got > 0).sum(-1).tolist() == [[[1, 2, 3, 4, 4, 4, 4, 4, 4, 4]]]
    np.testing.assert_array_equal(value(fn, q[:, :, -1:], k, v), got[:, :, -1:])


def test_a_window_without_causal_leaves_the_future():
    q, k, v = qkv(1, 1, 1, 4, 6, 4, 4)
    got = value(
        lambda q, k, v: ops.attention_prefill(q, k, v, scale=0.5, causal=False, window=2), q, k, v
    )
    keep = np.arange(6) > np.arange(4)[:, None] + 2 - 2
    close(got, reference(q, k, v, 0.5, keep=keep)[0])


def test_case_62_alibi_slopes_follow_the_original_rule():
    six = [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    np.testing.assert_allclose(ops.alibi_slopes(6), six, rtol=1e-7)
    twelve = [2.0**-i for i in range(1, 9)] + [0.70710678, 0.35355339, 0.1767767, 0.08838835]
    np.testing.assert_allclose(ops.alibi_slopes(12), twelve, rtol=1e-7)
    for heads, below in ((40, 32), (48, 32)):
        slopes = ops.alibi_slopes(heads)
        assert slopes.dtype == np.float32
        np.testing.assert_array_equal(slopes[:below], ops.alibi_slopes(below))
        np.testing.assert_array_equal(
            slopes[below:], ops.alibi_slopes(2 * below)[::2][: heads - below]
        )


def test_case_62_the_bias_uses_them_head_by_head():
    got = value(lambda x: ops.alibi_bias(ops.alibi_slopes(6), 3, 5), normal(0, 1))
    distance = np.arange(5) - (np.arange(3)[:, None] + 2)
    np.testing.assert_allclose(got[0], ops.alibi_slopes(6)[:, None, None] * distance, rtol=1e-6)


def test_case_64_shifted_and_unshifted_alibi_agree_and_favour_the_newest():
    keys = 4096
    q, k = np.zeros((1, 1, 1, 4), np.float16), np.zeros((1, 1, keys, 4), np.float16)
    v = np.zeros((1, 1, keys, 2), np.float16)
    v[0, 0, -1, 0] = v[0, 0, 0, 1] = 1
    slope = np.float32([0.5])

    def shifted(q: object, k: object, v: object) -> object:
        return ops.attention_masked(
            q, k, v, mask=ops.alibi_bias(slope, 1, keys, dtype="f16"), scale=1.0
        )

    def unshifted(q: object, k: object, v: object) -> object:
        bias = ops.alibi_bias(slope, 1, keys, start=0, dtype="f16")
        return ops.attention_masked(q, k, v, mask=bias, scale=1.0)

    one, other = value(shifted, q, k, v), value(unshifted, q, k, v)
    assert one[0, 0, 0, 0] > one[0, 0, 0, 1]
    want = 1 - math.exp(-0.5)
    assert float(one[0, 0, 0, 0]) == pytest.approx(want, abs=4e-3)
    assert other[0, 0, 0, 0] > other[0, 0, 0, 1]


def test_case_65_the_cap_sees_the_scaled_score():
    q = np.zeros((1, 1, 1, 64), np.float32)
    k = np.zeros((1, 1, 2, 64), np.float32)
    q[..., 0], k[0, 0, 0, 0] = 10, 10

    def lse(cap: float | None) -> float:
        def fn(q: object, k: object) -> object:
            return ops.attention_masked(
                q, k[:, :, :1], k[:, :, :1], mask=None, scale=64**-0.5, softcap=cap, return_lse=True
            )

        _, got = evaluate(fn, q, k)
        return float(got[0, 0, 0])

    assert lse(50.0) == pytest.approx(12.2459, abs=1e-4)
    assert lse(None) == pytest.approx(12.5, abs=1e-5)
    q, k, v = qkv(1, 2, 2, 4, 16, 64, 8)
    capped = [
        value(
            lambda q, k, v, c=c: ops.attention_masked(q, k, v, mask=None, scale=1.0, softcap=c),
            q,
            k,
            v,
        )
        for c in (5.0, 50.0)
    ]
    assert np.abs(capped[0] - capped[1]).max() > 0.1


def test_case_11_a_cap_never_shows_what_the_mask_hides():
    q, k = normal(0, 1, 1, 8, 4), normal(1, 1, 1, 8, 4)
    v = np.eye(8, dtype=np.float32)[None, None]
    got = value(lambda q, k, v: ops.attention_prefill(q, k, v, scale=0.5, softcap=1.0), q, k, v)
    assert (np.triu(got[0, 0], 1) == 0).all()
    np.testing.assert_array_equal(got[0, 0, 0], v[0, 0, 0])


def test_case_12_a_mask_that_keeps_differs_from_one_that_drops():
    q, k, v = qkv(1, 1, 1, 2, 5, 4, 4)
    mask = np.asarray([[0, 0, 0, 1, 0], [1, 1, 0, 0, 1]], bool)

    def fn(q: object, k: object, v: object, m: object) -> object:
        keeps = ops.attention_masked(q, k, v, mask=m, scale=0.5)
        return keeps, ops.attention_masked(q, k, v, mask=~m, scale=0.5)

    keeps, drops = evaluate(fn, q, k, v, mask)
    close(keeps, reference(q, k, v, 0.5, keep=mask)[0])
    close(drops, reference(q, k, v, 0.5, keep=~mask)[0])
    np.testing.assert_array_equal(keeps[0, 0, 0], v[0, 0, 3])


@pytest.mark.parametrize("logit", [2.0, 100.0, -1e4])
def test_case_13_a_sink_joins_the_maximum_and_the_denominator(logit: float):
    q, k, v = qkv(1, 1, 1, 7, 7, 4, 4)
    sink = np.float32([logit])
    keep = bottom_right(7, 7) & (np.arange(7) > np.arange(7)[:, None] - 3)

    def fn(q: object, k: object, v: object, s: object) -> object:
        return ops.attention_prefill(q, k, v, scale=0.5, window=3, sink=s)

    def concatenated(q: object, k: object, v: object, s: object) -> object:
        scores = ops.where(keep, (q @ k.swapaxes(2, 3)) * 0.5, -INF)
        more = ops.broadcast_to(s.reshape(1, 1, 1, 1), (1, 1, 7, 1))
        return ops.softmax(ops.concat([scores, more], 3))[..., :-1] @ v

    got = value(fn, q, k, v, sink)
    assert np.isfinite(got).all()
    close(got, value(concatenated, q, k, v, sink))
    close(got, reference(q, k, v, 0.5, keep=keep, sink=sink)[0])
    nothing = np.zeros((7, 7), bool)
    got = value(
        lambda q, k, v, s: ops.attention_masked(q, k, v, mask=nothing, scale=0.5, sink=s),
        q,
        k,
        v,
        sink,
    )
    np.testing.assert_array_equal(got, np.zeros_like(got))


def test_case_8_cap_then_bias_then_masks():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        q, k, v = (rng.standard_normal((1, 4, 64, 32)).astype(np.float32) for _ in range(3))
        bias = rng.standard_normal((1, 4, 64, 64)).astype(np.float32)
        keep = rng.random((1, 1, 64, 64)) < 0.3
        hidden = np.where(keep, bias, -INF).astype(np.float32)
        got = value(
            lambda q, k, v, m: ops.attention_prefill(q, k, v, scale=0.2, mask=m, softcap=30.0),
            q, k, v, hidden,
        )  # fmt: skip
        seen = keep & bottom_right(64, 64)
        empty = ~seen.any(-1)
        assert (np.isnan(got).all(-1) == empty).all()
        want = reference(q, k, v, 0.2, cap=30.0, add=bias, keep=seen)[0]
        live = np.broadcast_to(~empty, got.shape[:3])
        close(got[live], want[live])


def live(q: object, k: object, v: object, n: object) -> object:
    return ops.attention_live(q, k, v, n, scale=0.5, return_lse=True)


def live_graph(lk: int, range_: tuple[int, int] | None = None) -> Graph:
    specs = [poot.weight(s) for s in ((3, 4, 2, 8), (3, 2, lk, 8), (3, 2, lk, 5))]
    return poot.trace(live, (*specs, poot.slot((3,), range=range_)))


def test_live_attention_reads_the_first_keys_of_each_row():
    q, k, v = qkv(3, 4, 2, 2, 6, 8, 5)
    n = np.asarray([1, 4, 6], np.int32)
    feed = {"q": q, "k": k, "v": v, "n": n}
    clean = run(live_graph(6), feed)
    keep = (np.arange(6) < n[:, None])[:, None, None]
    for got, want in zip(clean.outputs, reference(q, k, v, 0.5, keep=keep), strict=True):
        close(got, want)
    assert clean.witnesses[0].all()
    for junk in (np.nan, INF, -INF, 1e30):
        for which in ("k", "v"):
            dirty = {
                **feed,
                which: np.where(keep[:, 0, 0, None, :, None], feed[which], np.float32(junk)),
            }
            got = run(live_graph(6), dirty).outputs
            for a, b in zip(got, clean.outputs, strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("bad", [0, 7, -5])
def test_a_live_length_outside_is_witnessed_and_clamped(bad: int):
    q, k, v = qkv(3, 4, 2, 2, 6, 8, 5)
    n = np.asarray([2, bad, 6], np.int32)
    result = run(live_graph(6), {"q": q, "k": k, "v": v, "n": n})
    assert result.witnesses[0].tolist() == [True, False, True]
    again = run(live_graph(6), {"q": q, "k": k, "v": v, "n": n.clip(1, 6)})
    np.testing.assert_array_equal(result.outputs[0], again.outputs[0])


def test_live_attention_is_a_guard_and_three_selects_under_one_length():
    graph = live_graph(6)
    ops_used = [e.op for e in graph.eqns]
    assert ops_used.count("index_guard") == 1
    assert ops_used.count("select") == 4  # keys, values, scores, and the log-sum-exp's
    assert len(graph.validations) == 1


def test_live_attention_under_a_mask_a_cap_and_a_sink():
    q, k, v = qkv(2, 4, 2, 3, 6, 8, 5)
    n, mask, sink = np.asarray([5, 2], np.int32), normal(3, 1, 4, 3, 6), normal(4, 4)

    def fn(q: object, k: object, v: object, n: object, m: object, s: object) -> object:
        return ops.attention_live(q, k, v, n, scale=0.5, mask=m, softcap=3.0, sink=s)

    keep = (np.arange(6) < n[:, None])[:, None, None]
    want = reference(q, k, v, 0.5, cap=3.0, add=mask, keep=keep, sink=sink)[0]
    close(value(fn, q, k, v, n, mask, sink), want)


@pytest.mark.parametrize("cuts", [(1, 299), (150, 150), (299, 1), (100, 100, 100), (300,)])
def test_parts_merge_to_the_whole(cuts: tuple[int, ...]):
    q, k, v = qkv(1, 2, 1, 3, 300, 8, 4)

    def fn(q: object, k: object, v: object) -> object:
        parts = zip(ops.split(k, cuts, 2), ops.split(v, cuts, 2), strict=True)
        return ops.merge_attention(
            *(
                ops.attention_masked(q, a, b, mask=None, scale=0.4, return_lse=True)
                for a, b in parts
            )
        )

    for got, want in zip(evaluate(fn, q, k, v), reference(q, k, v, 0.4), strict=True):
        close(got, want)


def test_case_3_an_empty_part_adds_nothing():
    out, lse = normal(0, 1, 2, 3, 4), normal(1, 1, 2, 3)
    empty, none = np.full_like(out, np.nan), np.full_like(lse, -INF)

    def fn(a: object, b: object, c: object, d: object) -> object:
        return ops.merge_attention((a, b), (c, d)), ops.merge_attention((c, d), (c, d))

    for given in ((out, lse, empty, none), (empty, none, out, lse)):
        (merged, total), _ = evaluate(fn, *given)
        np.testing.assert_array_equal(merged, out)
        np.testing.assert_array_equal(total, lse)
    _, (merged, total) = evaluate(fn, out, lse, empty, none)
    assert np.isnan(merged).all()
    assert (total == -INF).all()


def test_case_1_a_row_that_sees_nothing_is_nan_and_alone():
    q, k, v = qkv(1, 1, 1, 8, 8, 4, 4)
    mask = np.zeros((8, 8), bool)
    mask[:4, :4] = True
    for dtype in (np.float32, np.float16):
        got = value(
            lambda q, k, v, m: ops.attention_masked(q, k, v, mask=m, scale=0.5),
            q.astype(dtype), k.astype(dtype), v.astype(dtype), mask,
        )  # fmt: skip
        assert np.isnan(got[:, :, 4:].astype(np.float32)).all()
        small = reference(q[:, :, :4], k[:, :, :4], v[:, :, :4], 0.5)[0]
        close(got[:, :, :4], small, 2e-5 if dtype is np.float32 else 8e-3)


def test_finite_masks_are_ordinary_numbers():
    q, k, v = qkv(1, 1, 1, 2, 5, 4, 4)
    mask = np.full((2, 5), -1e9, np.float32)
    got = value(lambda q, k, v, m: ops.attention_masked(q, k, v, mask=m, scale=0.5), q, k, v, mask)
    close(got, np.broadcast_to(v.mean(2, keepdims=True), got.shape), 1e-6)


def test_masks_from_positions():
    pos = np.asarray([0, 3], np.int32)
    start = np.asarray(2, np.int32)
    key, row = np.arange(6), np.arange(2)[:, None]
    got = value(lambda p: ops.causal_mask(2, 6, p), pos)
    np.testing.assert_array_equal(got, (key <= row + pos[:, None, None])[:, None])
    got = value(lambda p: ops.causal_mask(2, 6, p, window=2), start)
    np.testing.assert_array_equal(got, (key <= row + 2) & (key > row + 2 - 2))
    got = value(lambda p: ops.causal_mask(2, 6, 1), start)
    np.testing.assert_array_equal(got, key <= row + 1)
    got = value(lambda p: ops.additive_mask(ops.causal_mask(2, 6, p), "f16", -1e4), start)
    np.testing.assert_array_equal(got, np.where(key <= row + 2, 0, -1e4).astype(np.float16))
    assert got.dtype == np.float16
    got = value(lambda p: ops.alibi_bias(np.float32([0.5, 0.25]), 2, 6, p), pos)
    distance = key - (row + pos[:, None, None])
    np.testing.assert_array_equal(got, np.float32([0.5, 0.25])[:, None, None] * distance[:, None])


def test_a_scale_may_be_a_traced_value():
    q, k, v = qkv(1, 4, 2, 3, 5, 8, 4)
    scales = np.float32([0.1, 0.2, 0.3, 0.4]).reshape(4, 1, 1)
    got = value(
        lambda q, k, v, s: ops.attention_masked(q, k, v, mask=None, scale=s), q, k, v, scales
    )
    for h in range(4):
        want = reference(q, k, v, float(scales[h, 0, 0]))[0]
        close(got[:, h], want[:, h])


def test_batch_and_rows_may_be_none_at_all():
    for shape in ((0, 2, 1, 3, 5, 4, 4), (1, 2, 1, 0, 5, 4, 4)):
        q, k, v = qkv(*shape)
        out, lse = evaluate(
            lambda q, k, v: ops.attention_prefill(q, k, v, scale=1.0, return_lse=True), q, k, v
        )
        assert out.shape == (*q.shape[:3], 4)
        assert lse.shape == q.shape[:3]


def test_repeat_kv_repeats_each_head_in_place():
    x = normal(0, 2, 3, 4, 5)
    np.testing.assert_array_equal(value(lambda x: ops.repeat_kv(x, 3), x), np.repeat(x, 3, 1))
    assert graph_of(lambda x: ops.repeat_kv(x, 1), x).eqns == ()


Q, K = poot.weight((2, 6, 3, 8)), poot.weight((2, 2, 5, 8))


@pytest.mark.parametrize(
    "specs, options, message",
    [
        ((Q, poot.weight((2, 4, 5, 8))), {}, "query heads that are a multiple of key heads"),
        ((Q, poot.weight((2, 2, 0, 8))), {}, "at least one key"),
        ((Q, poot.weight((1, 2, 5, 8))), {}, "one batch and one key width"),
        ((Q, poot.weight((2, 2, 5, 7))), {}, "one batch and one key width"),
        ((Q, poot.weight((2, 5, 8))), {}, r"q \[B,Hq,Lq,Dk\]"),
        ((Q, poot.weight((2, 2, 5, 8), "f16")), {}, "matmul needs float operands of one dtype"),
        ((Q, K, poot.weight((2, 3, 5))), {"mask": 2}, r"a mask of \[B\|1, 1\|Hq, Lq\|1, Lk\|1\]"),
        ((Q, K, poot.weight((1, 1, 1, 3, 5))), {"mask": 2}, "a mask of"),
        ((Q, K, poot.weight((3, 5), "f16")), {"mask": 2}, "a bool mask, or one of q's dtype.*-inf"),
        ((Q, K, poot.weight((2,))), {"sink": 2}, r"a sink \[Hq\]"),
        ((Q, K), {"softcap": 0.0}, "a finite cap above 0"),
        ((Q, K), {"window": 0}, "a window of 1 or more"),
    ],
)
def test_what_does_not_fit_is_refused(
    specs: tuple[object, ...], options: dict[str, object], message: str
):
    def fn(*xs: object) -> object:
        given = {n: xs[at] if n in ("mask", "sink") else at for n, at in options.items()}
        return ops.attention_prefill(xs[0], xs[1], xs[1], scale=1.0, **given)

    with pytest.raises(TypeRuleError, match=message):
        poot.trace(fn, specs)


def test_lengths_and_starts_are_i32_of_their_shape():
    for length in (poot.slot(()), poot.slot((3,)), poot.weight((2,))):
        with pytest.raises(TypeRuleError, match=r"attention_live needs length i32 \[B\]"):
            poot.trace(live, (Q, K, K, length))
    for start in (poot.weight(()), poot.slot((2, 2))):
        with pytest.raises(TypeRuleError, match=r"causal_mask needs a start that is an int or i32"):
            poot.trace(lambda p: ops.causal_mask(2, 4, p), (start,))
    for call in (lambda: ops.alibi_slopes(0), ops.merge_attention):
        with pytest.raises(TypeRuleError):
            call()
