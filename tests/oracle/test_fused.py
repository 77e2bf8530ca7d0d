"""The fused rows against plain loops in f64, written without regard to speed."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from poot.ir.text import parse
from poot.oracle import fused, run
from tests.support.check import plain
from tests.support.evaluate import evaluate, one

INF = math.inf
ORDER = ("q", "k", "v", "k_shared", "read", "len", "mask", "sink")


def attend(
    given: dict[str, np.ndarray], *, f64: bool = False, **attrs: object
) -> tuple[np.ndarray, ...]:
    names = tuple(n for n in ORDER if n in given)
    return evaluate("attention", *(given[n] for n in names), operands=names, f64=f64, **attrs)


def by_loops(
    given: dict[str, np.ndarray],
    *,
    scale: float,
    softcap: float | None = None,
    mask_fill: float | None = None,
    causal: int | None = None,
    window: int | None = None,
    lse: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """(out, lse) of an attention, one row at a time: only keys that may be seen are visited."""
    at = {n: plain(np.asarray(x)).astype(np.float64) for n, x in given.items()}
    q, k, v = at["q"], at["k"], at["v"]
    batch, heads, rows, _ = q.shape
    if "read" in given:
        k, v = (p[given["read"]].transpose(0, 2, 1, 3) for p in (k, v))
    if "k_shared" in at:
        k = np.concatenate((k, np.repeat(at["k_shared"], k.shape[1], 1)), -1)
    keys, share = k.shape[2], heads // k.shape[1]
    out, logs = np.empty((batch, heads, rows, v.shape[-1])), np.empty((batch, heads, rows))
    for b, h, r in np.ndindex(batch, heads, rows):
        live = range(int(given["len"][b])) if "len" in given else range(keys)
        reach = r + causal if causal is not None else keys
        least = r + (causal or 0) - window if window is not None else -1
        seen = [t for t in live if least < t <= reach]
        scores = np.array(
            [q[b, h, r] @ k[b, h // share, t] * float(np.float32(scale)) for t in seen]
        )
        if softcap is not None:
            scores = softcap * np.tanh(scores / softcap)
        if "mask" in given:
            row = np.broadcast_to(given["mask"], (batch, heads, rows, keys))[b, h, r, seen]
            fill = float(np.float32(mask_fill)) if mask_fill is not None else 0.0
            scores = scores + plain(row) if mask_fill is None else np.where(row, scores, fill)
        with np.errstate(all="ignore"):
            top = max([*scores, *([at["sink"][h]] if "sink" in at else [])], default=-INF)
            weights = np.exp(scores - top)
            extra = np.exp(at["sink"][h] - top) if "sink" in at else 0.0
            total = weights.sum() + extra
            out[b, h, r] = sum(
                (w / total * v[b, h // share, t] for w, t in zip(weights, seen, strict=True)),
                np.zeros(v.shape[-1]) if "sink" in at else np.zeros(v.shape[-1]) / total,
            )
            peak = max(scores, default=-INF)
            logs[b, h, r] = peak + np.log(np.exp(scores - peak).sum()) if peak > -INF else -INF
    return out, logs


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def dense(hq: int = 6, hkv: int = 2, lq: int = 5, lk: int = 9, dk: int = 8, dv: int = 7):
    return {"q": normal(2, hq, lq, dk), "k": normal(2, hkv, lk, dk), "v": normal(2, hkv, lk, dv)}


MASK = normal(2, 6, 5, 9, seed=3)
FORMS: dict[str, tuple[dict[str, np.ndarray], dict[str, object]]] = {
    "grouped heads": (dense(), {}),
    "one key head": (dense(6, 1), {}),
    "as many key heads": (dense(3, 3), {}),
    "one row": (dense(lq=1), {}),
    "wide values": (dense(dk=3, dv=33), {}),
    "softcap": (dense(), {"softcap": 1.5}),
    "a mask a head": ({**dense(), "mask": MASK}, {}),
    "a mask for all": ({**dense(), "mask": MASK[:1, :1, :1]}, {}),
    "a mask of one key": ({**dense(), "mask": MASK[:, :1, :, :1]}, {}),
    "a mask of minus infinity": ({**dense(), "mask": np.where(MASK > 1, -INF, 0).astype("f4")}, {}),
    "a bool mask": ({**dense(), "mask": MASK[:, :1] > 0}, {"mask_fill": -1e9}),
    "a bool mask that hides": ({**dense(), "mask": MASK[:1, :1] > -1}, {"mask_fill": -INF}),
    "softcap, then mask": ({**dense(), "mask": MASK}, {"softcap": 0.5}),
    "causal": (dense(), {"causal": 4}),
    "causal with empty rows": (dense(), {"causal": -2}),
    "window": (dense(), {"causal": 4, "window": 3}),
    "a window alone": (dense(), {"window": 2}),
    "sink": ({**dense(), "sink": normal(6)}, {}),
    "sink and empty rows": ({**dense(), "sink": normal(6)}, {"causal": -2}),
    "live": ({**dense(), "len": np.array([1, 9], np.int32)}, {}),
    "live, causal": ({**dense(), "len": np.array([4, 7], np.int32)}, {"causal": 2}),
    "split key": ({**dense(), "k": normal(2, 2, 9, 5), "k_shared": normal(2, 1, 9, 3)}, {}),
    "paged": (
        {
            "q": normal(2, 6, 5, 8),
            "k": normal(20, 2, 8),
            "v": normal(20, 2, 7),
            "read": np.random.default_rng(0).integers(0, 20, (2, 9)).astype(np.int32),
            "len": np.array([3, 8], np.int32),
        },
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", sorted(FORMS))
def test_attention_agrees_with_loops_in_each_form(form: str):
    given, attrs = FORMS[form]
    want = by_loops(given, scale=0.3, **attrs)
    for got, right in zip(attend(given, scale=0.3, lse=True, f64=True, **attrs), want, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-10, atol=1e-12)
    for got, right in zip(attend(given, scale=0.3, lse=True, **attrs), want, strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, right, rtol=0, atol=2e-5)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_16_bit_attention_rounds_once_at_its_output(dtype: type):
    """Case 70: raw scores of 65536 overflow f16, and never do here."""
    given = {n: x.astype(dtype) for n, x in dense().items()}
    out, lse = attend(given, scale=0.3, lse=True)
    assert (out.dtype, lse.dtype) == (dtype, np.float32)
    exact = by_loops(given, scale=0.3)[0]
    ulp = 2.0 ** (-11 if dtype == np.float16 else -8)
    np.testing.assert_allclose(plain(out), exact, rtol=ulp * 1.01, atol=1e-6)
    q = np.full((1, 1, 1, 64), 32, dtype)
    k = np.full((1, 1, 4, 64), 32, dtype)
    k[0, 0, 0] = 31
    v = np.arange(4, dtype=np.float32).reshape(1, 1, 4, 1).astype(dtype)
    (got,) = attend({"q": q, "k": k, "v": v}, scale=0.125)
    assert float(got.item()) == 2.0


def test_a_row_of_nothing_but_minus_infinity_is_nan_alone():
    given = {**dense(), "mask": np.zeros((1, 1, 5, 9), np.float32)}
    given["mask"][0, 0, 2] = -INF
    out, lse = attend(given, scale=0.3, lse=True)
    assert np.isnan(out[:, :, 2]).all()
    assert (lse[:, :, 2] == -INF).all()
    clean = attend({n: x for n, x in given.items() if n != "mask"}, scale=0.3)[0]
    for row in (0, 1, 3, 4):
        np.testing.assert_array_equal(out[:, :, row], clean[:, :, row])


def test_with_a_sink_a_row_without_keys_is_zero_and_its_lse_minus_infinity():
    out, lse = attend({**dense(), "sink": normal(6)}, scale=0.3, causal=-1, lse=True)
    assert (out[:, :, 0] == 0).all()
    assert (lse[:, :, 0] == -INF).all()


@pytest.mark.parametrize("poison", [math.nan, INF, -INF, 1e30])
def test_a_hidden_key_and_value_never_matter(poison: float):
    """Cases 9, 14 and 15: what lies past the live length is not read into the result."""
    for extra, attrs in (
        ({"len": np.array([3, 6], np.int32)}, {}),
        ({}, {"causal": -2, "window": 3}),
    ):
        given = {**dense(), **extra}
        clean = attend(given, scale=0.3, **attrs)[0]
        bad = {n: x.copy() for n, x in given.items()}
        for b, first in enumerate((3, 6)):
            bad["k"][b, :, first:] = poison
            bad["v"][b, :, first:] = poison
        np.testing.assert_array_equal(attend(bad, scale=0.3, **attrs)[0], clean)


def test_a_seen_value_poisons_as_the_chain_does():
    given = {**dense(lq=3, lk=3), "mask": np.array([0, 0, -INF], np.float32).reshape(1, 1, 1, 3)}
    given["v"][0, :, 2, 0] = math.nan
    given["v"][1, :, 0, 0] = INF
    out = attend(given, scale=0.3)[0]
    assert np.isnan(out[0, :, :, 0]).all()
    assert (out[1, :, :, 0] == INF).all()
    causal = attend(given, scale=0.3, causal=0)[0]
    assert np.isnan(causal[0, :, 2, 0]).all()
    assert np.isfinite(causal[0, :, :2]).all()
    assert (causal[1, :, :, 0] == INF).all()
    assert np.isfinite(causal[..., 1:]).all()


def test_a_read_outside_the_pool_clamps():
    given = FORMS["paged"][0]
    low, high = given["read"].copy(), given["read"].copy()
    low[0, 1], high[0, 1] = 0, 19
    for slot, near in ((-7, low), (1000, high)):
        far = given["read"].copy()
        far[0, 1] = slot
        got = attend({**given, "read": far}, scale=0.3)[0]
        np.testing.assert_array_equal(got, attend({**given, "read": near}, scale=0.3)[0])


def test_scores_as_large_as_floats_go_give_the_largest_value():
    """Case 71."""
    scores = np.array([0, 89, 151.29, 1e4, 1e30], np.float32)
    given = {
        "q": np.ones((1, 1, 1, 1), np.float32),
        "k": scores.reshape(1, 1, 5, 1),
        "v": normal(1, 1, 5, 4),
    }
    np.testing.assert_array_equal(attend(given, scale=1.0)[0][0, 0, 0], given["v"][0, 0, 4])


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch):
    given = {**dense(), "mask": MASK, "len": np.array([5, 9], np.int32)}
    attrs = {"scale": 0.3, "causal": 3, "window": 6, "lse": True}
    whole = attend(given, **attrs)
    monkeypatch.setattr(fused, "BLOCK_NBYTES", 2 * 6 * 9 * 4 * 2)
    for got, want in zip(attend(given, **attrs), whole, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)


def test_no_batch_rows_and_no_query_rows_give_empty_results():
    """Case 45, but for Lk = 0, which the typing rule refuses."""
    none = {"q": normal(0, 6, 5, 8), "k": normal(0, 2, 9, 8), "v": normal(0, 2, 9, 7)}
    assert attend(none, scale=1.0)[0].shape == (0, 6, 5, 7)
    assert attend(dense(lq=0), scale=1.0)[0].shape == (2, 6, 0, 7)


def test_attention_is_its_chain_of_primitives():
    graph = parse("""
        in v0: f32[2,6,5,8]
        in v1: f32[2,2,9,8]
        in v2: f32[2,2,9,7]
        in v3: f32[1,1,5,9]
        v4: f32[2,2,1,9,8] = reshape(v1) shape=(2, 2, 1, 9, 8)
        v5: f32[2,2,3,9,8] = broadcast(v4) shape=(2, 2, 3, 9, 8)
        v6: f32[2,6,9,8] = reshape(v5) shape=(2, 6, 9, 8)
        v7: f32[2,2,1,9,7] = reshape(v2) shape=(2, 2, 1, 9, 7)
        v8: f32[2,2,3,9,7] = broadcast(v7) shape=(2, 2, 3, 9, 7)
        v9: f32[2,6,9,7] = reshape(v8) shape=(2, 6, 9, 7)
        v10: f32[2,6,8,9] = transpose(v6) perm=(0, 1, 3, 2)
        v11: f32[2,6,5,9] = matmul(v0, v10)
        v12: f32[] = const() dtype=f32 shape=() value=0.3
        v13: f32[2,6,5,9] = mul(v11, v12)
        v14: f32[2,6,5,9] = add(v13, v3)
        v15: f32[2,6,5,1] = reduce(v14) axis=(3,) keepdim=True kind=max
        v16: f32[2,6,5,9] = sub(v14, v15)
        v17: f32[2,6,5,9] = exp(v16)
        v18: f32[2,6,5,1] = reduce(v17) axis=(3,) keepdim=True kind=sum
        v19: f32[2,6,5,9] = div(v17, v18)
        v20: f32[2,6,5,7] = matmul(v19, v9)
        v21: f32[2,6,5,7] = attention(v0, v1, v2, v3) operands=(q, k, v, mask) scale=0.3
        out v20, v21
    """)
    given = dense()
    feed = {"v0": given["q"], "v1": given["k"], "v2": given["v"], "v3": MASK[:1, :1]}
    chain, whole = run(graph, feed, f64=True).outputs
    np.testing.assert_allclose(whole, chain, rtol=1e-12)
    chain, whole = run(graph, feed).outputs
    np.testing.assert_allclose(whole, chain, rtol=0, atol=2e-6)


def test_rope_turns_pairs_and_keeps_the_rest():
    """Cases 66 and 67."""
    x = np.array([[1, 2, 3, 4, 5, 6]], np.float32)
    angle = np.array([[1.0, 0.01]], np.float32)
    cos, sin = np.cos(angle), np.sin(angle)
    adjacent = one("rope", x, cos, sin, interleaved=True)[0]
    halves = one("rope", x, cos, sin, interleaved=False)[0]
    for got, pairs in ((adjacent, ((0, 1), (2, 3))), (halves, ((0, 2), (1, 3)))):
        assert got[4:].tolist() == [5, 6]
        for n, (i, j) in enumerate(pairs):
            a, b, c, s = x[0, i], x[0, j], cos[0, n], sin[0, n]
            np.testing.assert_array_equal(got[[i, j]], [a * c - b * s, b * c + a * s])
    still = one("rope", x, np.ones_like(cos), np.zeros_like(sin), interleaved=True)
    np.testing.assert_array_equal(still, x)


def test_rope_broadcasts_its_angles_and_rounds_16_bits_once():
    x = normal(2, 3, 5, 8).astype(np.float16)
    angle = normal(1, 5, 3)
    cos, sin = np.cos(angle).astype(np.float16), np.sin(angle).astype(np.float16)
    got = one("rope", x, cos, sin, interleaved=False)
    wide = [v.astype(np.float32) for v in (x, cos, sin)]
    want = one("rope", *wide, interleaved=False).astype(np.float16)
    np.testing.assert_array_equal(got, want)


def test_a_region_is_its_body():
    graph = parse("""
        in v0: f16[4]
        in v1: f16[4]
        v2: f16[4], v3: f16[4] = region(v0, v1) anchor=none updates=((1, 0),) body={
            in v0: f16[4]
            in v1: f16[4]
            v2: f16[4] = mul(v0, v1)
            v3: f16[4] = add(v2, v0)
            out v3, v2
        }
        v4: f16[4] = mul(v0, v1)
        v5: f16[4] = add(v4, v0)
        out v2, v3, v5, v4
    """)
    feed = {"v0": normal(4).astype(np.float16), "v1": normal(4, seed=1).astype(np.float16)}
    a, b, want_a, want_b = run(graph, feed).outputs
    np.testing.assert_array_equal(a, want_a)
    np.testing.assert_array_equal(b, want_b)
