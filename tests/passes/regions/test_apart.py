"""Regions taken apart: their primitives stand in their place, and it is told."""

from __future__ import annotations

from poot.ir.graph import Eqn, Graph
from poot.ir.text import parse
from poot.ir.verify import verify
from poot.oracle import run
from poot.passes.regions.apart import take_apart
from poot.passes.regions.form import form_regions
from tests.support.check import assert_same
from tests.support.graphs import random_inputs
from tests.support.launch import LAVAPIPE

SOFTMAXES = """
slot v0: f32[2,24] "x"
v1: f32[4,12] = reshape(v0) shape=(4, 12)
v2: f32[4,1] = reduce(v1) axis=(1,) keepdim=True kind=max
v3: f32[4,12] = sub(v1, v2)
v4: f32[4,12] = exp(v3)
v5: f32[4,1] = reduce(v4) axis=(1,) keepdim=True kind=sum
v6: f32[4,12] = div(v4, v5)
v7: f32[12,4] = transpose(v6) perm=(1, 0)
v8: f32[12,1] = reduce(v7) axis=(1,) keepdim=True kind=sum
v9: f32[12,4] = mul(v7, v8)
out v9, v6
"""


def ops(eqns: tuple[Eqn, ...]) -> list[str]:
    return [e.op for e in eqns]


def formed() -> Graph:
    return form_regions(parse(SOFTMAXES), LAVAPIPE).graph


def test_the_region_that_makes_a_value_becomes_its_primitives():
    graph = formed()
    first, second = graph.eqns
    found = take_apart(graph, {first.outs[0].id: "no generator"})
    assert found is not None
    apart, report = found
    verify(apart)
    assert ops(apart.eqns) == ["reshape", "reduce", "sub", "exp", "reduce", "div", "region"]
    assert apart.eqns[-1].attrs == second.attrs
    (note,) = report.notes
    assert (note.kind, note.what) == ("declined", "a step of 6 eqns runs as 6 steps: no generator")
    feed = random_inputs(graph, 0)
    assert_same(run(graph, feed), run(apart, feed))


def test_what_is_one_primitive_is_not_taken_apart():
    graph = form_regions(parse("in v0: f32[4]\nv1: f32[4] = exp(v0)\nout v1"), LAVAPIPE).graph
    assert take_apart(graph, {graph.eqns[0].outs[0].id: "no generator"}) is None
    assert take_apart(graph, {}) is None
