"""The best blocks of each row: order, ties, NaN, counts, staged or not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.errors import CapabilityError
from poot.planner.request import Schedule
from tests.support.launch import BASELINE, LAVAPIPE, check_step
from tests.support.selected_forms import best_inputs, best_text

LIMITS = pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE], ids=["lavapipe", "baseline"])


@LIMITS
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("always", ["tail", "own"])
@pytest.mark.parametrize("shape, k, ratio", [((2, 2, 3, 33), 5, 4), ((2, 1, 4, 70), 70, 1)])
def test_rows_with_ties_and_nan_are_the_oracles(shape, k, ratio, always, dtype, limits):
    ins = best_inputs(shape, ratio, dtype, ties=True)
    check_step(best_text(shape, k, ratio, always, dtype), "none", limits=limits, ins=ins)


@pytest.mark.parametrize("blocks, k", [(1, 1), (15, 3), (64, 64), (257, 100), (2049, 7)])
def test_rows_of_any_length(blocks, k):
    shape = (1, 1, 3, blocks)
    check_step(best_text(shape, k, 4), "none", ins=best_inputs(shape, 4))


def test_2048_of_32768_blocks():
    shape = (1, 1, 1, 32768)
    scores, _ = best_inputs(shape, 4, ties=True)
    at = np.array([[131070]], np.int32)
    request = check_step(best_text(shape, 2048, 4), "none", ins=[scores, at], limits=BASELINE)
    assert request.schedule.get("stage") == 0


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("lanes", [1, 4, 16, 64])
def test_any_number_of_lanes_staged_or_not(lanes, stage):
    shape = (1, 2, 2, 75)
    params = (("lanes", lanes), ("stage", stage), ("threads", lanes))
    check_step(
        best_text(shape, 9, 4), "none", ins=best_inputs(shape, 4, ties=True),
        schedule=Schedule("block_topk", params),
    )  # fmt: skip


def test_all_equal_scores_take_the_lowest_blocks():
    shape, at = (1, 1, 1, 300), np.array([[1199]], np.int32)
    for value in (0.0, -0.0, np.nan, -np.inf, np.inf):
        scores = np.full(shape, value, np.float32)
        check_step(best_text(shape, 40, 4), "none", ins=[scores, at])


@pytest.mark.parametrize("position", [-(2**31), -1, 0, 2, 3, 2**31 - 1])
def test_positions_at_the_ends_count_no_block_too_many(position):
    shape = (1, 1, 1, 20)
    ins = [best_inputs(shape, 4)[0], np.array([[position]], np.int32)]
    check_step(best_text(shape, 5, 4), "none", ins=ins)


def test_scores_are_computed_at_the_load():
    body = """in v0: f32[1,1,2,40]
              in v1: i32[1,2]
              v2: f32[1,1,2,40] = neg(v0)
              v3: i32[1,1,2,4] = block_topk(v2, v1) k=4 ratio=4
              out v3"""
    check_step(
        body, "none", ins=[best_inputs((1, 1, 2, 40), 4)[0], np.array([[99, 158]], np.int32)]
    )


def test_a_step_of_two_results_is_refused():
    body = """in v0: f32[1,1,2,40]
              in v1: i32[1,2]
              v2: i32[1,1,2,4] = block_topk(v0, v1) k=4 ratio=4
              v3: i32[1,1,2,4] = neg(v2)
              out v3"""
    with pytest.raises(CapabilityError, match="gives its ids alone"):
        check_step(body, "none", limits=replace(LAVAPIPE))
