"""Softmax by way of a logarithm, in its spellings and near misses."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from poot import ops
from poot.ops import Array
from tests.support.fused import only, operands, rewrite_of, rewritten
from tests.support.traced import graph_of, normal

ARRAYS = (normal(0, 2, 4, 5, 8), normal(1, 2, 4, 7, 8), normal(2, 2, 4, 7, 6))


def scored(q: Array, k: Array, mask: Array | None = None) -> Array:
    scores = (q @ k.swapaxes(2, 3)) * 0.3
    return scores if mask is None else scores + mask


def log_softmax(s: Array) -> Array:
    low = s - s.max(-1, keepdims=True)
    return low - ops.log(ops.exp(low).sum(-1, keepdims=True))


def plain(s: Array) -> Array:
    return s - ops.log(ops.exp(s).sum(-1, keepdims=True))


def logsumexp(s: Array) -> Array:
    """As torch and JAX have it: an infinite maximum isn't taken away."""
    top = s.max(-1, keepdims=True)
    top = ops.where(ops.abs(top) < float("inf"), top, 0.0)
    return ops.log(ops.abs(ops.exp(s - top).sum(-1, keepdims=True))) + top


def without_axis(s: Array) -> Array:
    top = s.max(-1)
    low = s - top.reshape(*top.shape, 1)
    total = ops.log(ops.exp(low).sum(-1)) + top
    return s - total.reshape(*total.shape, 1)


def with_maximum(s: Array) -> Array:
    top = s.max(-1, keepdims=True)
    return top + ops.log(ops.exp(s - top).sum(-1, keepdims=True))


SPELLINGS = {
    "log_softmax": log_softmax, "plain": plain, "without_axis": without_axis,
    "logsumexp": lambda s: s - logsumexp(s),
    "maximum": lambda s: s - with_maximum(s),
}  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_exps_of_scores_less_their_log_sum_are_a_softmax(spelling: str):
    eqn = only(rewrite_of(lambda q, k, v: ops.exp(SPELLINGS[spelling](scored(q, k))) @ v, *ARRAYS))
    assert operands(eqn)["k"] == "f32[2,4,7,8]"


@pytest.mark.parametrize("spelling", ["log_softmax", "logsumexp"])
def test_a_mask_and_rows_that_see_nothing_stay_what_they_are(spelling: str):
    mask = np.where(np.tril(np.ones((5, 7), bool), 1), 0, -np.inf).astype(np.float32)
    mask[3] = -np.inf

    def fn(q: Array, k: Array, v: Array, mask: Array) -> Array:
        return ops.exp(SPELLINGS[spelling](scored(q, k, mask))) @ v

    assert "mask" in operands(only(rewrite_of(fn, *ARRAYS, mask)))


def test_scores_of_sixteen_bits_are_widened_for_it():
    def fn(q: Array, k: Array, v: Array) -> Array:
        weights = ops.exp(log_softmax((q @ k.swapaxes(2, 3)).astype("f32")))
        return weights.astype("bf16") @ v

    got = rewritten(graph_of(fn, *(x.astype(ml_dtypes.bfloat16) for x in ARRAYS)))
    assert operands(only(got))["q"] == "bf16[2,4,5,8]"


def of_others(s: Array) -> Array:
    return s - ops.log(ops.exp(s * 0.5).sum(-1, keepdims=True))


def of_another_maximum(s: Array) -> Array:
    top = s.max(-1, keepdims=True)
    return s - (ops.log(ops.exp(s - top).sum(-1, keepdims=True)) + top * 0.5)


def doubled(s: Array) -> Array:
    return s - ops.log(ops.exp(s).sum(-1, keepdims=True)) * 2.0


def over_rows(s: Array) -> Array:
    return s - ops.log(ops.exp(s).sum(2, keepdims=True))


@pytest.mark.parametrize("spelling", [of_others, of_another_maximum, doubled])
def test_a_log_sum_of_something_else_is_none_and_said_so(spelling):
    got = rewrite_of(lambda q, k, v: ops.exp(spelling(scored(q, k))) @ v, *ARRAYS)
    assert got.eqns("attention") == []
    assert any("nothing divides by their sum" in why for why in got.declined)


def test_a_log_sum_over_another_axis_is_said_so():
    square = (ARRAYS[0], ARRAYS[1][:, :, :5], ARRAYS[2][:, :, :5])
    got = rewrite_of(lambda q, k, v: ops.exp(over_rows(scored(q, k))) @ v, *square)
    assert got.eqns("attention") == []
    assert any("the softmax is over axis 2 of 4" in why for why in got.declined)


def test_rows_that_lie_across_are_none():
    """Of five rows and five keys the log-sums of rows are taken from the columns."""
    square = (ARRAYS[0], ARRAYS[1][:, :, :5], ARRAYS[2][:, :, :5])

    def fn(q: Array, k: Array, v: Array) -> Array:
        s = scored(q, k)
        return ops.exp(s - ops.log(ops.exp(s).sum(-1, keepdims=True)).swapaxes(2, 3)) @ v

    assert rewrite_of(fn, *square).eqns("attention") == []


def test_a_log_sum_that_is_an_output_keeps_the_chain_and_says_so():
    def fn(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        s = scored(q, k)
        total = logsumexp(s)
        return ops.exp(s - total) @ v, total

    got = rewrite_of(fn, *ARRAYS)
    assert got.eqns("attention") == []
    assert any("the log-sum-exp (add) is an output" in why for why in got.declined)


def test_exps_that_nothing_divides_or_something_else_does_are_said_so():
    def bare(q: Array, k: Array, v: Array) -> Array:
        return ops.exp(scored(q, k)) @ v

    def other(q: Array, k: Array, v: Array) -> Array:
        exps = ops.exp(scored(q, k))
        return (exps / (exps.sum(-1, keepdims=True) + 1.0)) @ v

    def late(q: Array, k: Array, v: Array) -> Array:
        exps = ops.exp(scored(q, k))
        return (exps @ v) / (exps.sum(-1, keepdims=True) + 1.0)

    else_ = "something else than their sum"
    for fn, why in ((bare, "nothing divides by their sum"), (other, else_), (late, else_)):
        got = rewrite_of(fn, *ARRAYS)
        assert got.eqns("attention") == []
        assert len([w for w in got.declined if why in w]) == 1, (fn, got.declined)


def test_a_log_sum_beside_a_sink_and_what_follows_the_product_are_said_so():
    """Whatever reads the product: a product by a number and a move are no division."""

    def sunk(q: Array, k: Array, v: Array) -> Array:
        s = scored(q, k)
        total = logsumexp(s)
        most = ops.maximum(total, 0.5)
        both = most + ops.log(ops.exp(total - most) + ops.exp(0.5 - most))
        return ops.exp(s - both) @ v

    after = (lambda o: o, lambda o: o * 2.0, lambda o: o.transpose(0, 2, 1, 3), lambda o: o + o)
    for then in after:
        got = rewrite_of(lambda q, k, v, then=then: then(sunk(q, k, v)), *ARRAYS)
        assert got.eqns("attention") == []
        (why,) = [w for w in got.declined if "nothing divides by their sum" in w]
        assert why.startswith("attention not fused: ")
