"""Hard cases of causal masks, windows, ALiBi, softcaps and rotary positions, on every target."""

from __future__ import annotations

import math

import numpy as np
import pytest

import poot
from poot import ops
from poot.errors import TypeRuleError
from poot.ir.dtypes import DTYPES
from poot.ops import Array
from tests.support.attention import bottom_right, qkv, reference
from tests.support.everywhere import compile_on, on
from tests.support.far import only_step, run_groups
from tests.support.hard import attended, fused_only, on_both
from tests.support.tol import assert_within
from tests.support.traced import graph_of, normal


def near(got: object, want: np.ndarray, what: str = "") -> None:
    assert isinstance(got, np.ndarray)
    assert_within(got, want.astype(got.dtype), "attention", what)


@on(but="emulated")
def test_case_53_either_alignment_of_causal_keeps_its_meaning(target: str):
    q, k, v = qkv(2, 4, 2, 3, 7, 8, 8)

    def flagged(q: Array, k: Array, v: Array) -> object:
        return ops.attention_prefill(q, k, v, scale=0.3)

    for got in attended(target, flagged, q, k, v):
        near(got, reference(q, k, v, 0.3, keep=bottom_right(3, 7))[0])
    for keep in (np.tril(np.ones((3, 7), bool)), np.tril(np.ones((3, 7), bool), 4)):

        def constant(q: Array, k: Array, v: Array, keep: np.ndarray = keep) -> object:
            return ops.attention_masked(q, k, v, mask=keep, scale=0.3)

        for got in attended(target, constant, q, k, v):
            near(got, reference(q, k, v, 0.3, keep=keep)[0])
    q, k, v = qkv(1, 1, 1, 1, 9, 4, 4)
    near(fused_only(target, flagged, q, k, v), reference(q, k, v, 0.3)[0], "one row sees all")


def causal(q: Array, k: Array, v: Array) -> object:
    return ops.attention_prefill(q, k, v, scale=0.35)


@on("vulkan", "wgpu", "cpu", "cuda")
def test_case_57_a_long_causal_prefill_is_finite_and_right_past_each_tile(target: str):
    q, k, v = qkv(1, 1, 1, 4100, 4100, 8, 8)
    got = fused_only(target, causal, q, k, v)
    assert isinstance(got, np.ndarray)
    assert np.isfinite(got).all()
    for rows in (slice(0, 4), slice(505, 775), slice(4090, 4100)):
        keep = np.arange(4100) <= np.arange(4100)[rows, None]
        near(got[:, :, rows], reference(q[:, :, rows], k, v, 0.35, keep=keep)[0])


def test_case_57_rows_of_a_second_tile_write_nothing_but_themselves():
    """Rows 512 to 519 and the last of a causal prefill of 4100, and what they leave alone."""
    length, width = 4100, 4
    q, k, v = qkv(1, 1, 1, length, length, width, width)
    program = compile_on("simulator", graph_of(causal, q, k, v))
    rows = [*range(512, 520), length - 1]
    fills = {n: (lambda at, x=x: x.reshape(-1)[at]) for n, x in zip("qkv", (q, k, v), strict=True)}
    (out,) = run_groups(program, fills, rows)
    want = [np.arange(r * width, (r + 1) * width) for r in rows]
    np.testing.assert_array_equal(out.written(), np.concatenate(want))
    keep = np.arange(length) <= np.asarray(rows)[:, None]
    near(
        out.read(np.stack(want)).astype(np.float32),
        reference(q[:, :, rows], k, v, 0.35, keep=keep)[0][0, 0],
    )
    assert only_step(program).op.startswith("attention")


@on(but="emulated")
def test_case_58_a_window_counts_itself(target: str):
    q, k = np.zeros((1, 1, 10, 4), np.float32), normal(1, 1, 1, 10, 4)
    v = np.eye(10, dtype=np.float32)[None, None]

    def fn(q: Array, k: Array, v: Array) -> object:
        return ops.attention_prefill(q, k, v, scale=0.5, window=4)

    last = attended(target, fn, q[:, :, -1:], k, v)
    for got, row in zip(attended(target, fn, q, k, v), last, strict=True):
        assert (got > 0).sum(-1).tolist() == [[[1, 2, 3, 4, 4, 4, 4, 4, 4, 4]]]
        near(row, got[:, :, -1:])


