"""Hard cases of masks, softcaps and sinks, on every target, fused and as they are written."""

from __future__ import annotations

import numpy as np
import pytest

from poot import ops
from poot.ir.dtypes import DTYPES
from poot.ops import Array
from tests.support.attention import INF, bottom_right, qkv, reference
from tests.support.everywhere import bind_feed, compile_on, fused_count, on
from tests.support.hard import attended, by_oracle, feed_of, fused_only, on_both
from tests.support.tol import assert_within
from tests.support.traced import graph_of

LEAST = {"f32": -3.4028234663852886e38, "f16": -65504.0, "bf16": -3.3895313892515355e38}


def near(got: np.ndarray, want: np.ndarray, what: str = "") -> None:
    """Within the bound for attention in got's dtype; NaN stands where it is wanted."""
    with np.errstate(all="ignore"):
        assert_within(got, want.astype(np.float32).astype(got.dtype), "attention", what)


def in_dtype(dtype: str, *arrays: np.ndarray) -> list[np.ndarray]:
    return [x.astype(DTYPES[dtype].numpy) for x in arrays]


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@on(but="emulated")
def test_case_1_a_row_that_sees_nothing_is_nan_and_alone(target: str, dtype: str):
    q, k, v = in_dtype(dtype, *qkv(1, 1, 1, 8, 8, 8, 8))
    mask = np.zeros((8, 8), bool)
    mask[:4, :4] = True

    def fn(q: Array, k: Array, v: Array, m: Array) -> object:
        return ops.attention_masked(q, k, v, mask=m, scale=8**-0.5)

    small = reference(q[:, :, :4], k[:, :, :4], v[:, :, :4], 8**-0.5)[0]
    for got in attended(target, fn, q, k, v, mask):
        assert np.isnan(got[:, :, 4:].astype(np.float32)).all()
        near(got[:, :, :4], small)


@on(but="emulated")
def test_case_3_an_empty_row_has_no_weight_in_a_merge(target: str):
    q, k, v = qkv(1, 2, 1, 5, 2, 4, 4)
    out, lse = reference(*qkv(1, 2, 1, 5, 9, 4, 4), 0.5)
    other, total = out.astype(np.float32), lse.astype(np.float32)

    def fn(q: Array, k: Array, v: Array, o: Array, t: Array) -> object:
        empty = ops.attention_prefill(q, k, v, scale=0.5, return_lse=True)
        return empty, ops.merge_attention(empty, (o, t)), ops.merge_attention((o, t), empty)

    both = on_both(target, fn, q, k, v, other, total)
    want = by_oracle(fn, q, k, v, other, total)
    for (got, lse), *merges in (both.fused, both.plain):
        assert np.isnan(got[:, :, :3]).all()
        np.testing.assert_array_equal(lse[:, :, :3], -INF)
        near(got[:, :, 3:], reference(q, k, v, 0.5, keep=bottom_right(5, 2))[0][:, :, 3:])
        for (merged, sums), (wanted, _) in zip(merges, want[1:], strict=True):
            np.testing.assert_array_equal(merged[:, :, :3], other[:, :, :3])
            np.testing.assert_array_equal(sums[:, :, :3], total[:, :, :3])
            near(merged, wanted)


