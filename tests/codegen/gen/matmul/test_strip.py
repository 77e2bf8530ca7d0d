"""One strip by one panel: coded weights summed by runs, and the places in workgroup memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.codegen.gen.lower import lower
from poot.limits import profile
from tests.support.launch import check_step, inputs_of, request_of
from tests.support.quantised import q4_text, q8_text

SMALL = replace(profile("cpu-avx2"), vector=4, subgroup=4)


@pytest.mark.parametrize("rows", [1, 3, 20])
@pytest.mark.parametrize("text", [q4_text, q8_text], ids=["q4", "q8"])
def test_codes_are_summed_by_runs(text, rows):
    body = text(rows, 96, 20)
    request = request_of(body, "matmul", limits=SMALL, bound=(1, 2, 3))
    ins = inputs_of(request)
    rng = np.random.default_rng(4)
    ins[1] = rng.integers(0, 2**32, ins[1].shape, np.uint32)
    ins[2:] = [rng.standard_normal(x.shape).astype(np.float16) for x in ins[2:]]
    check_step(body, "matmul", limits=SMALL, bound=(1, 2, 3), ins=ins, within=1e-3)


def test_a_run_is_scaled_once():
    """A product of one row takes one multiplication by the scale for 32 terms."""
    request = request_of(q8_text(1, 96, 8), "matmul", limits=SMALL, bound=(1, 2))
    (call,) = lower(request, SMALL).calls
    assert call.kernel.name == "panels"
    names = [s.name for s in call.kernel.shared]
    assert {"left", "sums"} <= set(names)


def test_rows_too_deep_for_workgroup_memory_sum_their_runs_as_they_go():
    tight = replace(SMALL, workgroup_nbytes=1024)
    body = q4_text(1, 256, 8)
    request = request_of(body, "matmul", limits=tight, bound=(1, 2, 3))
    assert request.schedule.get("stage_left") == 0
    ins = inputs_of(request)
    rng = np.random.default_rng(4)
    ins[1] = rng.integers(0, 2**32, ins[1].shape, np.uint32)
    ins[2:] = [rng.standard_normal(x.shape).astype(np.float16) for x in ins[2:]]
    check_step(body, "matmul", limits=tight, bound=(1, 2, 3), ins=ins, within=1e-3)
