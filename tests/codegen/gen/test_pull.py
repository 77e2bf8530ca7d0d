"""Asking for elements: made once, leaves first, refusals named."""

from __future__ import annotations

import pytest

from poot.codegen.gen.index import ZERO
from poot.codegen.gen.job import open_job
from poot.codegen.gen.lower import PULL_MODULES
from poot.codegen.gen.pull import PULL_ROWS, stretched
from poot.codegen.kir.nodes import Ins
from poot.errors import CapabilityError
from poot.ir.graph import TensorType
from poot.ir.ops import OPS
from tests.support.launch import LAVAPIPE, request_of

# Ops that need a step of their own, or only end one.
STEPS = {
    "argmax", "attention", "block_scores", "block_topk", "matmul", "reduce", "region",
    "scatter_update", "selected_attention", "topk",
}  # fmt: skip
TEXT = """in v0: f32[4]
          v1: f32[4] = exp(v0)
          v2: f32[4] = mul(v1, v1)
          v3: f32[4] = add(v2, v1)
          out v3"""


def test_every_op_can_be_asked_for_an_element_or_needs_a_step():
    assert PULL_MODULES
    assert set(OPS) - set(PULL_ROWS) <= STEPS
    assert not set(PULL_ROWS) & STEPS


def test_a_value_asked_for_twice_is_made_once():
    job = open_job(request_of(TEXT, "none"), LAVAPIPE, "pull", 1)
    job.bind_inputs()
    at = (job.indexer.atom(job.k.group_id(0), 4),)
    out = job.request.body.outputs[0]
    assert job.pull.value(out, at) is job.pull.value(out, at)
    ops = [s.op for s in job.k.kernel().body if isinstance(s, Ins)]
    assert ops.count("load") == 1
    assert ops.count("rint") == 1


def test_a_leaf_stands_for_what_would_be_computed():
    job = open_job(request_of(TEXT, "none"), LAVAPIPE, "pull", 1)
    two = job.k.lit(2.0)
    job.pull.leaves[1] = lambda coords: two
    job.pull.value(job.request.body.outputs[0], (ZERO,))
    assert [s.op for s in job.k.kernel().body if isinstance(s, Ins)] == ["mul", "add"]


def test_an_op_that_needs_a_step_is_refused_by_name():
    text = """in v0: f32[4,4]
              v1: f32[4] = reduce(v0) axis=(1,) keepdim=False kind=sum
              v2: f32[4] = exp(v1)
              out v2"""
    job = open_job(request_of(text, "reduce"), LAVAPIPE, "pull", 1)
    with pytest.raises(CapabilityError, match="reduce can't be asked for one element"):
        job.pull.value(job.request.body.outputs[0], (ZERO,))


def test_an_operand_that_broadcasts_stands_still():
    i = ZERO + 3
    assert stretched(TensorType("f32", (1, 5)), (i, i, i)) == (ZERO, i)
    assert stretched(TensorType("f32", ()), (i,)) == ()
