"""Whole chains: what fuses, what is declined and why, and that nothing changes its meaning."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poot
from poot import ops
from poot.ir.text import parse, show
from poot.ir.verify import verify
from poot.limits import profile
from poot.ops import Array
from poot.ops.expand import expand_all
from poot.oracle import run
from poot.passes.attention.match import fuse_attention
from poot.passes.canonicalize import canonicalize
from poot.passes.pipeline import run_pipeline
from tests.support.chains import chain, chain_inputs, random_form
from tests.support.check import assert_same, check_pass
from tests.support.fused import CLOSE, only, operands, rewrite_of, rewritten
from tests.support.traced import graph_of, normal

INF = math.inf
LIMITS = profile("lavapipe")


def fuse(graph):
    return fuse_attention(canonicalize(graph, LIMITS).graph, LIMITS).graph


def qkv(b=1, hq=2, hkv=2, lq=5, lk=7, d=8, dv=6, dtype="f32"):
    return (
        normal(0, b, hq, lq, d, dtype=dtype),
        normal(1, b, hkv, lk, d, dtype=dtype),
        normal(2, b, hkv, lk, dv, dtype=dtype),
    )


def plain(q: Array, k: Array, v: Array, change: Callable[[Array], Array] = lambda s: s) -> Array:
    scores = change(q @ k.swapaxes(2, 3))
    return ops.softmax(scores, 3) @ v


def test_the_chain_of_the_seed_becomes_one_eqn():
    check_pass(
        fuse,
        """
        in v0: f32[1,6,1,8]
        in v1: f32[1,2,5,8]
        in v2: f32[1,2,5,8]
        in v3: f32[1,1,1,5]
        v4: f32[1,2,1,5,8] = reshape(v1) shape=(1, 2, 1, 5, 8)
        v5: f32[1,2,3,5,8] = broadcast(v4) shape=(1, 2, 3, 5, 8)
        v6: f32[1,6,5,8] = reshape(v5) shape=(1, 6, 5, 8)
        v7: f32[1,2,1,5,8] = reshape(v2) shape=(1, 2, 1, 5, 8)
        v8: f32[1,2,3,5,8] = broadcast(v7) shape=(1, 2, 3, 5, 8)
        v9: f32[1,6,5,8] = reshape(v8) shape=(1, 6, 5, 8)
        v10: f32[1,6,8,5] = transpose(v6) perm=(0, 1, 3, 2)
        v11: f32[1,6,1,5] = matmul(v0, v10)
        v12: f32[] = const() dtype=f32 shape=() value=0.5
        v13: f32[1,6,1,5] = mul(v11, v12)
        v14: f32[1,6,1,5] = add(v13, v3)
        v15: f32[1,6,1,1] = reduce(v14) axis=(3,) keepdim=True kind=max
        v16: f32[1,6,1,5] = sub(v14, v15)
        v17: f32[1,6,1,5] = exp(v16)
        v18: f32[1,6,1,1] = reduce(v17) axis=(3,) keepdim=True kind=sum
        v19: f32[1,6,1,5] = div(v17, v18)
        v20: f32[1,6,1,8] = matmul(v19, v9)
        out v20
        """,
        """
        in v0: f32[1,6,1,8]
        in v1: f32[1,2,5,8]
        in v2: f32[1,2,5,8]
        in v3: f32[1,1,1,5]
        v4: f32[1,6,1,8] = attention(v0, v1, v2, v3) operands=(q, k, v, mask) scale=0.5
        out v4
        """,
        within=CLOSE,
    )


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_chains_fuse_in_every_spelling(rng: Random):
    form = random_form(rng)
    got = rewritten(chain(form))
    # In 16 bits log2(e) * ln(2) is not 1: the mask would have to be scaled.
    odd = form.softmax == "exp2" and form.dtype != "f32" and not form.widen
    if odd and any(m in ("add", "add rows", "alibi") for m in form.masks):
        assert got.eqns("attention") == []
        assert "scaled after a mask" in got.declined[0]
    else:
        heads = form.batch * form.kv_heads if form.axes == 3 else form.kv_heads
        assert only(got).ins[1].type.shape[1] == heads
        assert got.eqns("matmul") == []
        assert got.eqns("exp") == []
    got.check(chain_inputs(got.before, rng.getrandbits(30)))


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False))
def test_what_is_fused_expands_to_the_same(rng: Random):
    graph = fuse(chain(random_form(rng)))
    feed = chain_inputs(graph, 0)
    wide = expand_all(graph)
    verify(wide)
    assert_same(run(graph, feed, f64=True), run(wide, feed, f64=True), CLOSE)


@pytest.mark.parametrize("hide", [-1e9, float(np.finfo(np.float32).min), -INF])
def test_hidden_keys_mean_the_same_in_f32_arithmetic(hide: float):
    for seed in range(6):
        form = replace(random_form(Random(seed)), dtype="f32", masks=("add",), softmax="max")
        graph = chain(form)
        feed = chain_inputs(graph, seed, hide)
        assert_same(run(graph, feed), run(fuse(graph), feed), 2e-5)


def spellings() -> dict[str, Callable[[Array, Array, Array], Array]]:
    """Case 108, and more."""
    c = 8**-0.5
    keep = np.tril(np.ones((5, 7), bool), 2)
    bias = np.where(keep, 0.0, -INF).astype(np.float32)

    def safe(q: Array, k: Array, v: Array) -> Array:
        s = (q @ k.swapaxes(2, 3)) * c
        e = ops.exp(s - s.max(3, keepdims=True))
        return (e / e.sum(3, keepdims=True)) @ v

    def bare(q: Array, k: Array, v: Array) -> Array:
        e = ops.exp((q @ k.swapaxes(2, 3)) * c)
        return (e / e.sum(3, keepdims=True)) @ v

    root = 8**-0.25
    return {
        "scale on q": lambda q, k, v: plain(q * c, k, v),
        "scale on k": lambda q, k, v: plain(q, k * c, v),
        "roots on both": lambda q, k, v: plain(q * root, k * root, v),
        "times the scores": lambda q, k, v: plain(q, k, v, lambda s: s * c),
        "over the scores": lambda q, k, v: plain(q, k, v, lambda s: s / math.sqrt(8)),
        "maximum taken away": safe,
        "no maximum": bare,
        "mask added": lambda q, k, v: plain(q, k, v, lambda s: s * c + bias),
        "mask by select": lambda q, k, v: plain(q, k, v, lambda s: ops.where(keep, s * c, -INF)),
    }


@pytest.mark.parametrize("name", list(spellings()))
def test_one_meaning_in_many_spellings_fuses(name: str):
    got = rewrite_of(spellings()[name], *qkv())
    assert only(got).attr("scale") == pytest.approx(8**-0.5, rel=1e-6)
    assert got.declined == ()


@pytest.mark.parametrize("scale", [0.05, 1 / 8, 8.0, math.sqrt(8.0), 1.0, None])
@pytest.mark.parametrize("times", [True, False])
def test_the_users_scale_is_kept(scale: float | None, times: bool):
    def fn(q: Array, k: Array, v: Array) -> Array:
        if scale is None:
            return plain(q, k, v)
        return plain(q, k, v, lambda s: s * scale if times else s / scale)

    got = only(rewrite_of(fn, *qkv(d=64)))
    want = 1.0 if scale is None else scale if times else 1 / scale
    assert got.attr("scale") == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -2])
def test_only_a_softmax_over_the_keys_fuses(axis: int):
    def fn(q: Array, k: Array, v: Array) -> Array:
        return ops.softmax(q @ k.swapaxes(2, 3), axis) @ v

    got = rewrite_of(fn, normal(0, 4, 4, 2, 8), normal(1, 4, 4, 3, 8), normal(2, 4, 4, 3, 8))
    assert len(got.eqns("attention")) == (axis in (3, -1))
    if axis not in (3, -1):
        assert f"over axis {axis % 4} of 4" in got.declined[0]


def test_a_square_softmax_divided_by_another_rows_sums_is_none():
    def fn(q: Array, k: Array, v: Array) -> Array:
        e = ops.exp(q @ k.swapaxes(0, 1))
        return (e / e.sum(1)) @ v

    got = rewrite_of(fn, normal(0, 5, 8), normal(1, 5, 8), normal(2, 5, 8))
    assert got.eqns("attention") == []


def test_values_and_weights_of_any_leading_axes_fuse():
    for lead in ((), (3,), (2, 3), (1, 2, 3), (2, 1, 2, 3)):
        arrays = [normal(n, *lead, 4, 8) for n in range(3)]
        rank = len(lead)

        def fn(q: Array, k: Array, v: Array, rank: int = rank) -> Array:
            return ops.softmax(q @ k.swapaxes(rank, rank + 1), rank + 1) @ v

        only(rewrite_of(fn, *arrays))


def declines() -> dict[str, tuple[Callable[..., object], str]]:
    """name -> (a function of q, k and v, what the note says)."""
    cap = 2.0
    bias = normal(5, 1, 1, 5, 7)

    def weights_out(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        p = ops.softmax(q @ k.swapaxes(2, 3), 3)
        return p @ v, p

    def scores_read(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        s = q @ k.swapaxes(2, 3)
        return ops.softmax(s, 3) @ v, ops.sqrt(s * s)

    def tensor_scale(q: Array, k: Array, v: Array) -> Array:
        return plain(q, k, v, lambda s: s * q[0, 0, 0, 0])

    def own_values(q: Array, k: Array, v: Array) -> Array:
        s = q @ q.swapaxes(2, 3)
        return ops.softmax(s, 3) @ s

    return {
        "weights are an output": (weights_out, r"the weights \(div\) are an output"),
        "scores are read again": (scores_read, "is read elsewhere, by mul at .*test_match.py"),
        "the values are the scores": (own_values, "is read elsewhere"),
        "the scale is a tensor": (tensor_scale, "the scale is a tensor.*multiply q by it"),
        "the mask multiplies": (
            lambda q, k, v: plain(q, k, v, lambda s: s * bias),
            "multiplies the scores is not additive",
        ),
        "softcap after the mask": (
            lambda q, k, v: plain(q, k, v, lambda s: ops.softcap(s + bias, cap)),
            "softcap after the mask",
        ),
        "a mask after a select": (
            lambda q, k, v: plain(q, k, v, lambda s: ops.where(bias > 0, s, -INF) + bias),
            "added after scores were selected away",
        ),
        "two fills": (
            lambda q, k, v: plain(
                q, k, v, lambda s: ops.where(bias > 0, ops.where(bias < 1, s, -1e9), -INF)
            ),
            "unlike numbers",
        ),
        "a scale after the mask": (
            lambda q, k, v: plain(q, k, v, lambda s: (s + bias) * 2.0),
            "scaled after a mask is added",
        ),
        "something else between": (
            lambda q, k, v: plain(q, k, v, lambda s: ops.maximum(s, 0.0)),
            "pass through max",
        ),
        "a fill that is a tensor": (
            lambda q, k, v: plain(q, k, v, lambda s: ops.where(bias > 0, s, bias)),
            "is no number",
        ),
    }


@pytest.mark.parametrize("name", list(declines()))
def test_what_is_not_proved_stays_with_a_reason(name: str):
    fn, why = declines()[name]
    got = rewrite_of(fn, *qkv(lq=5, lk=7, d=7, dv=7))
    assert got.eqns("attention") == []
    assert len(got.declined) == 1
    assert re.search(why, got.declined[0]), got.declined


def test_a_decline_names_the_users_line():
    def fn(q: Array, k: Array, v: Array) -> Array:
        s = ops.maximum(q @ k.swapaxes(2, 3), 0.0)
        return ops.softmax(s, 3) @ v

    graph = canonicalize(graph_of(fn, *qkv()), LIMITS).graph
    (note,) = fuse_attention(graph, LIMITS).notes
    line = fn.__code__.co_firstlineno + 1
    assert note.loc.endswith(f"test_match.py:{line}")


@pytest.mark.parametrize("which", ["key", "value"])
def test_a_head_that_only_the_matmul_repeats_is_declined_with_the_remedy(which: str):
    q, k, v = qkv(hq=4, hkv=4)
    k, v = (k[:, :1], v) if which == "key" else (k, v[:, :1])
    got = rewrite_of(lambda q, k, v: plain(q, k, v), q, k, v)
    assert got.eqns("attention") == []
    want = f"one {which} head is broadcast over 4 query heads in the matmul; write ops.repeat_kv"
    assert want in got.declined[0]


def test_one_key_head_repeated_by_the_program_is_read_once():
    def fn(q: Array, k: Array, v: Array) -> Array:
        shape = (1, 4, 7, 8)
        return plain(q, ops.broadcast_to(k, shape), ops.broadcast_to(v, shape))

    got = only(rewrite_of(fn, *qkv(hq=4, hkv=1, dv=8)))
    assert operands(got)["k"] == "f32[1,1,7,8]"


def test_heads_that_are_tiled_keep_their_order():
    """Case 48 the other way round: query head h with key head h % Hkv is no repeat_kv."""

    def fn(q: Array, k: Array, v: Array) -> Array:
        k, v = (ops.concat([x, x], 1) for x in (k, v))
        return plain(q, k, v)

    got = only(rewrite_of(fn, *qkv(hq=4, hkv=2)))
    assert operands(got)["k"] == "f32[1,4,7,8]"


def test_keys_and_values_repeated_unlike_keep_what_they_share():
    def fn(q: Array, k: Array, v: Array) -> Array:
        return plain(q, ops.repeat_kv(k, 4), ops.repeat_kv(v, 2))

    got = only(rewrite_of(fn, normal(0, 1, 4, 5, 8), normal(1, 1, 1, 7, 8), normal(2, 1, 2, 7, 8)))
    assert operands(got)["k"] == operands(got)["v"] == "f32[1,2,7,8]"


def test_a_key_shared_by_the_batch_is_broadcast_as_it_is_read():
    got = only(rewrite_of(lambda q, k, v: plain(q, k, v), *qkv(b=1, lq=3)[:1], *qkv()[1:]))
    q = normal(0, 3, 2, 5, 8)
    got = only(rewrite_of(lambda q, k, v: plain(q, k, v), q, *qkv()[1:]))
    assert operands(got)["k"] == "f32[3,2,7,8]"


def test_rows_that_fit_no_grid_keep_their_primitives():
    limits = replace(LIMITS, grid=(4, 2, 1))
    small = rewritten(graph_of(lambda q, k, v: plain(q, k, v), *qkv(lq=4)), limits)
    large = rewritten(graph_of(lambda q, k, v: plain(q, k, v), *qkv(lq=5)), limits)
    assert len(small.eqns("attention")) == 1
    assert large.eqns("attention") == []
    assert "10 query rows fit no grid of 4 by 2" in large.declined[0]


def test_a_chain_of_small_products_is_no_attention():
    def fn(a: Array, b: Array, c: Array) -> Array:
        return ((a @ b) @ c) @ (a @ b)

    got = rewrite_of(fn, *(normal(n, 3, 2, 2) for n in range(3)))
    assert got.eqns("attention") == []
    assert got.declined == ()


def test_weights_with_as_many_keys_as_channels_fuse_as_they_are():
    """Case 112: batched weights with Lk = D."""
    got = only(rewrite_of(lambda q, k, v: plain(q, k, v), *qkv(lq=4, lk=8, d=8, dv=8)))
    assert operands(got)["k"] == "f32[1,2,8,8]"


def test_dropped_weights_are_not_taken_for_dropout():
    drop = (normal(7, 1, 2, 5, 7) > 0).astype(np.float32)
    got = rewrite_of(lambda q, k, v: (ops.softmax(q @ k.swapaxes(2, 3), 3) * drop) @ v, *qkv())
    assert got.eqns("attention") == []
    kept = rewrite_of(lambda q, k, v: (ops.softmax(q @ k.swapaxes(2, 3), 3) * 1.0) @ v, *qkv())
    only(kept)


def test_scores_in_f32_of_16_bit_operands_are_the_16_bit_op():
    def fn(q: Array, k: Array, v: Array) -> Array:
        q, k = q.astype("f32"), k.astype("f32")
        return ops.softmax(q @ k.swapaxes(2, 3), 3).astype("f16") @ v

    got = only(rewrite_of(fn, *qkv(dtype="f16")))
    assert operands(got) == {"q": "f16[1,2,5,8]", "k": "f16[1,2,7,8]", "v": "f16[1,2,7,6]"}


def test_a_16_bit_result_in_f32_keeps_its_precision():
    def fn(q: Array, k: Array, v: Array) -> Array:
        p = ops.softmax((q @ k.swapaxes(2, 3)).astype("f32"), 3)
        return p @ v.astype("f32")

    got = only(rewrite_of(fn, *qkv(dtype="f16")))
    assert str(got.out.type) == "f32[1,2,5,6]"


@pytest.mark.parametrize("heads", [1, 2])
def test_a_scale_that_is_no_number_stays_right_and_unfused(heads: int):
    """Case 107: a scale [] or one a head, known only at run time."""
    shape = () if heads == 1 else (2, 1, 1)
    scale = np.asarray(normal(9, *shape))
    arrays = (*qkv(), scale)

    def fn(q: Array, k: Array, v: Array, scale: Array) -> Array:
        return plain(q, k, v, lambda s: s * scale)

    got = rewrite_of(fn, *arrays)
    assert got.eqns("attention") == []
    assert "the scale is a tensor" in got.declined[0]


def test_a_scale_in_an_array_of_one_number_is_that_number():
    """Case 107: a 0-d tensor of the trace, and one a head that are all alike."""
    for scale in (np.float32(0.5), np.full((2, 1, 1), 0.5, np.float32)):

        def fn(q: Array, k: Array, v: Array, scale: object = scale) -> Array:
            return plain(q, k, v, lambda s: s * scale)

        assert only(rewrite_of(fn, *qkv())).attr("scale") == 0.5


def test_operands_of_five_axes_fuse():
    """Case 107: 1x1x2x1x8."""
    arrays = [normal(n, 1, 1, 2, 1, 8) for n in range(3)]

    def fn(q: Array, k: Array, v: Array) -> Array:
        return ops.softmax((q @ k.swapaxes(3, 4)) * 0.3, 4) @ v

    only(rewrite_of(fn, *arrays))


def test_a_padding_mask_is_not_lost():
    """Case 110: [B,1,1,L] in an encoder."""
    keep = np.ones((2, 1, 1, 7), np.int32)
    keep[0, ..., 3:], keep[1, ..., 2:] = 0, 0
    arrays = (*qkv(b=2, lq=7), keep)

    def masked(q: Array, k: Array, v: Array, m: Array) -> Array:
        return plain(q, k, v, lambda s: ops.where(m == 1, s, -1e9))

    graph = graph_of(masked, *arrays)
    feed = dict(zip([i.name for i in graph.inputs], arrays, strict=True))
    got, want = (run(g, feed).outputs[0].ravel() for g in (rewritten(graph).after, graph))
    bare = graph_of(lambda q, k, v: plain(q, k, v), *arrays[:3])
    names = [i.name for i in bare.inputs]
    open_ = run(bare, dict(zip(names, arrays[:3], strict=True))).outputs[0].ravel()

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    assert cosine(got, want) > 1 - 1e-6
    assert cosine(got, open_) < 0.9


def test_a_broadcast_bool_mask_stores_no_scores():
    """Case 111: 28 heads of 5224 rows and keys in bf16 under a mask [1,1,1,5224]."""

    def fn(q: Array, k: Array, v: Array, m: Array) -> Array:
        s = (q @ k.swapaxes(2, 3)).astype("f32") * 128**-0.5
        s = ops.where(ops.broadcast_to(m == 1, s.shape), s, -INF)
        return ops.softmax(s, 3).astype("bf16") @ v

    spec = poot.weight((1, 28, 5224, 128), "bf16")
    graph = poot.trace(fn, (spec, spec, spec, poot.slot((1, 1, 1, 5224), "i32")))
    got, reports = run_pipeline(graph, LIMITS)
    assert len(got.eqns) <= 2
    assert all(r.declined == () for r in reports)
    assert sum(v.type.nbytes for e in got.eqns for v in e.outs) < 100e6


def test_a_text_with_nothing_to_fuse_stays():
    text = """
        in v0: f32[3,4]
        in v1: f32[4,5]
        v2: f32[3,5] = matmul(v0, v1)
        out v2
        """
    assert show(fuse(parse(text))) == show(parse(text))
