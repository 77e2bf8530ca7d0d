"""Scores whose axes are permuted before the softmax."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import poot
from poot import ops
from poot.ir.graph import Graph
from poot.ir.text import parse
from poot.limits import PROFILES
from poot.ops import Array
from poot.passes.attention.match import fuse_attention
from poot.passes.attention.turned import before_exps, without_turns
from poot.passes.canonicalize import canonicalize
from tests.support.check import check_kept
from tests.support.traced import normal

B, L, N, G, D = 2, 5, 3, 2, 4
CPU = PROFILES["cpu-avx2"]
Scores = Callable[[Array, Array], tuple[Array, tuple[int, ...]]]


def rows_then_groups(q: Array, k: Array) -> tuple[Array, tuple[int, ...]]:
    """[B,N,L*G,K] seen as [G,B,N,L,K], and where b, n, l, g, k stand there."""
    q = q.transpose(0, 2, 1, 3, 4).reshape(B, N, L * G, D)
    s = (q @ k.transpose(0, 2, 3, 1)) * 0.5
    return s.reshape(B, N, L, G, L).transpose(3, 0, 1, 2, 4), (1, 2, 0, 3, 4)


def keys_first(q: Array, k: Array) -> tuple[Array, tuple[int, ...]]:
    """[B,N,K,L*G], the keys in the rows, seen as [B,N,G,L,K]."""
    q = q.transpose(0, 2, 4, 1, 3).reshape(B, N, D, L * G)
    s = (k.transpose(0, 2, 1, 3) @ q) * 0.5
    return s.reshape(B, N, L, L, G).transpose(0, 1, 4, 3, 2), (0, 1, 2, 3, 4)


def heads_behind(q: Array, k: Array) -> tuple[Array, tuple[int, ...]]:
    """[B,N*G,L,K] seen as [B,L,N*G,K]."""
    q = q.transpose(0, 2, 3, 1, 4).reshape(B, N * G, L, D)
    k = ops.repeat_kv(k.transpose(0, 2, 1, 3), G)
    return ((q @ k.swapaxes(2, 3)) * 0.5).transpose(0, 2, 1, 3), (0, 2, 1, 3)


def traced(scores: Scores, *, hide: bool = True, used: bool = False) -> Graph:
    def fn(q: Array, k: Array, v: Array) -> Array | tuple[Array, Array]:
        s, perm = scores(q, k)
        if hide:
            seen = ops.iota((L, L), axis=1) <= ops.iota((L, L))
            seen = seen.reshape(L, 1, L) if s.ndim == 4 else seen
            s = ops.where(seen, s, -np.inf)
        w, v = ops.softmax(s).transpose(perm), v.transpose(0, 2, 1, 3)
        if s.ndim == 4:
            v = ops.repeat_kv(v, G)
        else:
            w = w.reshape(B, N, G * L, L)
        out = w @ v
        return (out, w) if used else out

    shapes = ((B, L, N, G, D), (B, L, N, D), (B, L, N, D))
    graph = poot.trace(fn, tuple(poot.slot(s, "f32") for s in shapes))
    return canonicalize(graph, CPU).graph


ALL = pytest.mark.parametrize("scores", [rows_then_groups, keys_first, heads_behind])


@ALL
def test_permuted_scores_become_attention(scores: Scores):
    got = fuse_attention(traced(scores), CPU).graph
    (eqn,) = (e for e in got.eqns if e.op == "attention")
    assert [v.type.shape for v in eqn.ins[:3]] == [(B, N * G, L, D), (B, N, L, D), (B, N, L, D)]
    assert eqn.attr("causal") == 0


@ALL
def test_without_turns_means_the_same(scores: Scores):
    def turned(graph: Graph) -> Graph:
        got = without_turns(graph)
        return canonicalize(graph if got is None else got.graph, CPU).graph

    graph = traced(scores)
    assert without_turns(graph) is not None
    check_kept(turned, graph, within=1e-6)


def test_where_no_attention_comes_of_it_the_graph_is_as_it_was():
    graph = traced(rows_then_groups, used=True)
    assert fuse_attention(graph, CPU).graph == graph


def test_the_maximum_may_be_taken_before_the_scores_are_permuted():
    def fn(q: Array, k: Array, v: Array) -> Array:
        s = q.reshape(B, N, G, D) @ k.transpose(0, 2, 3, 1)
        s = s.reshape(B, N, 1, G, L) * 0.5
        top = s.max(-1, True).reshape(B, N, 1, G).transpose(3, 0, 1, 2).reshape(G, B, N, 1, 1)
        s = s.transpose(3, 0, 1, 2, 4)
        e = ops.exp(s - top)
        w = (e / e.sum(-1, True)).transpose(1, 2, 0, 3, 4).reshape(B, N, G, L)
        return w @ v.transpose(0, 2, 1, 3)

    shapes = ((B, 1, N, G, D), (B, L, N, D), (B, L, N, D))
    graph = canonicalize(poot.trace(fn, tuple(poot.slot(s, "f32") for s in shapes)), CPU).graph
    got = fuse_attention(graph, CPU).graph
    assert [e.op for e in got.eqns if e.op in ("attention", "matmul", "reduce")] == ["attention"]
    (eqn,) = (e for e in got.eqns if e.op == "attention")
    assert len(eqn.ins) == 3


def test_transposes_that_no_exp_follows_are_no_scores():
    def fn(x: Array) -> Array:
        return ops.tanh((x @ x).transpose(1, 0, 2)) + ops.exp(normal(0, 3, 2, 3))

    graph = poot.trace(fn, (poot.slot((2, 3, 3), "f32"),))
    assert before_exps(graph) == frozenset()
    assert without_turns(graph) is None


def test_keys_in_the_rows_of_a_product_with_one_matrix_for_the_batch_are_left_alone():
    graph = parse("""
    slot v0: f32[2,5,4] "k"
    slot v1: f32[4,7] "q"
    v2: f32[2,5,7] = matmul(v0, v1)
    v3: f32[2,7,5] = transpose(v2) perm=(0, 2, 1)
    v4: f32[2,7,1] = reduce(v3) axis=(2,) keepdim=True kind=max
    v5: f32[2,7,5] = sub(v3, v4)
    v6: f32[2,7,5] = exp(v5)
    v7: f32[2,7,1] = reduce(v6) axis=(2,) keepdim=True kind=sum
    v8: f32[2,7,5] = div(v6, v7)
    v9: f32[2,7,4] = matmul(v8, v0)
    out v9
    """)
    assert without_turns(graph) is None
    check_kept(lambda g: fuse_attention(g, CPU).graph, graph, within=1e-6)
