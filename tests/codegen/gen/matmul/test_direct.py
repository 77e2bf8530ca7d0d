"""The gemv generator: shapes, operand forms, prologues, epilogues, several products in a launch."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poot.errors import CapabilityError
from poot.planner.request import Request, Schedule
from tests.support.launch import BASELINE, LAVAPIPE, check_step
from tests.support.products import BODIES, matmul_text

LIMITS = pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE], ids=["lavapipe", "baseline"])
WITHIN = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}


def gemv(**params: int) -> Schedule:
    given = {"adjacent": 0, "cols": 1, "lanes": 1, "rows": 4, "threads": 32, "unroll": 4} | params
    return Schedule("gemv", tuple(sorted(given.items())))


@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (1, 64, 33), (3, 33, 5), (5, 7, 130), (9, 96, 64)])
@pytest.mark.parametrize("lanes", [1, 4, 32])
@pytest.mark.parametrize("adjacent", [0, 1])
@pytest.mark.parametrize("cols", [1, 3])
@pytest.mark.parametrize("is_linear", [False, True])
def test_odd_shapes_under_every_split(m, k, n, lanes, adjacent, cols, is_linear):
    schedule = gemv(lanes=lanes, adjacent=adjacent, cols=cols)
    check_step(matmul_text(m, k, n, is_linear), "matmul", schedule=schedule, within=WITHIN["f32"])


@LIMITS
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("is_linear", [False, True])
def test_every_float_dtype(dtype, is_linear, limits):
    text = matmul_text(3, 34, 33, is_linear, dtype)
    check_step(text, "matmul", limits=limits, within=WITHIN[dtype])


def check(name: str, limits: object = LAVAPIPE, schedule: Schedule | None = None) -> Request:
    body, updates = BODIES[name]
    return check_step(body, "matmul", updates, limits=limits, schedule=schedule, within=5e-5)


@LIMITS
@pytest.mark.parametrize("name", BODIES)
def test_every_form_of_region(name, limits):
    check(name, limits)


@pytest.mark.parametrize("name", BODIES)
def test_every_form_of_region_with_shared_sums(name):
    check(name, schedule=gemv(lanes=8, adjacent=1, rows=2, cols=2))


def test_a_nan_in_one_row_stays_in_it():
    x, w = (np.ones(s, np.float32) for s in ((5, 33), (33, 20)))
    x[2, 7] = np.nan
    check_step(matmul_text(5, 33, 20, False), "matmul", ins=[x, w])


def test_a_long_constant_sum_is_held_in_f32():
    x = np.full((1, 65536), 1.0, np.float32)
    w = (1 + 2.0**-9 * np.resize([1, -1], (65536, 1))).astype(np.float32)
    check_step(matmul_text(1, 65536, 1, False), "matmul", ins=[x / 65536, w], within=1e-5)


def test_an_epilogue_that_mixes_elements_is_refused():
    text = """in v0: f32[4,8]
              in v1: f32[8,4]
              v2: f32[4,4] = matmul(v0, v1)
              v3: f32[4,4] = transpose(v2) perm=(1, 0)
              v4: f32[4,4] = add(v2, v3)
              out v4"""
    with pytest.raises(CapabilityError, match="another element"):
        check_step(text, "matmul")


def test_products_of_different_left_operands_are_refused():
    text = """in v0: f32[4,8]
              in v1: f32[8,4]
              v2: f32[4,4] = matmul(v0, v1)
              v3: f32[4,4] = matmul(v2, v2)
              out v3"""
    with pytest.raises(CapabilityError, match="left operand"):
        check_step(text, "matmul")


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9))
def test_random_shapes_and_schedules(seed):
    rng = Random(seed)
    m, k, n = (rng.choice((1, 2, 3, 5, 16, 31, 40)) for _ in range(3))
    schedule = gemv(
        lanes=rng.choice((1, 2, 16)), adjacent=rng.randrange(2), cols=rng.randint(1, 3),
        rows=rng.randint(1, 5), unroll=rng.choice((1, 2, 8)),
    )  # fmt: skip
    text = matmul_text(m, k, n, rng.random() < 0.5)
    check_step(text, "matmul", schedule=schedule, within=WITHIN["f32"])
