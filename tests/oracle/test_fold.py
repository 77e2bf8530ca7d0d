"""Folding what depends on Weights and constants alone."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from poot.errors import BindError
from poot.ir.graph import Weight
from poot.ir.text import parse
from poot.ir.verify import verify
from poot.oracle import fold, run
from tests.support.check import assert_same
from tests.support.graphs import FLOATS, random_graph, random_inputs

GRAPH = parse("""
    weight v0: f32[2,3] "w"
    weight v1: f32[3] "b"
    in v2: f32[1,2]
    v3: f32[3,2] = transpose(v0) perm=(1, 0)
    v4: f32[3,2] = mul(v3, v3)
    v5: f32[2,3] = transpose(v4) perm=(1, 0)
    v6: f32[1,3] = matmul(v2, v5)
    v7: f32[1,3] = add(v6, v1)
    out v7
""")


def test_only_what_the_step_reads_is_left():
    w, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(3, np.float32)
    left, weights = fold(GRAPH, {"w": w, "b": b})
    verify(left)
    assert [e.op for e in left.eqns] == ["matmul", "add"]
    assert sorted(weights) == ["=v5", "b"]
    x = {"v2": np.ones((1, 2), np.float32)}
    assert_same(run(GRAPH, {"w": w, "b": b, **x}), run(left, {**weights, **x}))


def test_a_missing_weight_is_refused():
    with pytest.raises(BindError, match="input 'b' needs"):
        fold(GRAPH, {"w": np.zeros((2, 3), np.float32)})


@pytest.mark.parametrize("f64", [False, True])
def test_a_folded_random_graph_means_the_same(f64: bool):
    for seed in range(40):
        graph = random_graph(Random(seed), dtypes=FLOATS)
        feed = random_inputs(graph, seed)
        names = {i.name for i in graph.inputs if isinstance(i.storage, Weight)}
        left, weights = fold(graph, {n: x for n, x in feed.items() if n in names}, f64=f64)
        verify(left)
        steps = {n: x for n, x in feed.items() if n not in names}
        assert_same(run(graph, feed, f64=f64), run(left, {**weights, **steps}, f64=f64))
