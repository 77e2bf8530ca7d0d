"""Steps that no generator writes run as their primitives; what is one primitive is refused."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

from poot.api import compile
from poot.errors import GridLimit
from poot.ir.build import Builder
from poot.ir.graph import Graph, Slot, TensorType
from poot.ir.text import parse
from poot.limits import DeviceLimits
from poot.oracle import run
from poot.passes.engine import Outcome
from poot.passes.pipeline import Pass
from tests.support.everywhere import compile_on, run_program
from tests.support.launch import LAVAPIPE

# One region that divides a row by another row's sum: no group of lanes has both.
OTHER_ROWS = """
slot v0: f32[4,4] "x"
v1: f32[4,4] = region(v0) anchor=reduce body={
  slot v0: f32[4,4] "i0"
  v1: f32[4,1] = reduce(v0) axis=(1,) keepdim=True kind=sum
  v2: f32[1,4] = transpose(v1) perm=(1, 0)
  v3: f32[4,4] = div(v0, v2)
  out v3
} updates=()
out v1
"""
PLAIN = """
slot v0: f32[4,4] "x"
v1: f32[4,1] = reduce(v0) axis=(1,) keepdim=True kind=sum
v2: f32[1,4] = transpose(v1) perm=(1, 0)
v3: f32[4,4] = div(v0, v2)
out v3
"""


def other_rows(graph: Graph, limits: DeviceLimits) -> Outcome:
    return Outcome(parse(OTHER_ROWS))


WRONG = (Pass("wrong", other_rows),)


def test_a_step_that_no_generator_writes_runs_as_its_primitives_and_says_so(
    caplog: pytest.LogCaptureFixture,
):
    graph = parse(PLAIN)
    with caplog.at_level(logging.WARNING, "poot"):
        program = compile_on("simulator", graph, passes=WRONG, fresh=True)
    assert "a step of 3 eqns runs as 3 steps: a step asks for a fold of another row" in caplog.text
    explained = program.explain()
    assert "apart: steps 1" in explained
    assert "declined: a step of 3 eqns runs as 3 steps" in explained
    assert len(program.plan.entries[0].steps) == 3
    feed = {"x": np.arange(16, dtype=np.float32).reshape(4, 4) + 1}
    got = run_program(program, feed).outputs[0]
    np.testing.assert_allclose(got, run(graph, feed).outputs[0], rtol=1e-6)


def test_regions_that_the_passes_form_are_never_taken_apart():
    program = compile_on("simulator", parse(PLAIN), fresh=True)
    assert [r.name for r in program.entries["main"].reports if r.name == "apart"] == []


def test_one_primitive_that_the_device_cannot_run_is_refused_with_its_op_and_line():
    small = replace(LAVAPIPE, grid=(8, 8, 1))
    build = Builder()
    x = build.input(TensorType("f32", (1 << 20,)), "x", Slot())
    out = build.emit("exp", x, loc="model.py:7")
    with pytest.raises(GridLimit, match=r"^exp: .*fits no grid of 8 x 8") as e:
        compile(build.graph(out), small, cache=False)
    assert e.value.loc == "model.py:7"
