"""Softmax by itself, in its spellings and near misses."""

from __future__ import annotations

import numpy as np
import pytest

from poot import ops
from poot.ir.text import parse
from poot.ops import Array
from poot.passes.attention.declines import Decline
from poot.passes.attention.softmax import Chain, Softmax, match_softmax
from poot.passes.engine import Scope
from tests.support.fused import only, operands, rewrite_of
from tests.support.traced import normal


def found(text: str) -> tuple[Softmax | None, set[str], Scope]:
    """The match of a text's output, the ops of its chain, and the scope."""
    graph = parse(text)
    scope = Scope(graph)
    scope.sweep(())
    chain = Chain()
    got = match_softmax(scope, graph.outputs[0], chain)
    return got, {e.op for e in chain.eqns.values()}, scope


HEAD = "in v0: f32[4,4]\n"
EXP = "v1: f32[4,4] = exp(v0)\n"
SUM = "v2: f32[4,1] = reduce(v1) axis=(1,) keepdim=True kind=sum\n"
END = "v9: f32[4,4] = div(v1, v2)\nout v9"
FLAT = "v3: f32[4] = reduce(v1) axis=(1,) keepdim=False kind=sum\n"


def test_exps_over_their_sum_are_a_softmax():
    got, ops, scope = found(HEAD + EXP + SUM + END)
    assert got is not None
    assert got.scores == scope.graph.inputs[0].var
    assert got.factor == 1.0
    assert ops == {"exp", "reduce", "div"}


def test_a_row_sum_without_its_axis_divides_rows_only_where_it_is_put_back():
    good = HEAD + EXP + FLAT + "v2: f32[4,1] = reshape(v3) shape=(4, 1)\n" + END
    bad = HEAD + EXP + FLAT + "v9: f32[4,4] = div(v1, v3)\nout v9"
    assert found(good)[0] is not None
    assert found(bad)[0] is None


def test_a_sum_spread_over_the_wrong_axis_is_none():
    spread = "v4: f32[4,4] = broadcast(v3) shape=(4, 4)\nv9: f32[4,4] = div(v1, v4)\nout v9"
    assert found(HEAD + EXP + FLAT + spread)[0] is None


def test_a_reciprocal_times_the_exps_is_a_division():
    text = "v3: f32[4,1] = recip(v2)\nv9: f32[4,4] = mul(v3, v1)\nout v9"
    assert found(HEAD + EXP + SUM + text)[0] is not None


def test_a_factor_between_the_maximum_and_the_exps_is_kept():
    text = """
        in v0: f32[4,4]
        v1: f32[4,1] = reduce(v0) axis=(1,) keepdim=True kind=max
        v2: f32[4,4] = sub(v0, v1)
        v3: f32[] = const() dtype=f32 shape=() value=0.5
        v4: f32[4,4] = mul(v2, v3)
        v5: f32[4,4] = exp(v4)
        v6: f32[4,1] = reduce(v5) axis=(1,) keepdim=True kind=sum
        v7: f32[4,4] = div(v5, v6)
        out v7
        """
    got, ops, scope = found(text)
    assert got is not None
    assert got.factor == 0.5
    assert got.scores == scope.graph.inputs[0].var
    assert {"sub", "mul"} < ops


def test_scores_less_something_else_are_the_scores():
    other = """
        in v0: f32[4,4]
        in v8: f32[4,1]
        v7: f32[4,4] = sub(v0, v8)
        v1: f32[4,4] = exp(v7)
        """
    got, ops, _ = found(other + SUM + END)
    assert got is not None
    assert got.scores.id == 7
    assert "sub" not in ops


def test_exps_over_the_sum_of_others_are_none():
    text = HEAD + EXP + "v5: f32[4,4] = exp(v1)\n" + SUM + "v9: f32[4,4] = div(v5, v2)\nout v9"
    assert found(text)[0] is None


def test_a_sum_over_another_axis_is_said_so():
    text = HEAD + EXP + "v2: f32[1,4] = reduce(v1) axis=(0,) keepdim=True kind=sum\n" + END
    with pytest.raises(Decline, match="over axis 0 of 2"):
        found(text)


def test_a_sum_with_something_added_is_none():
    text = "v3: f32[4,1] = add(v2, v2)\nv9: f32[4,4] = div(v1, v3)\nout v9"
    assert found(HEAD + EXP + SUM + text)[0] is None


