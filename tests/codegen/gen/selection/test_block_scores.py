"""Scores of blocks on matrix units: heads in sets, rows in turn, every width; what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.gen.lower import lower
from poot.codegen.ptx.emit import emit_ptx
from poot.errors import CapabilityError
from poot.ir.dtypes import DTYPES
from poot.limits import profile
from tests.support.launch import LAVAPIPE, check_step, request_of
from tests.support.ptxas import assemble
from tests.support.selected_forms import scores_text as text

H200 = profile("h200")


@pytest.mark.parametrize(
    "shape",
    [(1, 4, 1, 128, 100), (2, 8, 1, 64, 70), (2, 12, 3, 32, 33), (1, 64, 2, 128, 48),
     (3, 3, 1, 256, 16), (1, 1, 1, 96, 1)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("dtype, weights", [("bf16", ""), ("f16", "f32"), ("bf16", "bf16")])
def test_any_shape_is_the_oracles(shape, dtype, weights):
    request = check_step(text(*shape, dtype, weights), "none", limits=H200, within=1e-4)
    assert request.schedule.name == "block_scores"


def test_a_reshaped_query_is_read_where_it_lies():
    body = """in v0: bf16[2,4,64]
              in v1: bf16[2,40,64]
              v2: bf16[2,4,1,64] = reshape(v0) shape=(2, 4, 1, 64)
              v3: f32[2,1,1,40] = block_scores(v2, v1) scale=1.0
              out v3"""
    check_step(body, "none", limits=H200, within=1e-4)


def test_nan_of_a_key_stays_its_blocks_own():
    body = text(1, 4, 1, 32, 20)
    request = request_of(body, "none", limits=H200)
    rng = np.random.default_rng(0)
    ins = [rng.normal(size=i.var.type.shape).astype("float32") for i in request.body.inputs]
    ins[1][0, 5, 3] = np.nan
    check_step(body, "none", limits=H200, ins=[x.astype(DTYPES["bf16"].numpy) for x in ins],
               within=1e-4)  # fmt: skip


@pytest.mark.parametrize(
    "body, limits",
    [(text(1, 4, 1, 128, 64), LAVAPIPE), (text(1, 4, 1, 40, 64), H200),
     (text(1, 4, 1, 64, 64, "f32"), H200)],
)  # fmt: skip
def test_where_there_is_no_kernel_it_says_so(body, limits):
    with pytest.raises(CapabilityError, match="has no kernel"):
        request_of(body, "none", limits=limits)


LARGE = ((1, 4, 1, 128, 32768), (32, 4, 1, 128, 32768), (4, 64, 1, 128, 32768), (1, 4, 64, 256, 64))


@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_no_register_is_spilled(shape):
    (call,) = lower(request_of(text(*shape), "none", limits=H200), H200).calls
    report = assemble(emit_ptx(call.kernel, H200)[1], "sm_90a")
    assert (report.spills, report.stack_nbytes) == (0, 0)
