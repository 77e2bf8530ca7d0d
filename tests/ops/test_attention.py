"""Attention's compositions against an independent f64 reference."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot import ops
from poot.errors import TypeRuleError
from poot.ir.graph import Graph
from poot.oracle import run
from tests.support.attention import INF, close, qkv, reference
from tests.support.traced import evaluate, graph_of, normal, value


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


def test_a_window_without_causal_leaves_the_future():
    q, k, v = qkv(1, 1, 1, 4, 6, 4, 4)
    got = value(
        lambda q, k, v: ops.attention_prefill(q, k, v, scale=0.5, causal=False, window=2), q, k, v
    )
    keep = np.arange(6) > np.arange(4)[:, None] + 2 - 2
    close(got, reference(q, k, v, 0.5, keep=keep)[0])


def live(q: object, k: object, v: object, n: object) -> object:
    return ops.attention_live(q, k, v, n, scale=0.5, return_lse=True)


def live_graph(lk: int) -> Graph:
    specs = [poot.weight(s) for s in ((3, 4, 2, 8), (3, 2, lk, 8), (3, 2, lk, 5))]
    return poot.trace(live, (*specs, poot.slot((3,))))


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
