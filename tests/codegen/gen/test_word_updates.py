"""State updates in place, of dtypes stored whole and of dtypes that share words."""

from __future__ import annotations

import numpy as np
import pytest

from poot.ir.text import parse
from tests.support.graphs import draw_array
from tests.support.launch import BASELINE, LAVAPIPE, check_step


def slice_update(dtype: str, shape: str, part: str, start: str, axis: int) -> str:
    return f"""in v0: {dtype}[{shape}]
               in v1: {dtype}[{part}]
               in v2: i32[{start}]
               v3: {dtype}[{part}] = neg(v1)
               v4: {dtype}[{shape}] = dynamic_update_slice(v0, v3, v2) axis={axis}
               out v4"""


@pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE], ids=["lavapipe", "baseline"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(
    "shape, part, start, axis",
    [
        ("2,3,9,33", "2,3,1,33", "", 2),
        ("2,3,9,33", "2,3,4,33", "2", 2),
        ("2,5,63", "2,2,63", "2", 1),
        ("2,5,64", "2,2,64", "", 1),
        ("3,7", "3,7", "", 1),
        ("3,7", "3,2", "3", 1),
        ("7", "3", "", 0),
    ],
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_slice_updates_in_place_store_only_their_window(
    dtype, shape, part, start, axis, limits, seed
):
    text = slice_update(dtype, shape, part, start, axis)
    check_step(text, "none", ((0, 0),), limits=limits, seed=seed)


@pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE], ids=["lavapipe", "baseline"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("inner", ["3,33", "2,64", "1", ""])
@pytest.mark.parametrize(
    "rows", [[0, 1, 2, 3], [5, 6, -1, 4], [-1, 9, 2**31 - 1, -5], [8, 0, 7, 1], [3, 2, 1, 0]]
)
def test_scattered_rows_store_only_their_rows(rows, inner, dtype, limits):
    tail = f",{inner}" if inner else ""
    text = f"""in v0: {dtype}[9{tail}]
               in v1: {dtype}[4{tail}]
               in v2: i32[4]
               v3: {dtype}[9{tail}] = scatter_update(v0, v1, v2)
               out v3"""
    body = parse(text)
    rng = np.random.default_rng(0)
    ins = [draw_array(i.var.type, rng) for i in body.inputs[:2]] + [np.array(rows, np.int32)]
    check_step(body, "none", ((0, 0),), limits=limits, ins=ins)


@pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE], ids=["lavapipe", "baseline"])
def test_bytes_update_in_place(limits):
    text = """in v0: u8[5,3]
              in v1: u8[2,3]
              in v2: i32[2]
              v3: u8[5,3] = scatter_update(v0, v1, v2)
              out v3"""
    rng = np.random.default_rng(0)
    ins = [rng.integers(0, 256, s).astype(np.uint8) for s in ((5, 3), (2, 3))]
    for rows in ([0, 1], [4, 3], [1, 3], [-1, 2]):
        check_step(text, "none", ((0, 0),), limits=limits, ins=[*ins, np.array(rows, np.int32)])
