"""Walks and rebuilds."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings

from poot.errors import VerifyError
from poot.ir.graph import Eqn, Graph, Input, Slot, TensorType, Var
from poot.ir.text import parse, show
from poot.ir.verify import verify
from poot.ir.walk import (
    bound_vars,
    canonical_text,
    is_ordered,
    next_id,
    ordered,
    producers,
    rebuild,
    renumber,
    substitute,
    use_counts,
    users,
)
from tests.support.graphs import FLOATS, graphs

F2 = TensorType("f32", (2,))

GRAPH = parse("""
    in v0: f32[2]
    state v1: f32[2] "kv" -> v4
    v3: f32[2] = add(v0, v0)
    v4: f32[2] = mul(v3, v1)
    v9: f32[2] = neg(v4)
    out v9, v3
""")


def test_producers_users_and_counts_say_who_makes_and_reads_what():
    add, mul, neg = GRAPH.eqns
    assert producers(GRAPH) == {3: add, 4: mul, 9: neg}
    assert users(GRAPH) == {0: (add,), 1: (mul,), 3: (mul,), 4: (neg,), 9: ()}
    assert use_counts(GRAPH) == {0: 2, 1: 1, 3: 2, 4: 2, 9: 1}


def test_bound_values_come_in_order_and_the_next_id_is_above_them():
    assert [v.id for v in bound_vars(GRAPH)] == [0, 1, 3, 4, 9]
    assert next_id(GRAPH) == 10
    assert next_id(Graph((), (), ())) == 0


def test_a_substitution_follows_chains_and_reaches_results():
    v0, v3, v4, v9 = (Var(n, F2) for n in (0, 3, 4, 9))
    got = substitute(GRAPH, {9: v4, 4: v3, 3: v0, 0: v0})
    assert got.outputs == (v0, v0)
    assert [b for _, b in got.states] == [v0]
    assert [e.ins for e in got.eqns] == [(v0, v0), (v0, Var(1, F2)), (v0,)]
    assert [e.outs for e in got.eqns] == [(v3,), (v4,), (v9,)]


def test_a_rebuild_takes_other_eqns():
    got = rebuild(GRAPH, GRAPH.eqns[:1], {4: Var(3, F2), 9: Var(3, F2)})
    verify(got)
    assert [str(v) for v in got.outputs] == ["v3", "v3"]


def test_renumbering_counts_from_zero_in_bodies_too_and_keeps_names():
    graph = parse("""
        weight v7: f32[2] "w"
        v5: f32[2] = region(v7) anchor=none updates=() body={
            in v4: f32[2]
            v9: f32[2] = neg(v4)
            out v9
        }
        out v5
    """)
    want = parse("""
        weight v0: f32[2] "w"
        v1: f32[2] = region(v0) anchor=none updates=() body={
            slot v0: f32[2] "v4" kind=user
            v1: f32[2] = neg(v0)
            out v1
        }
        out v1
    """)
    assert show(renumber(graph)) == show(want)


@given(graphs(dtypes=FLOATS))
@settings(max_examples=50, deadline=None)
def test_renumbering_twice_changes_nothing_and_keeps_the_graph_good(graph: Graph):
    once = renumber(graph)
    verify(once)
    assert show(renumber(once)) == show(once)
    assert canonical_text(once) == canonical_text(graph)


def test_the_canonical_text_ignores_ids_names_and_lines():
    a = parse('weight v0: f32[2] "a"\nv1: f32[2] = neg(v0)  # m.py:1\nout v1')
    b = parse('weight v5: f32[2] "b"\nv2: f32[2] = neg(v5)  # m.py:9\nout v2')
    assert canonical_text(a) == canonical_text(b)
    c = parse("in v0: f32[2]\nv1: f32[2] = neg(v0)\nout v1")
    assert canonical_text(a) != canonical_text(c)


def test_the_canonical_text_tells_long_constants_apart():
    def of(byte: str) -> Graph:
        return parse(f'constant v0: f32[64] "c" 0x{"00" * 255}{byte}\nout v0')

    assert canonical_text(of("00")) != canonical_text(of("01"))
    assert len(canonical_text(of("00"))) < 200


def test_an_unordered_graph_is_seen_and_ordered():
    mixed = replace(GRAPH, eqns=GRAPH.eqns[::-1])
    assert is_ordered(GRAPH)
    assert not is_ordered(mixed)
    assert ordered(mixed) == GRAPH
    assert ordered(GRAPH) == GRAPH


def test_a_result_that_nothing_binds_is_out_of_order():
    assert not is_ordered(replace(GRAPH, outputs=(Var(99, F2),)))


def test_eqns_in_a_circle_are_refused():
    a, b = Var(1, F2), Var(2, F2)
    circle = (Eqn("neg", (b,), (a,), loc="m.py:3"), Eqn("neg", (a,), (b,)))
    with pytest.raises(VerifyError, match=r"read each other in a circle: .* = neg"):
        ordered(Graph((), circle, ()))


def test_every_walk_is_linear_and_needs_no_recursion():
    n = 20_000
    chain = tuple(Eqn("neg", (Var(i, F2),), (Var(i + 1, F2),)) for i in range(n))
    graph = Graph((Input(Var(0, F2), "x", Slot()),), chain, (Var(n, F2),))
    began = time.perf_counter()
    assert ordered(replace(graph, eqns=chain[::-1])) == graph
    assert renumber(graph) == graph
    assert is_ordered(graph)
    assert len(users(graph)) == len(use_counts(graph)) == n + 1
    assert substitute(graph, {e.out.id: e.ins[0] for e in chain}).outputs == (Var(0, F2),)
    assert time.perf_counter() - began < 5
