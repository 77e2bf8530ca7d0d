"""Jobs: parameters for what is read, and no more."""

from __future__ import annotations

import pytest

from poot.codegen.gen.job import maker_of, open_job
from poot.codegen.kir.build import BOOL
from poot.codegen.kir.nodes import If
from poot.errors import CapabilityError
from tests.support.launch import LAVAPIPE, request_of

TEXT = """in v0: f32[4]
          in v1: f32[4]
          in v2: i32[]
          v3: f32[4] = add(v0, v0)
          out v3"""


def test_only_inputs_that_are_read_are_bound():
    job = open_job(request_of(TEXT, "none"), LAVAPIPE, "job", 1)
    job.bind_inputs()
    assert job.args == [("in", 0)]


def test_inputs_past_31_bits_are_refused_with_their_count():
    text = """in v0: f32[65536,65536]
              v1: f32[1,1] = slice(v0) start=(0, 0) step=(1, 1) stop=(1, 1)
              out v1"""
    job = open_job(request_of(text, "none"), LAVAPIPE, "job", 1)
    with pytest.raises(CapabilityError, match="4294967296 elements"):
        job.bind_inputs()


def test_a_known_condition_makes_no_branch():
    job = open_job(request_of(TEXT, "none"), LAVAPIPE, "job", 1)
    with job.when(job.k.lit(True, BOOL)):
        job.k.barrier()
    with job.when(job.k.lane() < 3):
        job.k.barrier()
    assert [type(s) is If for s in job.k.kernel().body] == [False, False, False, True]


def test_an_input_has_no_maker():
    body = request_of(TEXT, "none").body
    assert maker_of(body, body.inputs[0].var) is None
    assert maker_of(body, body.outputs[0]) == body.eqns[0]