@on(but="emulated")
def test_case_59_a_window_known_only_at_run_time_is_honoured(target: str):
    """The window is a number of the step: the mask is made of it, so it can't be compiled out. One
    that the graph was not written with is refused at the trace."""
    length = 300 if target != "simulator" else 40
    q, k, v = qkv(1, 1, 1, 1, length, 4, 4)
    q[...] = 0
    v[...] = np.arange(length)[None, None, :, None] == 0

    def fn(q: Array, k: Array, v: Array, window: Array) -> object:
        t = ops.arange(length)
        seen = ops.logical_and(t <= length - 1, t > length - 1 - window)
        return ops.attention_masked(q, k, v, mask=seen, scale=0.5)

    spec = [poot.weight(x.shape) for x in (q, k, v)]
    graph = poot.trace(fn, (*spec, poot.slot((), range=(1, length + 1))))
    session = compile_on(target, graph).bind({"q": q, "k": k, "v": v})
    wide = np.asarray(session.step(window=np.int32(length)))
    np.testing.assert_allclose(wide, 1 / length, rtol=1e-5)
    for window in (1, 17, length - 1):
        narrow = np.asarray(session.step(window=np.int32(window)))
        np.testing.assert_array_equal(narrow, np.zeros_like(narrow))
    session.close()
    with pytest.raises(TypeRuleError, match="window of 1 or more"):
        graph_of(lambda q, k, v: ops.attention_prefill(q, k, v, scale=1.0, window=0), q, k, v)


@pytest.mark.parametrize("heads", [6, 12, 40, 48])
@on(but="emulated")
def test_case_62_and_64_alibi_in_both_forms_with_its_own_slopes(target: str, heads: int):
    rows, keys = (2, 9) if target == "simulator" else (5, 33)
    q, k, v = qkv(1, heads, heads // 2, rows, keys, 8, 8)
    distance = np.arange(keys) - (np.arange(rows)[:, None] + keys - rows)
    bias = ops.alibi_slopes(heads)[:, None, None].astype(np.float64) * distance
    want = reference(q, k, v, 0.3, add=bias[None])[0]

    def shifted(q: Array, k: Array, v: Array) -> object:
        mask = ops.alibi_bias(ops.alibi_slopes(heads), rows, keys)
        return ops.attention_masked(q, k, v, mask=mask, scale=0.3)

    def unshifted(q: Array, k: Array, v: Array) -> object:
        mask = ops.alibi_bias(ops.alibi_slopes(heads), 1, keys, 0)
        return ops.attention_masked(q, k, v, mask=mask, scale=0.3)

    near(fused_only(target, shifted, q, k, v), want)
    near(fused_only(target, unshifted, q, k, v), want)
    opposite = reference(q, k, v, 0.3, add=-bias[None])[0]
    assert np.abs(opposite - want).max() > 0.1


@on(but="emulated")
def test_case_64_the_newest_key_weighs_most(target: str):
    """f16 holds the shifted form's near distances; of the unshifted form only f32 holds enough."""
    keys = 4096 if target != "simulator" else 512
    for dtype, start in (("f32", None), ("f32", 0), ("f16", None)):
        held = DTYPES[dtype].numpy
        q, k = np.zeros((1, 1, 1, 4), held), np.zeros((1, 1, keys, 4), held)
        v = np.zeros((1, 1, keys, 2), held)
        v[0, 0, -1, 0] = v[0, 0, 0, 1] = 1

        def fn(q: Array, k: Array, v: Array, start: int | None = start) -> object:
            bias = ops.alibi_bias(np.float32([0.5]), 1, keys, start, q.dtype)
            return ops.attention_masked(q, k, v, mask=bias, scale=1.0)

        got = fused_only(target, fn, q, k, v)
        assert isinstance(got, np.ndarray)
        newest, oldest = got[0, 0, 0].astype(float)
        assert newest == pytest.approx(1 - math.exp(-0.5), abs=1e-5 if dtype == "f32" else 4e-3)
        assert newest > oldest


@on(but="emulated")
def test_case_65_the_cap_sees_the_scaled_score(target: str):
    q, k = np.zeros((1, 1, 1, 64), np.float32), np.zeros((1, 1, 2, 64), np.float32)
    q[..., 0], k[0, 0, 0, 0] = 10, 10
    v = np.asarray([[[[1.0], [0.0]]]], np.float32)

    def at(cap: float | None) -> object:
        def fn(q: Array, k: Array, v: Array) -> object:
            return ops.attention_masked(q, k, v, mask=None, scale=64**-0.5, softcap=cap)

        return fn

    assert 50 * math.tanh(12.5 / 50) == pytest.approx(12.2459, abs=1e-4)
    for cap, logit in ((50.0, 50 * math.tanh(0.25)), (5.0, 5 * math.tanh(2.5)), (None, 12.5)):
        for got in attended(target, at(cap), q, k, v):
            # The other key's score is 0: its weight is 1 / (1 + e^logit).
            assert 1 - float(got[0, 0, 0, 0]) == pytest.approx(1 / (1 + math.exp(logit)), abs=2e-7)
    q, k, v = qkv(1, 2, 2, 4, 16, 64, 8)
    q *= 8
    tight, loose = (fused_only(target, at(cap), q, k, v) for cap in (5.0, 50.0))
    assert np.abs(np.asarray(tight) - np.asarray(loose)).max() > 0.1


@on(but="emulated")
def test_case_66_the_pairing_of_the_chain_is_kept(target: str):
    x = np.asarray([[1, 2, 3, 4]], np.float32)
    table = np.asarray([[1.0, 0.01]], np.float32)
    cos, sin = np.cos(table), np.sin(table)

    def fn(x: Array, c: Array, s: Array) -> object:
        turned = (ops.rotate(x, c, s, interleaved=i) for i in (True, False))
        still = ops.rotate(x, ops.cos(c * 0.0), s * 0.0, interleaved=True)
        return (*turned, still)

    both = on_both(target, fn, x, cos, sin)
    one = x[0].astype(float)
    c, s = np.cos([1.0, 0.01]), np.sin([1.0, 0.01])
    pairs = {True: ((0, 1), (2, 3)), False: ((0, 2), (1, 3))}
    for adjacent, halves, still in (both.fused, both.plain):
        for got, interleaved in ((adjacent, True), (halves, False)):
            want = np.empty(4)
            for i, (a, b) in enumerate(pairs[interleaved]):
                want[a] = one[a] * c[i] - one[b] * s[i]
                want[b] = one[b] * c[i] + one[a] * s[i]
            np.testing.assert_allclose(got[0], want, rtol=1e-6)
        np.testing.assert_array_equal(still, x)


@on(but="emulated")
def test_case_67_a_partial_rotation_leaves_the_rest(target: str):
    x = normal(0, 1, 2, 5, 80)
    positions = np.asarray([0, 1, 7, 1000, 30000], np.int32)

    def fn(x: Array, p: Array) -> object:
        return ops.rope(x, p, 10000.0, dim=32)

    both = on_both(target, fn, x, positions)
    angles = positions[:, None] * 10000.0 ** (-np.arange(16) * 2 / 32)
    a, b = x[..., :16].astype(float), x[..., 16:32].astype(float)
    turned = (a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles))
    want = np.concatenate([*turned, x[..., 32:]], -1)
    for got in (both.fused, both.plain):
        assert isinstance(got, np.ndarray)
        np.testing.assert_array_equal(got[..., 32:], x[..., 32:])
        np.testing.assert_allclose(got[:, :, :3], want[:, :, :3], rtol=0, atol=1e-5)
        # An angle near 30000 in f32 is good to 2^-10.
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-2)
        norms = np.linalg.norm(got[..., :32], axis=-1)
        np.testing.assert_allclose(norms, np.linalg.norm(x[..., :32], axis=-1), rtol=1e-5)


