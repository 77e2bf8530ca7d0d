"""The gemm generator: tiles of many shapes over products of many shapes, every form of region."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poot.codegen.gen.lower import lower
from poot.planner.request import Schedule
from tests.support.launch import BASELINE, LAVAPIPE, check_step, request_of
from tests.support.products import BODIES, matmul_text


def gemm(**params: int) -> Schedule:
    given = {"adjacent": 0, "lane_m": 2, "lane_n": 2, "tile_k": 8, "tile_m": 16, "tile_n": 16}
    return Schedule("gemm", tuple(sorted((given | params).items())))


@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (16, 8, 16), (17, 9, 15), (5, 33, 40), (40, 16, 3)])
@pytest.mark.parametrize("adjacent", [0, 1])
@pytest.mark.parametrize("is_linear", [False, True])
@pytest.mark.parametrize("tile", [{}, {"tile_k": 16, "lane_m": 4}, {"tile_m": 8, "lane_n": 1}])
def test_odd_shapes_under_tiles(m, k, n, adjacent, is_linear, tile):
    schedule = gemm(adjacent=adjacent, **tile)
    check_step(matmul_text(m, k, n, is_linear), "matmul", schedule=schedule, within=2e-5)


@pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE], ids=["lavapipe", "baseline"])
@pytest.mark.parametrize("name", BODIES)
def test_every_form_of_region(name, limits):
    body, updates = BODIES[name]
    check_step(body, "matmul", updates, limits=limits, schedule=gemm(), within=5e-5)


def test_a_nan_beyond_a_row_never_reaches_it():
    x, w = (np.ones(s, np.float32) for s in ((17, 9), (9, 15)))
    x[16, 8] = w[3, 14] = np.nan
    check_step(matmul_text(17, 9, 15, False), "matmul", schedule=gemm(), ins=[x, w])


def test_workgroup_memory_holds_both_tiles():
    request = request_of(matmul_text(40, 40, 40, False), "matmul", schedule=gemm())
    (call,) = lower(request, LAVAPIPE).calls
    assert call.kernel.shared_nbytes == (16 + 16) * 8 * 4
    assert call.kernel.threads == 64
    assert call.grid == (9, 1, 1)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9))
def test_random_shapes_and_tiles(seed):
    rng = Random(seed)
    m, k, n = (rng.choice((1, 2, 3, 5, 16, 31, 40)) for _ in range(3))
    schedule = gemm(
        adjacent=rng.randrange(2), lane_m=rng.choice((1, 2, 4)), lane_n=rng.choice((1, 2, 4)),
        tile_k=rng.choice((4, 8, 16)), tile_m=rng.choice((8, 16, 32)),
        tile_n=rng.choice((8, 16)),
    )  # fmt: skip
    check_step(matmul_text(m, k, n, rng.random() < 0.5), "matmul", schedule=schedule, within=2e-5)
