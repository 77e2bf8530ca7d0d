"""The panels generator in the simulator: shapes, weights packed and not, every form of region."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.codegen.gen.lower import lower
from poot.limits import DeviceLimits, profile
from tests.support.launch import check_step, request_of
from tests.support.products import BODIES, matmul_text

AVX2 = profile("cpu-avx2")
# A vector of 4 keeps the simulator quick.
SMALL = replace(AVX2, vector=4, subgroup=4)
WITHIN = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}
SHAPES = [(1, 1, 1), (1, 64, 33), (3, 33, 5), (5, 7, 130), (9, 96, 64), (30, 20, 17)]


@pytest.mark.parametrize("m, k, n", SHAPES)
@pytest.mark.parametrize("bound", [(), (1,)])
@pytest.mark.parametrize("is_linear", [False, True])
def test_odd_shapes_with_weights_packed_and_not(m, k, n, bound, is_linear):
    text = matmul_text(m, k, n, is_linear)
    request = check_step(text, "matmul", limits=SMALL, bound=bound, within=WITHIN["f32"])
    assert request.schedule.name == "panels"


@pytest.mark.parametrize("rows", [3, 30])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("bound", [(), (1,)])
def test_every_float_dtype(dtype, rows, bound):
    text = matmul_text(rows, 34, 33, True, dtype)
    check_step(text, "matmul", limits=SMALL, bound=bound, within=WITHIN[dtype])


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("is_bound", [False, True])
def test_every_form_of_region(name, is_bound):
    body, updates = BODIES[name]
    updated = {at for _, at in updates}
    bound = set(range(40)) - updated if is_bound else ()
    check_step(body, "matmul", updates, limits=SMALL, bound=bound, within=5e-5)


def test_what_does_not_fit_workgroup_memory_is_made_where_it_is_read():
    tight: DeviceLimits = replace(SMALL, workgroup_nbytes=2048)
    request = check_step(matmul_text(30, 64, 33, True), "matmul", limits=tight, within=2e-5)
    assert request.schedule.get("stage_right") == 0
    request = check_step(matmul_text(4, 512, 33, True), "matmul", limits=tight, within=2e-5)
    assert request.schedule.get("stage_left") == 0


def test_many_rows_are_packed_by_a_launch_of_their_own():
    calls = lower(request_of(matmul_text(30, 64, 33, True), "matmul", limits=SMALL), SMALL).calls
    assert [c.kernel.name for c in calls] == ["pack_rows", "panels"]
    calls = lower(request_of(matmul_text(3, 64, 33, True), "matmul", limits=SMALL), SMALL).calls
    assert [c.kernel.name for c in calls] == ["panels"]


@pytest.mark.parametrize("rows", [5, 30])
def test_a_nan_in_one_row_stays_in_it(rows):
    x, w = (np.ones(s, np.float32) for s in ((rows, 33), (33, 20)))
    x[2, 7] = np.nan
    check_step(matmul_text(rows, 33, 20, False), "matmul", limits=SMALL, ins=[x, w])
