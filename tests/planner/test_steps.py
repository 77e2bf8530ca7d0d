"""From eqns to requests."""

from dataclasses import replace

import poot
from poot.ir.graph import Slot, Weight
from poot.ir.text import parse, show
from poot.limits import profile
from poot.passes.pipeline import run_pipeline
from poot.planner.schedules import choose
from poot.planner.steps import Stager, canonical_body, describe, regions_of
from tests.support.llama_like import llama_like, llama_like_specs

LIMITS = profile("lavapipe")


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


def test_layers_that_share_a_body_are_asked_for_once_and_share_a_request():
    final = run_pipeline(poot.trace(llama_like, llama_like_specs(4, 1)), LIMITS)[0]
    weights = {i.var.id for i in final.inputs if isinstance(i.storage, Weight)}
    stager = Stager(choose, LIMITS, weights)
    stages = [stager.stage(region) for region in regions_of(final, lambda e: False)]
    assert stager.chosen == len({id(s.request) for s in stages}) < len(stages)
    alone = [Stager(choose, LIMITS, weights).stage(r) for r in regions_of(final, lambda e: False)]
    assert stages == alone


def test_a_weight_and_a_value_in_one_place_are_not_one_request():
    text = "in v0: f32[4]\nin v1: f32[4]\nv2: f32[4] = mul(v0, v1)\nout v2"
    (region,) = regions_of(parse(text), lambda e: False)
    stager = Stager(choose, LIMITS, {0})
    swapped = replace(region, ins=region.ins[::-1])
    requests = [stager.stage(r).request for r in (region, swapped)]
    assert [[type(i.storage) for i in r.body.inputs] for r in requests] == [
        [Weight, Slot],
        [Slot, Weight],
    ]
