"""The way forward through an epilogue."""

from __future__ import annotations

import pytest

from poot.codegen.gen.epilogue import forward, path_between
from poot.codegen.gen.job import open_job
from poot.errors import CapabilityError
from tests.support.launch import LAVAPIPE, request_of

TEXT = """in v0: f32[2,12]
          in v1: f32[12]
          v2: f32[2,12] = add(v0, v1)
          v3: f32[2,3,4] = reshape(v2) shape=(2, 3, 4)
          v4: f32[3,2,4] = transpose(v3) perm=(1, 0, 2)
          v5: f32[1,3,2,4] = broadcast(v4) shape=(1, 3, 2, 4)
          v6: f32[2,6] = slice(v2) start=(0, 0) step=(1, 1) stop=(2, 6)
          v7: f32[12] = neg(v1)
          out v5, v6, v7"""


def test_coordinates_follow_reshapes_transposes_and_ones():
    job = open_job(request_of(TEXT, "none"), LAVAPIPE, "forward", 1)
    ix = job.indexer
    row, col = ix.atom(job.k.group_id(0), 2), ix.atom(job.k.lane(), 12)
    start, end = job.request.body.inputs[0].var, job.request.body.outputs[0]
    one, head, same, width = forward(job, start, end, (row, col))
    assert one.literal == 0
    assert (head, width) == ix.divmod(col, 4)
    assert same == row


def test_what_keeps_no_elements_one_for_one_is_refused():
    job = open_job(request_of(TEXT, "none"), LAVAPIPE, "forward", 1)
    body = job.request.body
    at = (job.indexer.atom(job.k.group_id(0), 2), job.indexer.atom(job.k.lane(), 12))
    with pytest.raises(CapabilityError, match="no element for element"):
        forward(job, body.inputs[0].var, body.outputs[1], at)


def test_an_output_that_does_not_follow_from_the_anchor_is_refused():
    body = request_of(TEXT, "none").body
    with pytest.raises(CapabilityError, match="does not depend on"):
        path_between(body, body.inputs[0].var, body.outputs[2])
