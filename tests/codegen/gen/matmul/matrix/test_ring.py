"""Products of warpgroups: shapes, regions, weights in codes, and what the assembler says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot import ops
from poot.codegen.gen.lower import lower
from poot.codegen.kir.nodes import Roles
from poot.codegen.kir.text import show
from poot.codegen.ptx.emit import emit_ptx
from poot.ir.graph import Graph
from poot.ops.array import Array
from poot.trace import slot, trace, weight
from tests.support.matrix import H200, RING, SWAPPED, Form, check, request_for, schedule
from tests.support.products import BODIES
from tests.support.ptxas import assemble

SMALL = replace(H200, compute_units=3)
FORMS = (
    Form(9, 64, 64),
    Form(20, 72, 70, "f16", "f16"),
    Form(70, 200, 136, is_turned=True),
    Form(130, 136, 140, "f16", "f16"),
    Form(33, 130, 66, "f32", "f32"),
    Form(33, 130, 66, "f32", "f32", is_turned=True),
    Form(130, 64, 100, "f32", "bf16", is_double=True),
    Form(16, 72, 130, "f32", "bf16", is_double=True, is_made=True),
    Form(66, 70, 64, "f32", "f16", is_made=True),
)
WITHIN = {"f32": 5e-5, "f16": 4e-3, "bf16": 3e-2}


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form_is_the_oracles(form):
    assert check(form.text(), SMALL, within=WITHIN[form.x]).schedule.name == "matrix_ring"


@pytest.mark.parametrize("given", [RING, SWAPPED], ids=["rows", "swapped"])
@pytest.mark.parametrize("name", [n for n, (b, _) in BODIES.items() if "reduce" not in b])
def test_every_form_of_region(name, given):
    body, updates = BODIES[name]
    if given is SWAPPED and name not in ("residual", "swiglu", "qkv_with_rope_and_cache", "q4_1"):
        return  # columns apart, or as the others
    check(body, SMALL, given, updates=updates)


def quantised(kind: str, rows: int, columns: int, depth: int) -> Graph:
    def product(x: Array, *weights: Array) -> Array:
        made = {"q4_1": ops.dequant_q4_1, "q8_0": ops.dequant_q8_0, "int8": ops.dequant_int8}
        return ops.linear(x, made[kind](*weights))

    scales = weight((columns, 1 if kind == "int8" else depth // 32), "f16")
    codes = weight((columns, depth // (8 if kind == "q4_1" else 4)), "u32")
    specs = (codes, scales, scales) if kind == "q4_1" else (codes, scales)
    return trace(product, (slot((rows, depth), "f32"), *specs))


@pytest.mark.parametrize("kind", ["q4_1", "q8_0", "int8"])
@pytest.mark.parametrize("rows", [10, 70])
def test_codes_are_decoded_into_the_tile(kind, rows):
    graph = quantised(kind, rows, 72, 128)
    request = request_for(graph, SMALL)
    codes = np.random.default_rng(1).integers(0, 1 << 32, (72, 16 if kind == "q4_1" else 32))
    rng = np.random.default_rng(2)
    scales = [
        (rng.standard_normal(i.var.type.shape) / 8).astype(np.float16)
        for i in request.body.inputs[2:]
    ]
    x = rng.standard_normal((rows, 128)).astype(np.float32)
    order = {i.var.type.dtype: n for n, i in enumerate(request.body.inputs)}
    feed: list[np.ndarray] = [x] * len(request.body.inputs)
    feed[order["u32"]] = codes.astype(np.uint32)
    for n, i in enumerate(request.body.inputs):
        if i.var.type.dtype == "f16":
            feed[n] = scales.pop()
    check(graph, SMALL, within=2e-3, ins=feed)


@pytest.mark.parametrize("stages, tile_m", [(2, 64), (3, 128)])
def test_tiles_go_round_the_ring_in_turn(stages, tile_m):
    numbers = {"groups": 2, "section": 2, "stages": stages, "swapped": 0, "tile_m": tile_m}
    given = schedule("matrix_ring", tile_n=64, **numbers)
    check(Form(tile_m * 2, 200, 100).text(), SMALL, given, 3e-2)


def test_a_nan_in_one_row_stays_in_it():
    x, w = np.ones((70, 72), np.float32), np.ones((64, 72), np.float32)
    x[3, 70], w[63, 1] = np.nan, np.nan
    check(Form(70, 72, 64, "f32", "f32").text(), SMALL, within=1e-6, ins=[x, w])


def test_weights_as_they_are_are_copied_by_one_lane():
    (_, call) = lower(request_for(Form(70, 128, 128, "f32").text(), SMALL), SMALL).calls
    (roles,) = (s for s in call.kernel.body if isinstance(s, Roles))
    assert [r.name for r in roles.roles] == ["producer", "consumer"]
    text = show(call.kernel)
    assert text.count("tma_load") == 3 + 1  # parts of the left operand, and the right
    assert "st left" not in text


@pytest.mark.parametrize(
    "form",
    [
        Form(4096, 4096, 4096),
        Form(4096, 4096, 4096, "f16", "f16", is_turned=True),
        Form(16, 4096, 4096, "f32"),
        Form(64, 4096, 14336, "f32", is_double=True),
        Form(512, 4096, 14336, "f32", is_double=True),
        Form(512, 4096, 4096, "f32", "f32"),
    ],
    ids=str,
)
def test_no_kernel_spills(form):
    for call in lower(request_for(form.text(), H200), H200).calls:
        report = assemble(emit_ptx(call.kernel, H200)[1], "sm_90a")
        assert (report.spills, report.stack_nbytes, report.warnings) == (0, 0, ())


@pytest.mark.parametrize("rows", [16, 512])
def test_no_kernel_that_decodes_spills(rows):
    for call in lower(request_for(quantised("q4_1", rows, 14336, 4096), H200), H200).calls:
        report = assemble(emit_ptx(call.kernel, H200)[1], "sm_90a")
        assert (report.spills, report.stack_nbytes, report.warnings) == (0, 0, ())
