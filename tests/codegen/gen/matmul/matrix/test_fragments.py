"""Products of a subgroup's fragments: shapes, regions, families, and what the assembler says."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.gen.lower import lower
from poot.codegen.kir.sim.values import NUMPY
from poot.codegen.ptx.emit import emit_ptx
from tests.support.hip.both import agree
from tests.support.launch import assert_close, device_buffers, inputs_of, outputs_of, wanted
from tests.support.matrix import AMPERE, FAMILIES, FRAGMENTS, Form, check, request_for, schedule
from tests.support.products import BODIES
from tests.support.ptxas import assemble

FORMS = (
    Form(9, 64, 64),
    Form(20, 72, 70),
    Form(70, 200, 136, is_turned=True),
    Form(130, 136, 140, "f16", "f16"),
    Form(33, 130, 66, "f32", "f32"),
    Form(33, 130, 66, "f32", "f32", is_turned=True),
    Form(70, 64, 65, "f32", "bf16", is_double=True),
    Form(17, 70, 64, "f32", "f16", is_made=True),
)
WITHIN = {"f32": 5e-5, "f16": 4e-3, "bf16": 3e-2}


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form_is_the_oracles(form):
    assert check(form.text(), AMPERE, within=WITHIN[form.x]).schedule.name == "matrix"


@pytest.mark.parametrize("family", ["mfma", "wmma"])
@pytest.mark.parametrize(
    "form", [Form(33, 72, 66, is_turned=True), Form(20, 130, 40, "f32", "f32")], ids=str
)
def test_other_families_have_the_same_kernel(family, form):
    check(form.text(), FAMILIES[family], FRAGMENTS, WITHIN[form.x])


@pytest.mark.parametrize("name", ["left_broadcast", "heads_together", "swiglu", "scatter"])
def test_regions_of_every_kind(name):
    body, updates = BODIES[name]
    check(body, AMPERE, FRAGMENTS, updates=updates)


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_any_number_of_steps_is_on_its_way(stages):
    numbers = dict(FRAGMENTS.params) | {"stages": stages, "tile_n": 64}
    check(Form(20, 300, 70).text(), AMPERE, schedule("matrix", **numbers), 3e-2)


def test_rows_go_in_sections():
    numbers = dict(FRAGMENTS.params) | {"section": 2}
    check(Form(128, 64, 130).text(), AMPERE, schedule("matrix", **numbers), 3e-2)


def test_a_nan_in_one_row_stays_in_it():
    x, w = np.ones((20, 72), np.float32), np.ones((64, 72), np.float32)
    x[3, 70], w[63, 1] = np.nan, np.nan
    check(Form(20, 72, 64, "f32", "f32").text(), AMPERE, within=1e-6, ins=[x, w])


@pytest.mark.parametrize(
    "form",
    [
        Form(4096, 4096, 4096),
        Form(4096, 4096, 4096, "f16", "f16", is_turned=True),
        Form(32, 4096, 4096, "f32"),
        Form(4096, 4096, 14336, is_double=True),
        Form(512, 4096, 4096, "f32", "f32"),
    ],
    ids=str,
)
def test_no_kernel_spills(form):
    for call in lower(request_for(form.text(), AMPERE), AMPERE).calls:
        report = assemble(emit_ptx(call.kernel, AMPERE)[1], "sm_80")
        assert (report.spills, report.stack_nbytes, report.warnings) == (0, 0, ())


@pytest.mark.parametrize("family", ["mfma", "wmma"])
@pytest.mark.parametrize("form", [Form(20, 72, 70), Form(20, 70, 72, "f32", is_turned=True)],
                         ids=str)  # fmt: skip
def test_fibers_run_what_the_simulator_runs(family, form):
    limits = FAMILIES[family]
    request = request_for(form.text(), limits, FRAGMENTS)
    buffers = device_buffers(request, inputs_of(request))
    for call in lower(request, limits).calls:
        arrays = {
            p.name: buffers[arg].view(NUMPY[p.dtype])
            for p, arg in zip(call.kernel.params, call.args, strict=True)
        }
        got = agree(call.kernel, arrays, call.grid, within=3e-2)
        for p, arg in zip(call.kernel.params, call.args, strict=True):
            buffers[arg] = got[p.name].view(np.uint8).copy()
    assert_close(outputs_of(request, buffers)[0], wanted(request, inputs_of(request))[0], 3e-2)