def by_operand(q: Array, k: Array, v: Array, sink: Array) -> Array:
    out = ops.attention_prefill(q, k, v, scale=0.3, sink=sink)
    assert isinstance(out, Array)
    return out


def by_column(q: Array, k: Array, v: Array, sink: Array) -> Array:
    """An extra logit joined to the scores and cut off again, as case 13 has it."""
    k, v = (ops.repeat_kv(x, 2) for x in (k, v))
    scores = (q @ k.swapaxes(2, 3)) * 0.3
    wide = ops.broadcast_to(sink.reshape(1, 4, 1, 1), (2, 4, 5, 1))
    return ops.softmax(ops.concat([scores, wide], 3), 3)[..., :-1] @ v


@pytest.mark.parametrize("fn", [by_operand, by_column])
@pytest.mark.parametrize("logit", [2.0, 100.0, -1e4])
def test_a_sink_joins_the_maximum_and_the_sum(fn, logit: float):
    arrays = (normal(0, 2, 4, 5, 8), normal(1, 2, 2, 7, 8), normal(2, 2, 2, 7, 6))
    got = only(rewrite_of(fn, *arrays, normal(3, 4) + np.float32(logit)))
    assert operands(got)["sink"] == "f32[4]"
    assert operands(got)["k"] == "f32[2,2,7,8]"


def test_a_sink_that_differs_by_row_is_declined():
    def fn(q: Array, k: Array, v: Array, sink: Array) -> Array:
        scores = q @ k.swapaxes(2, 3)
        return ops.softmax(ops.concat([scores, sink], 3), 3)[..., :-1] @ v

    arrays = (normal(0, 1, 2, 5, 8), normal(1, 1, 2, 7, 8), normal(2, 1, 2, 7, 6))
    got = rewrite_of(fn, *arrays, normal(3, 1, 2, 5, 1))
    assert got.eqns("attention") == []
    assert "not one logit a head" in got.declined[0]


def test_two_columns_cut_off_are_no_sink():
    def fn(q: Array, k: Array, v: Array, more: Array) -> Array:
        scores = q @ k.swapaxes(2, 3)
        return ops.softmax(ops.concat([scores, more], 3), 3)[..., :-2] @ v

    arrays = (normal(0, 1, 2, 5, 8), normal(1, 1, 2, 7, 8), normal(2, 1, 2, 7, 6))
    assert rewrite_of(fn, *arrays, normal(3, 1, 2, 5, 2)).eqns("attention") == []


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("is_sunk", [False, True])
def test_a_maximum_taken_away_before_the_softmax_takes_it_again_is_nothing(times, is_sunk):
    def fn(q: Array, k: Array, v: Array, sink: Array) -> Array:
        scores = (q @ k.swapaxes(2, 3)) * 0.3
        if is_sunk:
            wide = ops.broadcast_to(sink.reshape(1, 2, 1, 1), (1, 2, 5, 1))
            scores = ops.concat([scores, wide], 3)
        for _ in range(times):
            scores = scores - scores.max(-1, keepdims=True)
        weights = ops.softmax(scores, 3)
        return (weights[..., :-1] if is_sunk else weights) @ v

    arrays = (normal(0, 1, 2, 5, 8), normal(1, 1, 2, 7, 8), normal(2, 1, 2, 7, 6))
    got = only(rewrite_of(fn, *arrays, normal(3, 2)))
    assert ("sink" in operands(got)) == is_sunk


def test_the_log_sum_of_lowered_scores_is_not_that_of_the_scores():
    def fn(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        scores = q @ k.swapaxes(2, 3)
        low = scores - scores.max(-1, keepdims=True)
        top = low.max(-1, keepdims=True)
        exps = ops.exp(low - top)
        total = exps.sum(-1, keepdims=True)
        return (exps / total) @ v, ops.log(total) + top

    arrays = (normal(0, 1, 2, 5, 8), normal(1, 1, 2, 7, 8), normal(2, 1, 2, 7, 6))
    assert rewrite_of(fn, *arrays).eqns("attention") == []


def test_another_rows_maximum_taken_away_stays_in_the_scores():
    def fn(q: Array, k: Array, v: Array) -> Array:
        scores = q @ k.swapaxes(2, 3)
        return ops.softmax(scores - scores.max(2, keepdims=True), 3) @ v

    arrays = (normal(0, 1, 2, 5, 8), normal(1, 1, 2, 7, 8), normal(2, 1, 2, 7, 6))
    assert rewrite_of(fn, *arrays).eqns("attention") == []
