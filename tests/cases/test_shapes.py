"""Hard cases of extents, heads and strides, on every target."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot import ops
from poot.errors import TypeRuleError
from poot.ir.dtypes import DTYPES
from poot.ops import Array
from tests.support.attention import INF, bottom_right, qkv, reference
from tests.support.attention_cases import PAIRS, WIDTHS
from tests.support.everywhere import compile_on, device_of, on, run_everywhere
from tests.support.hard import attended, feed_of, fused_only, on_both
from tests.support.tol import assert_within
from tests.support.traced import graph_of, normal

SMALL = "simulator"


def near(got: object, want: np.ndarray, what: str = "") -> None:
    assert isinstance(got, np.ndarray)
    assert_within(got, want.astype(got.dtype), "attention", what)


def plain_attention(q: Array, k: Array, v: Array) -> object:
    return ops.attention_masked(q, k, v, mask=None, scale=q.shape[3] ** -0.5)


@pytest.mark.parametrize("dk, dv", [(w, w) for w in WIDTHS] + list(PAIRS))
@on(but="simulator emulated")
def test_case_39_and_40_every_column_of_a_key_counts(target: str, dk: int, dv: int):
    """Only the last column of q and k is not zero: weights are uniform where it is left out."""
    q, k, v = qkv(2, 2, 1, 3, 7, dk, dv)
    q[..., :-1], k[..., :-1] = 0, 0
    q *= 8
    want = reference(q, k, v, dk**-0.5)[0]
    assert want.shape == (2, 2, 3, dv)
    if dk <= 64:
        assert np.abs(want - v.mean(2, keepdims=True).repeat(2, 1)).max() > 0.01
    near(fused_only(target, plain_attention, q, k, v), want)


@pytest.mark.parametrize("dk, dv", [(256, 256), (576, 512)])
@on(but="emulated")
def test_case_41_a_wide_head_takes_no_more_than_the_device_has(target: str, dk: int, dv: int):
    q, k, v = qkv(1, 1, 1, 1, 5, dk, dv)
    graph = graph_of(plain_attention, q, k, v)
    program = compile_on(target, graph)
    most = device_of(target).limits.workgroup_nbytes
    for code in program.codes:
        assert sum(4 * s.elems for s in code.kernel.shared) <= most
    got = run_everywhere(graph, feed_of(graph, (q, k, v)), target).outputs[0]
    near(got, reference(q, k, v, dk**-0.5)[0])


KEYS = (1, 2, 31, 32, 33, 38, 39, 63, 65, 70, 77, 127, 129, 137, 192, 255, 257, 1025)


@pytest.mark.parametrize("keys", KEYS)
@on(but="emulated")
def test_case_42_keys_that_fill_no_tile_end_where_they_end(target: str, keys: int):
    """K and V are the first rows of arrays that hold NaN behind them."""
    rows = (1, 5, 64, 137)[KEYS.index(keys) % 4]
    if target == SMALL and rows * keys > 5000:
        rows = 5
    q, k, v = qkv(1, 2, 1, rows, keys, 8, 8)
    tail = np.full((1, 1, 9, 8), np.nan, np.float32)
    longer = [np.concatenate([x, tail], 2) for x in (k, v)]

    def fn(q: Array, k: Array, v: Array) -> object:
        return ops.attention_masked(q, k[:, :, :keys], v[:, :, :keys], mask=None, scale=0.35)

    near(fused_only(target, fn, q, *longer), reference(q, k, v, 0.35)[0])


@on(but="emulated")
def test_case_44_one_key_gives_its_value_whatever_its_score(target: str):
    v = np.asarray(normal(2, 1, 1, 1, 1))
    q = np.ones((1, 1, 2, 1), np.float32)
    for score in (0.0, 1e4, -1e30):
        k = np.full((1, 1, 1, 1), score, np.float32)
        for got in attended(target, plain_attention, q, k, v):
            np.testing.assert_array_equal(got, np.broadcast_to(v, (1, 1, 2, 1)))
    for stride in (4, 28, 0):  # the stride of an axis of one element means nothing
        odd = np.lib.stride_tricks.as_strided(v, (1, 1, 1, 1), (4, 4, 4, stride))
        got = fused_only(target, plain_attention, q, k, odd)
        np.testing.assert_array_equal(got, np.broadcast_to(v, (1, 1, 2, 1)))


@on(but="emulated")
def test_case_45_no_batch_and_no_rows_give_nothing(target: str):
    def fn(q: Array, k: Array, v: Array) -> object:
        return ops.attention_prefill(q, k, v, scale=1.0, causal=False, return_lse=True)

    for shape in ((0, 3952, 3952, 10, 16, 64, 64), (1, 2, 1, 0, 5, 4, 4), (0, 1, 1, 0, 1, 1, 1)):
        q, k, v = qkv(*shape)
        both = on_both(target, fn, q, k, v)
        for out, lse in (both.fused, both.plain):
            assert out.shape == q.shape
            assert lse.shape == q.shape[:3]
    q, k, v = qkv(1, 2, 1, 3, 0, 4, 4)
    with pytest.raises(TypeRuleError, match="at least one key"):
        graph_of(fn, q, k, v)


GROUPS = ((28, 4), (56, 8), (24, 4), (48, 8), (40, 8), (24, 8), (9, 3), (64, 4), (71, 1))


@pytest.mark.parametrize("heads, kv_heads", GROUPS)
@on(but="emulated")
def test_case_47_any_group_size_equals_repeated_heads(target: str, heads: int, kv_heads: int):
    keys = 12 if target == SMALL else 77
    for rows in (1, 3):
        q, k, v = qkv(1, heads, kv_heads, rows, keys, 8, 8)
        k_all, v_all = (x.repeat(heads // kv_heads, 1) for x in (k, v))
        near(fused_only(target, plain_attention, q, k, v), reference(q, k_all, v_all, 8**-0.5)[0])


@pytest.mark.parametrize("heads, kv_heads", [(12, 3), (64, 8), (28, 4)])
@on(but="emulated")
def test_case_48_a_key_head_serves_its_group(target: str, heads: int, kv_heads: int):
    q, k, _ = qkv(1, heads, kv_heads, 1, 4, 2, 2)
    v = np.broadcast_to(np.arange(kv_heads, dtype=np.float32)[:, None, None], k.shape).copy()
    want = np.arange(heads) // (heads // kv_heads)
    for got in attended(target, plain_attention, q, k, v):
        np.testing.assert_allclose(got[0, :, 0, 0], want, rtol=1e-6)


PERMS = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))


@on(but="emulated")
def test_case_50_any_layout_equals_a_contiguous_copy(target: str):
    """Batch, head and row in each order; three slices of one buffer; numpy views of odd strides."""
    q, k, v = qkv(2, 3, 3, 5, 5, 8, 8)
    want = reference(q, k, v, 8**-0.5)[0]
    for perm in PERMS[:2] if target == SMALL else PERMS:
        back = tuple(int(n) for n in np.argsort(perm))

        def fn(q: Array, k: Array, v: Array, back: tuple[int, ...] = back) -> object:
            q, k, v = (x.transpose(*back, 3) for x in (q, k, v))
            return ops.attention_masked(q, k, v, mask=None, scale=8**-0.5)

        moved = [np.ascontiguousarray(x.transpose(*perm, 3)) for x in (q, k, v)]
        near(fused_only(target, fn, *moved), want, str(perm))

    def sliced(packed: Array) -> object:
        parts = [packed[:, :, 24 * n : 24 * n + 24].reshape(2, 5, 3, 8) for n in range(3)]
        q, k, v = (x.transpose(0, 2, 1, 3) for x in parts)
        return ops.attention_masked(q, k, v, mask=None, scale=8**-0.5)

    packed = np.concatenate([x.transpose(0, 2, 1, 3).reshape(2, 5, 24) for x in (q, k, v)], 2)
    near(fused_only(target, sliced, packed), want)
    backward = [np.ascontiguousarray(x[:, :, ::-1])[:, :, ::-1] for x in (q, k, v)]
    near(fused_only(target, plain_attention, *backward), want, "negative strides")


@on(but="emulated")
def test_case_52_a_plan_for_4096_keys_serves_shorter_ones_in_any_order(target: str):
    keys, dims = (4096, 8) if target != SMALL else (400, 4)
    q, k, v = qkv(1, 2, 1, 1, keys, dims, dims)

    def fn(q: Array, k: Array, v: Array, pos: Array) -> object:
        seen = ops.arange(keys) <= pos
        return ops.attention_masked(q, k, v, mask=seen, scale=0.35)

    spec = [poot.weight(x.shape) for x in (q, k, v)]
    graph = poot.trace(fn, (*spec, poot.slot((), kind="pos", range=(0, keys))))
    session = compile_on(target, graph).bind({"q": q, "k": k, "v": v})
    for length in (300, keys, 17):
        got = session.step(pos=np.int32(length - 1))
        near(got, reference(q, k[:, :, :length], v[:, :, :length], 0.35)[0], str(length))
    session.close()


@on(but="emulated")
def test_case_54_more_rows_than_keys_under_a_causal_mask(target: str):
    q, k, v = qkv(1, 2, 1, 5, 2, 4, 4)

    def fn(q: Array, k: Array, v: Array) -> object:
        return ops.attention_prefill(q, k, v, scale=0.5)

    for got in attended(target, fn, q, k, v):
        assert np.isnan(got[:, :, :3]).all()
        np.testing.assert_array_equal(got[0, :, 3], np.broadcast_to(v[0, 0, 0], (2, 4)))
        near(got[:, :, 4:], reference(q, k, v, 0.5)[0][:, :, 4:])
    if target != SMALL:
        q, k, v = qkv(1, 1, 1, 1024, 256, 8, 8)
        got = fused_only(target, fn, q, k, v)
        assert isinstance(got, np.ndarray)
        assert np.isnan(got[0, 0, :768]).all()
        near(got, reference(q, k, v, 0.5, keep=bottom_right(1024, 256))[0])


def test_the_reference_knows_what_a_hidden_row_is():
    out, lse = reference(*qkv(1, 1, 1, 2, 3, 4, 4), 0.5, keep=np.zeros((2, 3), bool))
    assert np.isnan(out).all()
    assert (lse == -INF).all()


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@on(but="emulated")
def test_case_39_odd_widths_keep_every_column_in_each_dtype(target: str, dtype: str):
    """16-bit rows of an odd width share words; each reads and writes its own halves alone."""
    widths = ((1, 1), (33, 63), (63, 33), (64, 1), (80, 96))
    held = DTYPES[dtype].numpy
    for dk, dv in widths:
        q, k, v = qkv(2, 2, 1, 3, 7, dk, dv)
        q[..., :-1], k[..., :-1] = 0, 0
        q, k, v = (x.astype(held) for x in (q * 4, k, v))
        want = reference(q, k, v, dk**-0.5)[0].astype(np.float32)
        assert np.abs(want - v.astype(float).mean(2, keepdims=True).repeat(2, 1)).max() > 0.05
        near(fused_only(target, plain_attention, q, k, v), want, f"{dk} {dv}")
