"""The whole canonical form: exact, settled, and never more work."""

from __future__ import annotations

from random import Random

import pytest

from poot.limits import profile
from poot.passes.canonicalize import canonicalize
from tests.support.check import check_kept, check_pass
from tests.support.graphs import random_graph

LIMITS = profile("lavapipe")


def canonical(graph):
    return canonicalize(graph, LIMITS).graph


@pytest.mark.parametrize("part", range(4))
def test_any_graph_keeps_every_bit(part: int):
    for seed in range(part * 60, part * 60 + 60):
        graph = random_graph(Random(seed), eqns=20, dtypes=("f32", "f16", "bf16"))
        check_kept(canonical, graph)


def test_no_graph_gets_more_work():
    free = ("reshape", "broadcast", "transpose", "slice", "const", "cast")
    for seed in range(200):
        graph = random_graph(Random(seed), eqns=20)
        before, after = (sum(e.op not in free for e in g.eqns) for g in (graph, canonical(graph)))
        assert after <= before, seed


def test_repeated_heads_are_spelled_one_way():
    """repeat_kv by a gather of heads, by a stack and by reshape-broadcast-reshape."""
    want = """
        in v0: f32[1,2,5,4]
        v1: f32[1,2,1,5,4] = reshape(v0) shape=(1, 2, 1, 5, 4)
        v2: f32[1,2,3,5,4] = broadcast(v1) shape=(1, 2, 3, 5, 4)
        v3: f32[1,6,5,4] = reshape(v2) shape=(1, 6, 5, 4)
        out v3
        """
    check_pass(canonical, want, want)
    stack = """
        in v0: f32[1,2,5,4]
        v1: f32[1,2,1,5,4] = reshape(v0) shape=(1, 2, 1, 5, 4)
        v2: f32[1,2,3,5,4] = concat(v1, v1, v1) axis=2
        v3: f32[1,6,5,4] = reshape(v2) shape=(1, 6, 5, 4)
        out v3
        """
    check_pass(canonical, stack, want)
    gather = """
        in v0: f32[1,2,5,4]
        v1: i32[6] = iota() axis=0 dtype=i32 shape=(6,)
        v2: i32[] = const() dtype=i32 shape=() value=3
        v3: i32[6] = div(v1, v2)
        v4: f32[1,6,5,4] = gather(v0, v3) axis=1
        out v4
        """
    check_pass(canonical, gather, want)


def test_a_rule_that_waited_for_a_reader_to_go_gets_its_turn():
    check_pass(
        canonical,
        """
        in v0: f16[2,3]
        v1: f32[2,3] = cast(v0) dtype=f32
        v2: f32[3,2] = transpose(v1) perm=(1, 0)
        v3: f32[2,3] = max(v1, v1)
        v4: f32[2,3] = neg(v3)
        v5: f32[2,3] = neg(v4)
        v6: f32[3,2] = transpose(v5) perm=(1, 0)
        out v2, v6
        """,
        """
        in v0: f16[2,3]
        v1: f16[3,2] = transpose(v0) perm=(1, 0)
        v2: f32[3,2] = cast(v1) dtype=f32
        out v2, v2
        """,
    )
