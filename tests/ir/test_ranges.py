"""Intervals: what each op does to them, that they are never wrong, and what they rest on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from poot.ir.graph import Graph
from poot.ir.ranges import Interval, ranges
from poot.ir.text import parse
from poot.oracle import run
from tests.support.graphs import graphs, random_inputs

A = 'slot v0: i32[4] "a" range=(-3, 6)\n'
B = 'slot v1: i32[4] "b" range=(2, 5)\n'
U = 'slot v0: u32[4] "a" range=(1, 6)\nslot v1: u32[4] "b" range=(0, 3)\n'
ANY = "in v0: i32[4]\n"
CLAMP = "v1: i32[4], v2: bool[4] = index_guard(v0) lo=1 hi=9\n"
BIG = 'slot v0: i32[4] "a" range=(0, 2000000000)\n'


def last(text: str) -> tuple[int, int] | None:
    """The interval of the last eqn's first out."""
    graph = parse(f"{text}\nout")
    known = ranges(graph)[graph.eqns[-1].outs[0].id]
    return known and (known.lo, known.hi)


@pytest.mark.parametrize(
    "text, want",
    [
        (A + "v2: i32[4] = neg(v0)", (-5, 3)),
        (A + "v2: i32[4] = abs(v0)", (0, 5)),
        (A + "v2: i32[4] = not(v0)", (-6, 2)),
        (A + B + "v2: i32[4] = add(v0, v1)", (-1, 9)),
        (A + B + "v2: i32[4] = sub(v0, v1)", (-7, 3)),
        (A + B + "v2: i32[4] = mul(v0, v1)", (-12, 20)),
        (A + B + "v2: i32[4] = div(v0, v1)", (-1, 2)),
        (A + "v2: i32[4] = div(v0, v0)", (-5, 5)),
        (A + B + "v2: i32[4] = rem(v0, v1)", (-3, 3)),
        (B + A + "v2: i32[4] = rem(v1, v0)", (0, 4)),
        (A + B + "v2: i32[4] = min(v0, v1)", (-3, 4)),
        (A + B + "v2: i32[4] = max(v0, v1)", (2, 5)),
        (A + B + "v2: i32[4] = and(v0, v1)", (0, 4)),
        (A + "v2: i32[4] = and(v0, v0)", None),
        (U + "v2: u32[4] = or(v0, v1)", (1, 7)),
        (U + "v2: u32[4] = xor(v0, v1)", (0, 7)),
        (U + "v2: u32[4] = not(v0)", (2**32 - 6, 2**32 - 2)),
        (U + "v2: u32[4] = shl(v0, v1)", (1, 20)),
        (U + "v2: u32[4] = shr(v0, v1)", (0, 5)),
        (A + B + "v2: i32[4] = shr(v0, v1)", (-1, 1)),
        (A + "v2: i32[4] = shr(v0, v0)", (-3, 5)),
        (A + "v2: i32[2,2] = reshape(v0) shape=(2, 2)", (-3, 5)),
        (A + "v2: i32[3,4] = broadcast(v0) shape=(3, 4)", (-3, 5)),
        (A + "v2: i32[4] = transpose(v0) perm=(0,)", (-3, 5)),
        (A + "v2: i32[2] = slice(v0) start=(1,) stop=(3,) step=(1,)", (-3, 5)),
        (A + B + "v2: i32[8] = concat(v0, v1) axis=0", (-3, 5)),
        (A + B + "v2: i32[4] = gather(v1, v0) axis=0", (2, 4)),
        (ANY + B + "v2: i32[4] = gather(v1, v0) axis=0", (2, 4)),
        (A + "v2: i32[] = const() dtype=i32 shape=() value=1\n"
            "v3: i32[2] = dynamic_slice(v0, v2) axis=0 size=2", (-3, 5)),
        (A + B + "v2: i32[] = const() dtype=i32 shape=() value=1\n"
            "v3: i32[4] = dynamic_update_slice(v1, v0, v2) axis=0", (-3, 5)),
        (A + B + "v2: i32[4] = scatter_update(v1, v0, v0)", (-3, 5)),
        (A + B + "v2: bool[4] = lt(v0, v1)\nv3: i32[4] = select(v2, v0, v1)", (-3, 5)),
        (A + "v2: bool[4] = lt(v0, v0)\nv3: i32[4] = cast(v2) dtype=i32", (0, 1)),
        (A + "v2: i8[4] = cast(v0) dtype=i8", (-3, 5)),
        (A + "v2: u32[4] = cast(v0) dtype=u32", None),
        (B + "v2: u32[4] = bitcast(v1) dtype=u32", (2, 4)),
        (A + "v2: f32[4] = cast(v0) dtype=f32\nv3: i32[4] = cast(v2) dtype=i32", None),
        (A + "v2: i32[] = reduce(v0) axis=(0,) keepdim=False kind=sum", (-12, 20)),
        (A + "v2: i32[] = reduce(v0) axis=(0,) keepdim=False kind=max", (-3, 5)),
        ("v0: i32[2,7] = iota() axis=1 dtype=i32 shape=(2, 7)", (0, 6)),
        ("v0: i32[2] = const() dtype=i32 shape=(2,) value=-4", (-4, -4)),
        ("in v0: f32[5,9]\nv1: i32[5] = argmax(v0) axis=1", (0, 8)),
        (ANY + "v1: i32[4] = neg(v0)", None),
        (ANY + CLAMP, (1, 8)),
        (A + "v1: i32[4], v2: bool[4] = index_guard(v0) lo=0 hi=9", (0, 5)),
        ('constant v0: i32[2] "c" 0x05000000feffffff\nv1: i32[2] = neg(v0)', (-5, 2)),
        (BIG + "v1: i32[4] = add(v0, v0)", None),
        (BIG + "v1: i32[4] = mul(v0, v0)", None),
        (BIG + "v1: i32[] = reduce(v0) axis=(0,) keepdim=False kind=sum", None),
        (U + "v2: u32[4] = sub(v1, v0)", None),
    ],
)  # fmt: skip
def test_a_row_gives_its_interval(text: str, want: tuple[int, int] | None):
    assert last(text) == want


