"""Equal eqns become one."""

from __future__ import annotations

import math

from hypothesis import given, settings

from poot.ir.build import Builder
from poot.ir.graph import Slot, TensorType
from poot.passes.cse import cse, key_of
from tests.support.check import check_kept, check_pass
from tests.support.graphs import graphs


def test_equal_eqns_become_one_and_so_do_their_readers():
    check_pass(
        cse,
        """
        in v0: f32[2]
        v1: f32[2] = exp(v0)
        v2: f32[2] = exp(v0)
        v3: f32[2] = neg(v1)
        v4: f32[2] = neg(v2)
        v5: f32[2] = add(v3, v4)
        out v5, v2
        """,
        """
        in v0: f32[2]
        v1: f32[2] = exp(v0)
        v2: f32[2] = neg(v1)
        v3: f32[2] = add(v2, v2)
        out v3, v1
        """,
    )


def test_eqns_that_differ_in_an_attribute_stay_apart():
    text = """
        in v0: f32[2,2]
        v1: f32[2] = reduce(v0) axis=(0,) keepdim=False kind=sum
        v2: f32[2] = reduce(v0) axis=(1,) keepdim=False kind=sum
        out v1, v2
        """
    check_pass(cse, text, text)


def test_zeros_of_either_sign_stay_apart_and_nans_are_one():
    build = Builder()
    x = build.input(TensorType("f32", ()), "x", Slot())
    numbers = [build.one("const", shape=(), dtype="f32", value=v) for v in (0.0, -0.0)]
    nans = [build.one("const", shape=(), dtype="f32", value=math.nan) for _ in range(2)]
    graph = build.graph((x, *numbers, *nans))
    assert len(cse(graph).eqns) == 3
    assert key_of(graph.eqns[0]) != key_of(graph.eqns[1])


@settings(max_examples=30, deadline=None)
@given(graphs())
def test_any_graph_means_the_same_after(graph):
    check_kept(cse, graph)
