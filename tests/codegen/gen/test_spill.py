"""Narrow results of kernels whose lanes own no whole words: two launches, and the right bytes."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.gen.lower import lower
from tests.support.graphs import draw_array
from tests.support.launch import BASELINE, LAVAPIPE, check_step, request_of

COMPUTED_ROWS = """in v0: {dtype}[3,32]
                   in v1: {dtype}[9,5]
                   in v2: i32[3]
                   in v3: {dtype}[32,5]
                   v4: i32[] = const() dtype=i32 shape=() value=1
                   v5: i32[3] = add(v2, v4)
                   v6: {dtype}[3,5] = matmul(v0, v3)
                   v7: {dtype}[9,5] = scatter_update(v1, v6, v5)
                   out v7"""


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_a_packed_update_computes_its_own_rows(dtype):
    text = COMPUTED_ROWS.format(dtype=dtype)
    rng = np.random.default_rng(0)
    request = request_of(text, "matmul", ((0, 1),), BASELINE)
    ins = [draw_array(i.var.type, rng) for i in request.body.inputs]
    ins[2] = np.array([4, -1, 3], np.int32)
    check_step(text, "matmul", ((0, 1),), limits=BASELINE, ins=ins, within=3e-2)


def test_only_targets_of_whole_words_pack():
    text = """in v0: f16[4,6]
              v1: f16[4] = reduce(v0) axis=(1,) keepdim=False kind=max
              out v1"""
    assert len(lower(request_of(text, "reduce", (), LAVAPIPE), LAVAPIPE).calls) == 1
    first, pack = lower(request_of(text, "reduce", (), BASELINE), BASELINE).calls
    assert first.args == (("in", 0), ("scratch", 0))
    assert pack.args == (("scratch", 0), ("out", 0))
