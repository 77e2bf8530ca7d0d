"""The reduction generator: folds over any axes, several in a row, and what is made of them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poot.errors import CapabilityError
from poot.planner.request import Schedule
from tests.support.launch import BASELINE, LAVAPIPE, check_step, request_of

WITHIN = {"f32": 2e-6, "f16": 1e-3, "bf16": 8e-3, "i32": 0.0, "u32": 0.0}
LIMITS = pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE], ids=["lavapipe", "baseline"])


def fold_text(
    shape: tuple[int, ...], axes: tuple[int, ...], kind: str, dtype: str, keepdim: bool
) -> str:
    kept = [1 if i in axes else n for i, n in enumerate(shape) if keepdim or i not in axes]
    given, made = (f"{dtype}[{','.join(map(str, s))}]" for s in (shape, kept))
    return f"""in v0: {given}
               v1: {made} = reduce(v0) axis={axes} keepdim={keepdim} kind={kind}
               out v1"""


@LIMITS
@pytest.mark.parametrize("dtype", WITHIN)
@pytest.mark.parametrize("kind", ["sum", "max", "min"])
@pytest.mark.parametrize("edges", [False, True])
def test_folds_of_every_kind_and_dtype(kind, dtype, edges, limits):
    if edges and kind == "sum" and dtype in ("f32", "f16", "bf16"):
        edges = False  # an infinity beside 1e30s: the order of a sum shows
    text = fold_text((5, 65), (1,), kind, dtype, False)
    check_step(text, "reduce", limits=limits, edges=edges, within=WITHIN[dtype])


@pytest.mark.parametrize("lanes", [1, 8, 64])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("axes", [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_folds_over_any_axes(axes, keepdim, lanes):
    schedule = Schedule("reduce", (("lanes", lanes), ("threads", 64)))
    text = fold_text((3, 7, 10), axes, "sum", "f32", keepdim)
    check_step(text, "reduce", schedule=schedule, within=2e-6)


@pytest.mark.parametrize("cols", [1, 2, 33, 63, 64, 65, 500])
@pytest.mark.parametrize("rows", [1, 3, 130])
def test_the_largest_is_found_wherever_it_stands(rows, cols):
    x = np.random.default_rng(0).standard_normal((rows, cols)).astype(np.float32)
    x[:, min(40, cols - 1)] = 9.0
    check_step(fold_text((rows, cols), (1,), "max", "f32", False), "reduce", ins=[x], within=0)


def test_a_sum_over_nothing_is_zero():
    check_step(fold_text((3, 0), (1,), "sum", "f32", False), "reduce")


def softmax(shape: str, row: str, axis: int, dtype: str = "f32") -> str:
    return f"""in v0: {dtype}[{shape}]
               v1: {dtype}[{row}] = reduce(v0) axis=({axis},) keepdim=True kind=max
               v2: {dtype}[{shape}] = sub(v0, v1)
               v3: {dtype}[{shape}] = exp(v2)
               v4: {dtype}[{row}] = reduce(v3) axis=({axis},) keepdim=True kind=sum
               v5: {dtype}[{shape}] = div(v3, v4)
               out v5, v4"""


@LIMITS
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("shape, row, axis", [("4,3,33", "4,3,1", 2), ("4,9,6", "4,1,6", 1)])
def test_softmax_over_the_last_axis_or_another(shape, row, axis, dtype, limits):
    check_step(softmax(shape, row, axis, dtype), "reduce", limits=limits, within=WITHIN[dtype] * 2)


def test_a_row_of_minus_infinity_is_nan_alone():
    x = np.random.default_rng(0).standard_normal((4, 3, 33)).astype(np.float32)
    x[1, 1], x[0, 0, 5], x[2, 0] = -np.inf, -np.inf, -1e9
    check_step(softmax("4,3,33", "4,3,1", 2), "reduce", ins=[x], within=1e-6)


LAYER_NORM = """in v0: f32[2,5,40]
                in v1: f32[40]
                v2: f32[2,5,1] = reduce(v0) axis=(2,) keepdim=True kind=sum
                v3: f32[] = const() dtype=f32 shape=() value=0.025
                v4: f32[2,5,1] = mul(v2, v3)
                v5: f32[2,5,40] = sub(v0, v4)
                v6: f32[2,5,40] = mul(v5, v5)
                v7: f32[2,5,1] = reduce(v6) axis=(2,) keepdim=True kind=sum
                v8: f32[2,5,1] = mul(v7, v3)
                v9: f32[2,5,1] = rsqrt(v8)
                v10: f32[2,5,40] = mul(v5, v9)
                v11: f32[2,5,40] = mul(v10, v1)
                v12: f32[10,40] = reshape(v11) shape=(10, 40)
                out v12, v4"""


def test_layer_norm_folds_twice_and_stores_rows_and_means():
    check_step(LAYER_NORM, "reduce", within=4e-6)


def test_what_follows_may_be_narrower_than_the_row():
    text = """in v0: f32[6,40]
              v1: f32[6,1] = reduce(v0) axis=(1,) keepdim=True kind=max
              v2: f32[6,40] = sub(v0, v1)
              v3: f32[6,7] = slice(v2) start=(0, 3) step=(1, 5) stop=(6, 38)
              out v3"""
    check_step(text, "reduce")


@LIMITS
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_norm_may_end_in_a_state_update(dtype, limits):
    text = f"""in v0: {dtype}[9,33]
               in v1: {dtype}[2,33]
               in v2: i32[]
               v3: {dtype}[2,1] = reduce(v1) axis=(1,) keepdim=True kind=max
               v4: {dtype}[2,33] = sub(v1, v3)
               v5: {dtype}[9,33] = dynamic_update_slice(v0, v4, v2) axis=0
               out v5"""
    check_step(text, "reduce", ((0, 0),), limits=limits, within=WITHIN[dtype])


@pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE], ids=lambda m: m.name)
@pytest.mark.parametrize(
    "given, rows, after",
    [
        ((2, 24), (2, 2, 12), (2, 24)),
        ((2, 24), (2, 2, 12), (48,)),
        ((2, 4, 6), (2, 2, 12), (2, 4, 6)),
        ((2, 6, 4), (2, 3, 8), (4, 3, 4)),
        ((1, 5, 32), (1, 5, 4, 8), (1, 5, 32)),
        ((3, 5, 14), (3, 1, 7, 10), (6, 35)),
        ((30, 7), (2, 3, 5, 7), (5, 42)),
    ],
    ids=str,
)
def test_rows_by_groups_are_flattened_again(given, rows, after, limits):
    """A softmax over groups whose result has shapes that begin and end within rows."""
    r, g, o, k = (",".join(map(str, s)) for s in (rows, given, after, (*rows[:-1], 1)))
    last = len(rows) - 1
    body = f"""in v0: f32[{g}]
               v1: f32[{r}] = reshape(v0) shape={rows}
               v2: f32[{k}] = reduce(v1) axis=({last},) keepdim=True kind=max
               v3: f32[{r}] = sub(v1, v2)
               v4: f32[{r}] = exp(v3)
               v5: f32[{k}] = reduce(v4) axis=({last},) keepdim=True kind=sum
               v6: f32[{r}] = div(v4, v5)
               v7: f32[{o}] = reshape(v6) shape={after}
               out v7, v6"""
    check_step(body, "reduce", limits=limits)


def test_a_step_that_mixes_rows_is_refused():
    text = """in v0: f32[4,4]
              v1: f32[4] = reduce(v0) axis=(1,) keepdim=False kind=sum
              v2: f32[4,4] = add(v0, v1)
              out v2"""
    with pytest.raises(CapabilityError, match="another row"):
        check_step(text, "reduce")


def test_lanes_and_threads_stay_within_the_device():
    for n in (1, 9, 100, 100000):
        request = request_of(fold_text((3, n), (1,), "sum", "f32", False), "reduce", (), BASELINE)
        lanes, threads = request.schedule.get("lanes"), request.schedule.get("threads")
        assert lanes <= threads <= 256
        assert threads % lanes == 0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9))
def test_random_folds(seed):
    rng = Random(seed)
    shape = tuple(rng.choice((1, 2, 3, 5, 8, 13)) for _ in range(rng.randint(1, 4)))
    axes = tuple(sorted(rng.sample(range(len(shape)), rng.randint(0, len(shape)))))
    kind = rng.choice(("sum", "max", "min"))
    check_step(fold_text(shape, axes, kind, "f32", rng.random() < 0.5), "reduce", within=4e-6)