@on(but="emulated")
def test_case_68_llama3_bands_show_at_a_far_position(target: str):
    scaling = ops.Llama3Scaling(32.0, 1.0, 4.0, 8192)
    x = normal(0, 1, 1, 2, 64)

    def at(scaled: bool) -> object:
        def fn(x: Array) -> object:
            cos, sin = ops.rope_tables(30001, 5e5, 64, scaling if scaled else None)
            return ops.rotate(x, *(t[[3, 30000]] for t in (cos, sin)))

        return fn

    rates = 5e5 ** (-np.arange(32) / 32)
    bands = rates.copy()
    bands[18:] /= 32
    for i in (15, 16, 17):
        smooth = (8192 * rates[i] / (2 * math.pi) - 1) / 3
        bands[i] = (1 - smooth) * rates[i] / 32 + smooth * rates[i]
    assert bands[15] == pytest.approx(0.00129055, abs=1e-8)
    angles = np.asarray([3, 30000])[:, None] * bands
    a, b = x[..., :32].astype(float), x[..., 32:].astype(float)
    turned = (a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles))
    got = on_both(target, at(True), x)
    np.testing.assert_allclose(got.fused, np.concatenate(turned, -1), rtol=0, atol=1e-5)
    np.testing.assert_allclose(got.plain, np.concatenate(turned, -1), rtol=0, atol=1e-5)
    bare = on_both(target, at(False), x).fused
    assert np.abs(bare[0, 0, 1] - np.asarray(got.fused)[0, 0, 1]).max() > 0.1
