"""The log-sum-exp as a second result, and where it is not one."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from poot import ops
from poot.ops import Array
from poot.oracle import run
from tests.support.check import assert_same
from tests.support.fused import CLOSE, only, operands, rewrite_of, rewritten
from tests.support.traced import graph_of, normal

INF = math.inf


def qkv(dtype: str = "f32") -> tuple[np.ndarray, ...]:
    shapes = ((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6))
    return tuple(normal(n, *s, dtype=dtype) for n, s in enumerate(shapes))


def with_lse(**options: object) -> Callable[..., object]:
    def fn(q: Array, k: Array, v: Array) -> object:
        return ops.attention_prefill(q, k, v, scale=0.3, return_lse=True, **options)

    return fn


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("options", [{}, {"causal": False}, {"softcap": 3.0}, {"window": 2}])
def test_a_log_sum_exp_is_the_second_result(dtype: str, options: dict[str, object]):
    got = only(rewrite_of(with_lse(**options), *qkv(dtype)))
    assert got.attr("lse") is True
    assert [str(v.type) for v in got.outs] == [f"{dtype}[2,4,5,6]", "f32[2,4,5]"]


def test_a_row_that_sees_nothing_has_minus_infinity():
    def fn(q: Array, k: Array, v: Array) -> object:
        return ops.attention_prefill(q, k, v, scale=0.3, return_lse=True)

    arrays = (normal(0, 1, 2, 5, 4), normal(1, 1, 2, 2, 4), normal(2, 1, 2, 2, 4))
    graph = graph_of(fn, *arrays)
    got = rewritten(graph)
    only(got)
    feed = dict(zip([i.name for i in graph.inputs], arrays, strict=True))
    want, ours = run(graph, feed, f64=True), run(got.after, feed, f64=True)
    assert_same(want, ours, CLOSE)
    assert (ours.outputs[1][:, :, :3] == -INF).all()
    assert np.isfinite(ours.outputs[1][:, :, 3:]).all()


def test_parts_merged_by_their_sums_fuse_both():
    """Case 73: 7 keys as 3 and 4."""

    def fn(q: Array, k: Array, v: Array) -> Array:
        parts = [
            ops.attention_prefill(
                q, k[:, :, a:b], v[:, :, a:b], scale=0.3, causal=False, return_lse=True
            )
            for a, b in ((0, 3), (3, 7))
        ]
        return ops.merge_attention(*parts)[0]

    def whole(q: Array, k: Array, v: Array) -> object:
        return ops.attention_prefill(q, k, v, scale=0.3, causal=False)

    arrays = qkv()
    got = rewrite_of(fn, *arrays)
    assert len(got.eqns("attention")) == 2
    feed = dict(zip([i.name for i in got.before.inputs], arrays, strict=True))
    one = graph_of(whole, *arrays)
    want = run(one, dict(zip([i.name for i in one.inputs], arrays, strict=True)), f64=True)
    np.testing.assert_allclose(
        run(got.after, feed, f64=True).outputs[0], want.outputs[0], rtol=0, atol=1e-6
    )


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(lambda top, total: top + ops.log(total), id="no select for empty rows"),
        pytest.param(
            lambda top, total: ops.where(top == -INF, -INF, top - ops.log(total)), id="minus"
        ),
        pytest.param(
            lambda top, total: ops.where(top == -INF, 0.0, top + ops.log(total)), id="zero"
        ),
    ],
)
def test_another_use_of_top_and_total_keeps_the_chain(what: Callable[[Array, Array], Array]):
    def fn(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        k, v = ops.repeat_kv(k, 2), ops.repeat_kv(v, 2)
        s = q @ k.swapaxes(2, 3)
        top = s.max(3, keepdims=True)
        e = ops.exp(s - top)
        total = e.sum(3, keepdims=True)
        return (e / total) @ v, what(top, total)

    got = rewrite_of(fn, *qkv())
    assert got.eqns("attention") == []
    assert "is read elsewhere" in got.declined[0]


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_a_log_sum_exp_beside_a_sink_is_that_of_the_keys_alone(dtype: str):
    def fn(q: Array, k: Array, v: Array, sink: Array) -> object:
        return ops.attention_prefill(q, k, v, scale=0.3, sink=sink, return_lse=True)

    got = only(rewrite_of(fn, *qkv(dtype), normal(3, 4, dtype=dtype)))
    assert got.attr("lse") is True
    assert "sink" in operands(got)


def with_sink(lse: Callable[[Array, Array, Array], Array]) -> Callable[..., object]:
    def fn(q: Array, k: Array, v: Array, sink: Array) -> tuple[Array, Array]:
        k, v = ops.repeat_kv(k, 2), ops.repeat_kv(v, 2)
        s = q @ k.swapaxes(2, 3)
        logit = sink.reshape(1, -1, 1, 1)
        top = ops.maximum(s.max(3, keepdims=True), logit)
        e = ops.exp(s - top)
        total = e.sum(3, keepdims=True) + ops.exp(logit - top)
        return (e / total) @ v, lse(s, top, total)

    return fn


@pytest.mark.parametrize(
    "lse",
    [
        pytest.param(lambda s, top, total: top + ops.log(total), id="the sink in it"),
        pytest.param(
            lambda s, top, total: ops.where(
                s.max(3, keepdims=True) == -INF,
                -INF,
                s.max(3, keepdims=True) + ops.log(ops.exp(s - top).sum(3, keepdims=True)),
            ),
            id="a sum under another maximum",
        ),
        pytest.param(
            lambda s, top, total: ops.where(
                s.max(3, keepdims=True) == -INF,
                -INF,
                s.max(3, keepdims=True)
                + ops.log(ops.exp(s * 2.0 - s.max(3, keepdims=True)).sum(3, keepdims=True)),
            ),
            id="a sum of other scores",
        ),
    ],
)
def test_another_sum_beside_a_sink_keeps_the_chain(lse: Callable[[Array, Array, Array], Array]):
    got = rewrite_of(with_sink(lse), *qkv(), normal(3, 4))
    assert got.eqns("attention") == []
    assert "is read elsewhere" in got.declined[0]