def test_a_clip_of_the_unknown_is_known():
    lo = "v1: i32[] = const() dtype=i32 shape=() value=1\nv2: i32[4] = max(v0, v1)\n"
    hi = "v3: i32[] = const() dtype=i32 shape=() value=9\nv4: i32[4] = min(v2, v3)"
    assert last(ANY + lo + hi) == (1, 9)


def test_ties_of_topk_do_not_matter_to_its_interval():
    graph = parse(A + "v2: i32[2], v3: i32[2] = topk(v0) k=2\nout")
    found = ranges(graph)
    assert found[2] == Interval(-3, 5)
    assert found[3] == Interval(0, 3)


def test_floats_bools_weights_and_states_are_unknown():
    graph = parse('in v0: f32[2]\nweight v1: i32[2] "w"\nstate v2: i32[2] "s"\nin v3: bool[2]\nout')
    assert set(ranges(graph).values()) == {None}


def guards(text: str) -> frozenset[int] | None:
    graph = parse(f"{text}\nout")
    known = ranges(graph)[graph.eqns[-1].outs[0].id]
    return known and known.guards


def test_a_proof_remembers_the_guards_it_rests_on():
    assert guards(ANY + CLAMP) == {2}
    assert guards(ANY + CLAMP + "v3: i32[4] = add(v1, v1)") == {2}
    two = CLAMP + "v3: i32[4], v4: bool[4] = index_guard(v1) lo=2 hi=5\n"
    assert guards(ANY + two) == {2, 4}
    assert guards(ANY + two + "v5: i32[4] = min(v1, v3)") == {2, 4}


def test_a_guard_that_never_clamps_is_not_rested_on():
    assert guards(A + "v1: i32[4], v2: bool[4] = index_guard(v0) lo=-3 hi=6") == frozenset()
    again = CLAMP + "v3: i32[4], v4: bool[4] = index_guard(v1) lo=0 hi=20"
    assert guards(ANY + again) == {2}


REGION = """
    v3: i32[4], v4: bool[4] = region(v1) anchor=none updates=() body={{
        in v0: i32[4]
        v1: i32[4] = add(v0, v0)
        v2: i32[4], v3: bool[4] = index_guard(v1) lo=0 hi=4
        out v2, {witness}
    }}
"""


def test_a_region_is_seen_through_and_its_guards_named_outside():
    assert guards(ANY + CLAMP + REGION.format(witness="v3")) == {2, 4}


def test_a_guard_whose_witness_stays_in_a_body_proves_nothing_outside():
    hidden = REGION.replace("v4: bool[4]", "v4: i32[4]").format(witness="v1")
    assert guards(ANY + CLAMP + hidden) is None


@given(graphs(eqns=20, dtypes=("f32",)))
@settings(max_examples=150, deadline=None)
def test_no_value_of_a_random_graph_leaves_its_interval(graph: Graph):
    known = ranges(graph)
    whole = [v for e in graph.eqns for v in e.outs if known[v.id] is not None]
    seen = Graph(graph.inputs, graph.eqns, tuple(whole))
    for seed in range(2):
        got = run(seen, random_inputs(graph, seed, edges=True))
        for v, values in zip(whole, got.outputs, strict=True):
            found = known[v.id]
            assert found is not None
            if values.size:
                assert found.within(
                    int(np.iinfo(values.dtype).min), int(np.iinfo(values.dtype).max)
                )
                assert found.lo <= values.min(), v
                assert values.max() <= found.hi, v
