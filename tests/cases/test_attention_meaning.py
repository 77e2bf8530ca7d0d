"""Hard cases of what attention means, of the compositions in the oracle; each names its number."""

from __future__ import annotations

import math

import numpy as np
import pytest

from poot import ops
from poot.errors import TypeRuleError
from poot.ir.dtypes import DTYPES
from tests.support.attention import INF, bottom_right, close, qkv, reference
from tests.support.traced import evaluate, graph_of, normal, value


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
    """f16 holds the shifted form's near distances; of the unshifted form only f32 holds enough."""
    keys = 4096
    slope = np.float32([0.5])
    want = 1 - math.exp(-0.5)

    def weights(dtype: str, start: int | None) -> np.ndarray:
        """The weight of the newest and of the oldest key."""
        q, k = (np.zeros((1, 1, n, 4), DTYPES[dtype].numpy) for n in (1, keys))
        v = np.zeros((1, 1, keys, 2), q.dtype)
        v[0, 0, -1, 0] = v[0, 0, 0, 1] = 1

        def fn(q: object, k: object, v: object) -> object:
            bias = ops.alibi_bias(slope, 1, keys, start, dtype)
            return ops.attention_masked(q, k, v, mask=bias, scale=1.0)

        return value(fn, q, k, v)[0, 0, 0].astype(np.float64)

    shifted, unshifted = weights("f32", None), weights("f32", 0)
    np.testing.assert_allclose(shifted, unshifted, atol=1e-5)
    assert shifted[0] == pytest.approx(want, abs=1e-5)
    assert weights("f16", None)[0] == pytest.approx(want, abs=4e-3)
    for dtype, start in (("f32", None), ("f32", 0), ("f16", None), ("f16", 0)):
        newest, oldest = weights(dtype, start)
        assert newest > oldest


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


def test_case_45_no_batch_and_no_rows_give_nothing_and_no_keys_are_refused():
    for shape in ((0, 2, 1, 3, 5, 4, 4), (1, 2, 1, 0, 5, 4, 4)):
        q, k, v = qkv(*shape)
        out, lse = evaluate(
            lambda q, k, v: ops.attention_prefill(q, k, v, scale=1.0, return_lse=True), q, k, v
        )
        assert out.shape == (*q.shape[:3], 4)
        assert lse.shape == q.shape[:3]
    q, k, v = qkv(1, 2, 1, 3, 0, 4, 4)
    with pytest.raises(TypeRuleError, match="at least one key"):
        graph_of(lambda q, k, v: ops.attention_prefill(q, k, v, scale=1.0), q, k, v)
