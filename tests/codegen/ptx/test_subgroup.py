"""Across the lanes of a warp."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from poot.codegen.kir.build import BOOL, I32, KernelBuilder
from poot.codegen.kir.nodes import Ty
from tests.support.kernels import kernel_text
from tests.support.ptx_agree import AMPERE, agree, assembled, ptx_of

NUMPY = {"f32": np.float32, "i32": np.int32, "u32": np.uint32, "f16": np.float16,
         "bf16": ml_dtypes.bfloat16}  # fmt: skip


def warp(dtype: str):
    k = KernelBuilder("warp", 64, 32)
    return k, k.load(k.param("x", dtype, 64, "r"), k.lane()), k.param("y", dtype, 64, "w")


def given(dtype: str) -> np.ndarray:
    return ((np.arange(64) * 37) % 64).astype(np.float32).astype(np.dtype(NUMPY[dtype]))


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("op", ["shuffle", "shuffle_xor", "subgroup_broadcast"])
def test_lanes_exchange_numbers_of_every_dtype(op, dtype):
    k, x, y = warp(dtype)
    if op == "shuffle":
        made = k.op(op, x, (k.lane() * 5 + 3) & 31)
    else:
        made = k.op(op, x, **({"mask": 9} if op == "shuffle_xor" else {"lane": 7}))
    k.store(y, k.lane(), made)
    agree(k.kernel(), {"x": given(dtype)})


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("kind", ["add", "max", "min"])
@pytest.mark.parametrize("width", [2, 8, 32])
def test_runs_of_lanes_fold(kind, width, dtype):
    k, x, y = warp(dtype)
    k.store(y, k.lane(), k.op("subgroup_reduce", x, kind=kind, width=width))
    agree(k.kernel(), {"x": given(dtype)}, within=1e-6)


def test_a_whole_warps_integers_fold_in_one_instruction():
    k, x, y = warp("i32")
    k.store(y, k.lane(), k.op("subgroup_reduce", x, kind="max", width=32))
    assert "redux.sync.max.s32" in ptx_of(k.kernel())


def test_wide_integers_and_bools_are_exchanged_too():
    k, x, y = warp("i32")
    wide = k.op("shuffle_xor", k.cast(x, "i64") * k.lit(1 << 40, Ty("i64")), mask=1)
    back = k.cast(wide >> k.lit(40, Ty("i64")), "i32")
    flag = k.op("shuffle_xor", x > 30, mask=2)
    k.store(y, k.lane(), k.select(flag, back, -back))
    agree(k.kernel(), {"x": given("i32")})


def test_votes_and_ballots_are_of_the_warp():
    k, x, y = warp("i32")
    likes = x > k.op("subgroup_id", type=I32) * 100
    votes = [k.cast(k.op(n, likes), "i32") for n in ("vote_any", "vote_all")]
    word = k.bitcast(k.op("ballot", x > 20, type=Ty("u32")), I32)
    k.store(y, k.lane(), votes[0] + votes[1] * 2 + (word & 0xFFFF) * 4)
    agree(k.kernel(), {"x": given("i32")})


def test_one_lane_is_elected_and_ids_say_which():
    k = KernelBuilder("elected", 64, 32)
    y = k.param("y", "i32", 64, "w")
    k.store(y, k.lane(), k.op("subgroup_lane", type=I32))
    with k.if_(k.op("elect", type=BOOL)):
        k.store(y, k.lane(), k.lit(-1, I32))
    k.do("barrier", scope="subgroup")
    agree(k.kernel(), {})
    assert "elect.sync" in ptx_of(k.kernel())
    assert "elect.sync" not in ptx_of(k.kernel(), AMPERE)


def test_the_sum_of_a_wave_of_32_assembles():
    assert [r.spills for r in assembled(kernel_text("sum_wave32"))] == [0, 0]
