"""Sinks: which outputs go where, and updates that are none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.codegen.gen.job import open_job
from poot.codegen.gen.sinks import open_sinks
from poot.errors import CapabilityError
from poot.ir.graph import Input, Slot, TensorType, Var
from poot.ir.walk import next_id
from poot.limits import PROFILES
from poot.planner.request import Condition, Layout
from tests.support.launch import (
    BASELINE,
    LAVAPIPE,
    Updates,
    inputs_of,
    request_of,
    run_request,
)

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


def under_a_word(text: str, anchor: str, updates: Updates, outs: tuple[int, ...], limits):
    """The body's request with the word that decides about the outs of those numbers."""
    plain = request_of(text, anchor, updates, limits)
    at = len(plain.body.inputs)
    word = Input(Var(next_id(plain.body), TensorType("bool", ())), f"i{at}", Slot())
    return replace(
        plain,
        body=replace(plain.body, inputs=(*plain.body.inputs, word)),
        layouts=(*plain.layouts, Layout()),
        condition=Condition(at, outs),
    )


SCATTER = """in v0: bf16[9,3]
             in v1: bf16[2,3]
             in v2: i32[2]
             v4: bf16[9,3] = scatter_update(v0, v1, v2)
             out v4"""
PRODUCT = """in v0: f32[9,4]
             in v1: f32[2,8]
             in v2: f32[8,4]
             in v3: i32[]
             v4: f32[2,4] = matmul(v1, v2)
             v5: f32[9,4] = dynamic_update_slice(v0, v4, v3) axis=0
             out v4, v5"""
COPY = """in v0: bf16[5]
          v1: bf16[5] = reshape(v0) shape=(5,)
          out v1"""


@pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE, PROFILES["cpu-avx2"]], ids=lambda p: p.name)
@pytest.mark.parametrize(
    "text, anchor, updates, outs",
    [
        (UPDATE, "none", ((1, 0),), (1,)),
        (SCATTER, "none", ((0, 0),), (0,)),
        (PRODUCT, "matmul", ((1, 0),), (1,)),
        (COPY, "none", (), (0,)),
    ],
)
def test_what_stands_under_a_word_is_stored_only_where_it_holds(
    text, anchor, updates, outs, limits
):
    request = under_a_word(text, anchor, updates, outs, limits)
    plain = replace(request, condition=None)
    ins = inputs_of(request)
    free = run_request(plain, ins, limits)
    for word in (True, False):
        ins[-1] = np.array(word)
        got = run_request(request, ins, limits)
        for n, (mine, theirs) in enumerate(zip(got, free, strict=True)):
            if word or n not in outs:
                assert mine.tobytes() == theirs.tobytes()
                continue
            before = ins[dict(updates)[n]] if updates else np.full(mine.nbytes, 0xA5, np.uint8)
            assert mine.tobytes() == before.tobytes()


def test_a_kernel_loads_its_word_once():
    two = UPDATE.replace("out v3, v4", "out v4, v3")
    request = under_a_word(two, "none", ((0, 0),), (0, 1), LAVAPIPE)
    job = open_job(request, LAVAPIPE, "sinks", 1)
    sinks = open_sinks(job)
    assert [s.ok is sinks[0].ok for s in sinks] == [True, True]
    assert job.args.count(("in", 3)) == 1
