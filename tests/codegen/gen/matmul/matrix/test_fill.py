"""Parts of numbers, and where tiles of operands lie in workgroup memory."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from poot.codegen.gen.job import open_job
from poot.codegen.gen.matmul.matrix.fill import Filler, split
from poot.codegen.gen.matmul.matrix.shape import Place
from poot.codegen.kir.build import I32, TOKEN, KernelBuilder
from poot.codegen.kir.frags import swizzle
from poot.codegen.kir.sim import simulate
from poot.ir.dtypes import DTYPES
from poot.planner.matrix import PANEL
from tests.support.matrix import AMPERE, FRAGMENTS, Form, request_for, shape_of

SPECIAL = np.array([np.inf, -np.inf, np.nan, 3.4e38, -0.0, 1.0, 1 / 3, 65504.0], np.float32)


@pytest.mark.parametrize("parts, dtype", [(1, "f16"), (2, "bf16"), (3, "bf16")])
def test_parts_add_up(parts, dtype):
    k = KernelBuilder("parts", 1)
    k.param("x", "f32", 8, "r")
    for n in range(parts):
        k.param(f"out{n}", dtype, 8, "w")
    values = [k.load("x", n) for n in range(8)]
    for n, part in enumerate(split(k, values, parts, dtype)):
        k.store(f"out{n}", 0, part)
    fits = ~np.isfinite(SPECIAL) | (np.abs(SPECIAL) <= 65504)
    narrow = np.where(fits, SPECIAL, np.float32(5)).astype(np.float16).astype(np.float32)
    x = SPECIAL if parts == 3 else narrow
    kind = DTYPES[dtype].numpy
    arrays = {"x": x, **{f"out{n}": np.zeros(8, kind) for n in range(parts)}}
    simulate(k.kernel(), arrays, (1, 1, 1))
    total = sum(arrays[f"out{n}"].astype(np.float32) for n in range(parts))
    np.testing.assert_array_equal(total, x)


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("how", ["copied", "by registers", "computed"])
def test_a_tile_lies_under_the_swizzle_with_zeros_past_the_depth(is_turned, how):
    given = Form(20, 72, 72, is_turned=is_turned)
    request = request_for(given.text(), AMPERE, FRAGMENTS)
    (tile,) = shape_of(request).tiles
    (side,) = tile.rights
    job = open_job(request, AMPERE, "fill", 64)
    job.bind_inputs()
    k = job.k
    k.param("seen", "bf16", side.elems, "w")
    k.shared("right", "bf16", side.elems, 1024)
    filler = Filler(job, tile, k.lane(), 64, "bf16")
    zero = job.indexer.atom(k.lit(0, I32), 1)
    step = job.indexer.atom(k.lit(1, I32), 2)
    to = k.lit(0, I32)
    if how == "computed":
        filler.compute(side, Place(zero, zero, zero), step, "right", to)
    else:
        filler.copy(side, Place(zero, zero, zero), step, "right", to, is_async=how == "copied")
    k.do("wait", k.op("async_commit", type=TOKEN), pending=0)
    k.barrier()
    with k.for_(k.lane(), side.elems, 64, unroll=1) as n:
        k.store("seen", n, k.load("right", n))
    w = np.random.default_rng(0).standard_normal((72, 72)).astype(ml_dtypes.bfloat16)
    arrays = {"in0": np.zeros(20 * 72, w.dtype), "in1": w.reshape(-1),
              "seen": np.zeros(side.elems, w.dtype)}  # fmt: skip
    arrays = {p.name: arrays[p.name] for p in k.kernel().params if p.name in arrays}
    simulate(k.kernel(), arrays, (1, 1, 1))
    line, column = np.arange(side.lines)[:, None], np.arange(PANEL)[None, :]
    at = swizzle("128B", line * PANEL + column, PANEL, 2)
    got = arrays["seen"].astype(np.float32)[at]
    want = np.zeros((side.lines, PANEL), np.float32)
    if is_turned:
        want[:8] = w[64:72, :64].astype(np.float32)
    else:
        want[:72, :8] = w[:, 64:72].astype(np.float32)
        want[72:, :8] = want[71, :8]
    np.testing.assert_array_equal(got, want)
