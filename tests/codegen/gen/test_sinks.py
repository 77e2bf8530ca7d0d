"""Sinks: which outputs go where, and updates that are none."""

from __future__ import annotations

import pytest

from poot.codegen.gen.job import open_job
from poot.codegen.gen.sinks import open_sinks
from poot.errors import CapabilityError
from tests.support.launch import BASELINE, LAVAPIPE, request_of

UPDATE = """in v0: bf16[9,4]
            in v1: bf16[2,4]
            in v2: i32[]
            v3: bf16[2,4] = neg(v1)
            v4: bf16[9,4] = dynamic_update_slice(v0, v3, v2) axis=0
            out v3, v4"""


def test_an_update_stores_its_new_part_into_the_state():
    job = open_job(request_of(UPDATE, "none", ((1, 0),)), LAVAPIPE, "sinks", 1)
    plain, update = open_sinks(job)
    assert plain.source == update.source
    assert plain.update is None
    assert update.update is not None
    assert job.args == [("out", 0), ("out", 1)]
    assert [p.access for p in job.k.kernel().params] == ["w", "rw"]


def test_what_a_target_packs_goes_to_scratch_first():
    text = """in v0: bf16[4,6]
              v1: bf16[4] = reduce(v0) axis=(1,) keepdim=False kind=max
              out v1"""
    job = open_job(request_of(text, "reduce", (), BASELINE), BASELINE, "sinks", 1)
    (sink,) = open_sinks(job)
    assert job.args == [("scratch", 0)]
    assert sink.memory.cell.dtype == "f32"


@pytest.mark.parametrize("updates", [((0, 0),), ((1, 1),)])
def test_an_update_that_is_none_is_refused(updates):
    job = open_job(request_of(UPDATE, "none", updates), LAVAPIPE, "sinks", 1)
    with pytest.raises(CapabilityError, match="no update makes it so"):
        open_sinks(job)


def test_a_state_that_its_own_step_reads_is_not_written_over():
    text = """in v0: f32[9,4]
              in v1: i32[]
              v2: f32[2,4] = slice(v0) start=(0, 0) step=(1, 1) stop=(2, 4)
              v3: f32[9,4] = dynamic_update_slice(v0, v2, v1) axis=0
              out v3"""
    job = open_job(request_of(text, "none", ((0, 0),)), LAVAPIPE, "sinks", 1)
    with pytest.raises(CapabilityError, match="copy it first"):
        open_sinks(job)
