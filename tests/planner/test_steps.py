"""From eqns to requests."""

from poot.ir.text import parse, show
from poot.planner.steps import canonical_body, describe, regions_of


def test_bodies_of_equal_layers_are_equal():
    a = parse('weight v7: f32[4] "w.0"\nin v9: f32[4]\nv11: f32[4] = mul(v9, v7)\nout v11')
    b = parse('weight v1: f32[4] "w.1"\nin v2: f32[4]\nv3: f32[4] = mul(v2, v1)\nout v3')
    assert canonical_body(a) == canonical_body(b)
    assert show(canonical_body(a)) == show(canonical_body(b))


def test_a_bare_eqn_becomes_a_region_of_itself():
    graph = parse("in v0: f32[2,2]\nv1: f32[2,2] = matmul(v0, v0)\nout v1")
    (region,) = regions_of(graph, lambda e: False)
    assert region.attr("anchor") == "matmul"
    assert region.ins == (graph.inputs[0].var,)


def test_the_chief_op_names_a_step():
    graph = parse("in v0: f32[2,2]\nv1: f32[2,2] = matmul(v0, v0)\nv2: f32[2,2] = exp(v1)\nout v2")
    assert describe(graph) == "matmul +1"
