"""topk of more than a few: order, ties, NaN, every dtype, staged or not, narrow results."""

from __future__ import annotations

import numpy as np
import pytest

from poot.ir.dtypes import DTYPES
from poot.limits import PROFILES
from poot.planner.request import Schedule
from tests.support.launch import BASELINE, LAVAPIPE, check_step, request_of

LIMITS = pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE, PROFILES["h200"]], ids=str)


def text(rows: int, cols: int, k: int, dtype: str = "f32") -> str:
    out = f"[{rows},{k}]"
    return f"""in v0: {dtype}[{rows},{cols}]
               v1: {dtype}{out}, v2: i32{out} = topk(v0) k={k}
               out v1, v2"""


def values(rows: int, cols: int, dtype: str = "f32", seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=(rows, cols)) * 4)
    if dtype in ("f32", "f16", "bf16"):
        x[rng.random(x.shape) < 0.1] = np.nan
        x[rng.random(x.shape) < 0.05] = -0.0
        x[rng.random(x.shape) < 0.05] = -np.inf
    return x.astype(DTYPES[dtype].numpy)


def check(rows, cols, k, dtype="f32", **rest):
    request = check_step(
        text(rows, cols, k, dtype), "none", ins=[values(rows, cols, dtype)], **rest
    )
    assert request.schedule.name == "ranked_topk"
    return request


@LIMITS
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i32"])
@pytest.mark.parametrize("cols, k", [(70, 17), (70, 70), (300, 40)])
def test_ties_and_nan_are_the_oracles(cols, k, dtype, limits):
    check(3, cols, k, dtype, limits=limits)


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("lanes", [1, 8, 64])
def test_any_number_of_lanes_staged_or_not(lanes, stage):
    params = (("lanes", lanes), ("stage", stage), ("threads", lanes))
    check(2, 90, 20, schedule=Schedule("ranked_topk", params))


def test_512_of_9000():
    request = check(1, 9000, 512, limits=PROFILES["h200"])
    assert request.schedule.get("stage") == 1


def test_values_alone_and_values_computed_at_the_load():
    body = """in v0: f32[2,60]
              v1: f32[2,60] = neg(v0)
              v2: f32[2,20], v3: i32[2,20] = topk(v1) k=20
              out v2, v3"""
    check_step(body, "none", ins=[values(2, 60)])


def test_a_few_take_a_round_each_and_a_list_too_long_too():
    assert request_of(text(1, 70, 16), "none").schedule.name == "topk"
    assert request_of(text(1, 9000, 4000), "none", limits=BASELINE).schedule.name == "topk"
