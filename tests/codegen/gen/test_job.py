"""Jobs: parameters for what is read, and no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poot.codegen.gen.job import maker_of, open_job
from poot.codegen.kir.build import BOOL
from poot.codegen.kir.nodes import If, Ins
from poot.errors import CapabilityError
from poot.limits import PROFILES, DeviceLimits
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


def test_where_launches_overlap_a_kernel_lets_the_next_begin_and_waits_for_the_last():
    def first_ops(limits: DeviceLimits, follows: bool) -> tuple[list[str], bool]:
        job = open_job(request_of(TEXT, "none"), limits, "job", 1, follows=follows)
        job.bind_inputs()
        job.k.barrier()
        call = job.call(1)
        names = [s.op for s in call.kernel.body if isinstance(s, Ins)]
        return names, call.attributes.overlap

    card = PROFILES["h200"]
    assert first_ops(card, True) == (["grid_trigger", "grid_wait", "barrier"], True)
    assert first_ops(card, False) == (["barrier"], True)
    assert first_ops(LAVAPIPE, True) == (["barrier"], False)
    assert first_ops(replace(card, arch="sm_80"), True) == (["barrier"], False)


def test_inputs_are_read_as_words_where_that_is_asked():
    text = """in v0: bf16[4]
              in v1: bf16[3]
              v2: bf16[4] = neg(v0)
              v3: bf16[3] = neg(v1)
              out v2, v3"""
    job = open_job(request_of(text, "none"), PROFILES["h200"], "job", 1)
    job.bind_inputs(words={0, 1})
    assert [(p.dtype, p.elems) for p in job.k.kernel().params] == [("u32", 2), ("bf16", 3)]
    assert sorted(job.inputs) == [0, 1]