@pytest.mark.parametrize("spelling", ["masks added to each other", "masks added one by one"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@on(but="emulated")
def test_case_5_two_finite_masks_may_overflow_and_no_row_with_a_key_is_lost(
    target: str, dtype: str, spelling: str
):
    q, k, v = in_dtype(dtype, *qkv(2, 2, 1, 8, 8, 16, 16))
    causal = np.where(bottom_right(8, 8), 0.0, LEAST[dtype])[None, None]
    padded = np.zeros((2, 1, 1, 8))
    padded[1, ..., :3] = LEAST[dtype]
    causal, padded = in_dtype(dtype, causal, padded)

    def fn(q: Array, k: Array, v: Array, c: Array, p: Array) -> object:
        if spelling == "masks added to each other":
            return ops.attention_masked(q, k, v, mask=c + p, scale=0.25)
        scores = (q @ ops.repeat_kv(k, 2).swapaxes(2, 3)) * 0.25 + c + p
        return ops.softmax(scores) @ ops.repeat_kv(v, 2)

    keep = np.broadcast_to((causal == 0) & (padded == 0), (2, 1, 8, 8))
    live = np.broadcast_to(keep.any(-1), (2, 2, 8))
    want = reference(q, k, v, 0.25, keep=keep)[0]
    both = on_both(target, fn, q, k, v, causal, padded)
    assert both.attentions == 1, both.program.explain()
    near(both.fused[live], want[live])
    assert not np.isnan(both.plain[live].astype(np.float32)).any()
    if dtype == "f32":
        near(both.plain[live], want[live])
    # Rows that see no key follow the chain with f32 intermediates: what is masked twice has no
    # weight beside what is masked once.
    sums = causal.astype(np.float64) + padded.astype(np.float64)
    near(both.fused, reference(q, k, v, 0.25, add=sums)[0])


@on(but="emulated")
def test_case_8_cap_then_bias_then_masks(target: str):
    def fn(q: Array, k: Array, v: Array, m: Array) -> object:
        return ops.attention_prefill(q, k, v, scale=32**-0.5, mask=m, softcap=30.0)

    arrays = [hidden_at_random(seed) for seed in range(2 if target == "simulator" else 20)]
    graph = graph_of(fn, *arrays[0][0])
    program = compile_on(target, graph)
    assert fused_count(program, "attention") == 1, program.explain()
    for given, bias, keep in arrays:
        session = bind_feed(program, graph, feed_of(graph, given))
        got = np.asarray(session.step())
        session.close()
        seen = keep & bottom_right(64, 64)
        empty = np.broadcast_to(~seen.any(-1), got.shape[:3])
        assert (np.isnan(got).all(-1) == empty).all()
        want = reference(*given[:3], 32**-0.5, cap=30.0, add=bias, keep=seen)[0]
        near(got, want)


def hidden_at_random(seed: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """q, k, v and a bias hidden by -inf at 70 cells of 100; the bias; what is left to see."""
    rng = np.random.default_rng(seed)
    shape = (1, 4, 64, 32)
    given = [rng.standard_normal(shape).astype(np.float32) for _ in range(3)]
    bias = rng.standard_normal((1, 4, 64, 64)).astype(np.float32)
    keep = rng.random((1, 1, 64, 64)) < 0.3
    return [*given, np.where(keep, bias, -INF).astype(np.float32)], bias, keep


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
@on(but="emulated")
def test_case_9_a_dead_key_never_matters_and_a_dead_value_only_as_the_chain_says(
    target: str, bad: float
):
    q, k, v = qkv(1, 1, 1, 2, 2, 4, 4)
    mask = np.asarray([[True, False], [True, False]])
    k[0, 0, 1] = 0
    v[0, 0, 1] = 0

    def fn(q: Array, k: Array, v: Array, m: Array) -> object:
        return ops.attention_masked(q, k, v, mask=m, scale=0.5)

    clean = attended(target, fn, q, k, v, mask)
    dead = k.copy()
    dead[0, 0, 1, 0] = bad
    for got, want in zip(attended(target, fn, q, dead, v, mask), clean, strict=True):
        np.testing.assert_array_equal(got, want)
    dead = v.copy()
    dead[0, 0, 1, 0] = bad
    for got, want in zip(attended(target, fn, q, k, dead, mask), clean, strict=True):
        np.testing.assert_array_equal(got[..., 1:], want[..., 1:])
        np.testing.assert_array_equal(got[..., 0], want[..., 0] if bad == 1e30 else np.nan)


@on(but="emulated")
def test_case_9_a_dead_value_behind_a_length_never_matters(target: str):
    q, k, v = qkv(2, 2, 1, 2, 6, 4, 4)
    length = np.asarray([1, 4], np.int32)

    def fn(q: Array, k: Array, v: Array, n: Array) -> object:
        return ops.attention_live(q, k, v, n, scale=0.5)

    dead = np.arange(6)[None, None, :, None] >= length[:, None, None, None]
    clean = on_both(target, fn, q, k * ~dead, v * ~dead, length)
    for bad in (np.nan, np.inf, -np.inf, 1e30):
        k_bad, v_bad = (np.where(dead, np.float32(bad), x) for x in (k, v))
        both = on_both(target, fn, q, k_bad, v_bad, length)
        np.testing.assert_array_equal(both.fused, clean.fused)
        np.testing.assert_array_equal(both.plain, clean.plain)


@on(but="emulated")
def test_case_11_a_cap_never_shows_what_the_mask_hides(target: str):
    q, k, _ = qkv(1, 1, 1, 8, 8, 4, 4)
    v = np.eye(8, dtype=np.float32)[None, None]

    def fn(q: Array, k: Array, v: Array) -> object:
        return ops.attention_prefill(q, k, v, scale=0.5, softcap=1.0)

    for got in attended(target, fn, q, k, v):
        assert (np.triu(got[0, 0], 1) == 0).all()
        np.testing.assert_array_equal(got[0, 0, 0], v[0, 0, 0])


@on(but="emulated")
def test_case_12_a_mask_that_keeps_differs_from_one_that_drops(target: str):
    q, k, v = qkv(1, 1, 1, 2, 5, 4, 4)
    mask = np.asarray([[0, 0, 0, 1, 0], [1, 1, 0, 0, 1]], bool)

    def keeps(q: Array, k: Array, v: Array, m: Array) -> object:
        return ops.softmax(ops.where(m, (q @ k.swapaxes(2, 3)) * 0.5, -INF)) @ v

    def drops(q: Array, k: Array, v: Array, m: Array) -> object:
        return ops.softmax(ops.where(m, -INF, (q @ k.swapaxes(2, 3)) * 0.5)) @ v

    for got in attended(target, keeps, q, k, v, mask):
        near(got, reference(q, k, v, 0.5, keep=mask)[0])
        np.testing.assert_array_equal(got[0, 0, 0], v[0, 0, 3])
    for got in attended(target, drops, q, k, v, mask):
        near(got, reference(q, k, v, 0.5, keep=~mask)[0])


@pytest.mark.parametrize("logit", [2.0, 100.0, -1e4])
@on(but="emulated")
def test_case_13_a_sink_joins_the_maximum_and_the_denominator(target: str, logit: float):
    n = 150  # a window of 3 leaves whole tiles of keys without a live one
    q, k, v = qkv(1, 1, 1, n, n, 4, 4)
    sink = np.float32([logit])
    keep = bottom_right(n, n) & (np.arange(n) > np.arange(n)[:, None] - 3)

    def concatenated(q: Array, k: Array, v: Array, s: Array, m: Array) -> object:
        scores = ops.where(m, (q @ k.swapaxes(2, 3)) * 0.5, -INF)
        more = ops.broadcast_to(s.reshape(1, 1, 1, 1), (1, 1, n, 1))
        return ops.softmax(ops.concat([scores, more], 3))[..., :-1] @ v

    def joined(q: Array, k: Array, v: Array, s: Array, m: Array) -> object:
        return ops.attention_masked(q, k, v, mask=m, scale=0.5, sink=s)

    nothing = np.zeros((n, n), bool)
    want = reference(q, k, v, 0.5, keep=keep, sink=sink)[0]
    for fn in (concatenated, joined):
        both = on_both(target, fn, q, k, v, sink, keep)
        near(both.fused, want)
        near(both.plain, want)
        if logit == 2.0:
            empty = on_both(target, fn, q, k, v, sink, nothing)
            np.testing.assert_array_equal(empty.fused, np.zeros_like(want))
            np.testing.assert_array_equal(empty.plain, np.zeros_like(want))


MASK_SHAPES = (
    (35, 50), (1, 50), (35, 1), (1, 1), (2, 1, 1, 50), (1, 6, 35, 50), (2, 1, 35, 1), (50,), (),
)  # fmt: skip


@pytest.mark.parametrize("kind", ["bool", "float"])
@on(but="emulated")
def test_case_51_masks_broadcast_as_if_expanded(target: str, kind: str):
    q, k, v = qkv(2, 6, 2, 35, 50, 8, 8)
    rng = np.random.default_rng(3)
    for shape in MASK_SHAPES[:3] if target == "simulator" else MASK_SHAPES:
        if kind == "bool":
            mask = np.asarray(rng.random(shape) < 0.7)
            want = reference(q, k, v, 0.35, keep=np.broadcast_to(mask, (2, 6, 35, 50)))[0]
        else:
            mask = np.asarray(rng.standard_normal(shape), np.float32)
            want = reference(q, k, v, 0.35, add=np.broadcast_to(mask, (2, 6, 35, 50)))[0]

        def fn(q: Array, k: Array, v: Array, m: Array) -> object:
            return ops.attention_masked(q, k, v, mask=m, scale=0.35)

        near(fused_only(target, fn, q, k, v, mask), want, str(shape))


@on(but="emulated")
def test_case_110_a_padding_mask_is_not_lost(target: str):
    q, k, v = qkv(3, 2, 2, 17, 17, 16, 16)
    padding = np.arange(17)[None, None, None] >= np.asarray([17, 9, 4])[:, None, None, None]
    mask = np.where(padding, -INF, 0.0).astype(np.float32)

    def fn(q: Array, k: Array, v: Array, m: Array) -> object:
        return ops.attention_masked(q, k, v, mask=m, scale=0.25)

    masked = reference(q, k, v, 0.25, keep=~padding)[0]
    bare = reference(q, k, v, 0.25)[0]
    for got in attended(target, fn, q, k, v, mask):
        near(got, masked)
        assert cosine(got[1:], bare[1:]) < 0.9
        assert cosine(got, masked) == pytest.approx(1, abs=1e-6)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.ravel().astype(float), b.ravel().astype(float)
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
