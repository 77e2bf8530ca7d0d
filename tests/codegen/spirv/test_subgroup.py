"""Subgroup ops on Vulkan, at the width of its device. wgpu's software adapter promises no width."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from poot.codegen.kir.build import I32, U32, KernelBuilder, Val
from poot.codegen.spirv.emit import emit
from poot.errors import CapabilityError, DtypeLowering
from poot.limits import profile
from tests.support.gpu import gpu, launch_arrays

TARGET = ["vulkan"]
THREADS = 64


def run(target: str, dtype: str, build: Callable[[KernelBuilder, Val], Val], feed: np.ndarray):
    """out[lane] = build(x[lane]), as rows of one subgroup each."""
    device = gpu(target)
    width = device.limits.subgroup
    assert width > 1
    k = KernelBuilder("lanes", THREADS, subgroup=width)
    x, y = k.param("x", dtype, THREADS, "r"), k.param("y", dtype, THREADS, "w")
    k.store(y, k.lane(), build(k, k.load(x, k.lane())))
    got = launch_arrays(device, k.kernel(), {"x": feed})["y"]
    return got.reshape(-1, width), feed.reshape(-1, width), width


def numbers(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(1)
    return rng.integers(0, 1000, THREADS).astype(np.float32 if dtype == "f32" else dtype)


@pytest.mark.parametrize("target", TARGET)
@pytest.mark.parametrize("dtype", ["f32", "i32", "u32"])
@pytest.mark.parametrize("kind", ["add", "max", "min"])
@pytest.mark.parametrize("share", [1, 2, 4])
def test_a_reduction_over_a_width_reaches_every_lane_of_it(target, dtype, kind, share):
    name = {"f32": "f32", "i32": "int32", "u32": "uint32"}[dtype]
    feed = numbers(name)

    def build(k: KernelBuilder, v: Val) -> Val:
        width = gpu(target).limits.subgroup // share
        return k.op("subgroup_reduce", v, kind=kind, width=width)

    got, x, width = run(target, dtype, build, feed)
    parts = x.reshape(-1, share, width // share)
    fold = {"add": np.sum, "max": np.max, "min": np.min}[kind]
    want = np.broadcast_to(fold(parts, axis=2, keepdims=True), parts.shape)
    np.testing.assert_array_equal(got.reshape(parts.shape), want)


@pytest.mark.parametrize("target", TARGET)
def test_lanes_exchange_by_mask_by_index_and_from_one(target):
    feed = numbers("f32")
    got, x, _ = run(target, "f32", lambda k, v: k.op("shuffle_xor", v, mask=3), feed)
    np.testing.assert_array_equal(got, x[:, np.arange(x.shape[1]) ^ 3])

    def rotate(k: KernelBuilder, v: Val) -> Val:
        width = gpu(target).limits.subgroup
        return k.op("shuffle", v, (k.op("subgroup_lane", type=I32) + 1) % width)

    got, x, _ = run(target, "f32", rotate, feed)
    np.testing.assert_array_equal(got, np.roll(x, -1, axis=1))
    got, x, _ = run(target, "f32", lambda k, v: k.op("subgroup_broadcast", v, lane=5), feed)
    np.testing.assert_array_equal(got, np.broadcast_to(x[:, 5:6], x.shape))


@pytest.mark.parametrize("target", TARGET)
def test_votes_and_ballots_see_the_whole_subgroup(target):
    feed = np.arange(THREADS, dtype=np.uint32)

    def build(k: KernelBuilder, v: Val) -> Val:
        some = k.op("vote_any", v.eq(9))
        every = k.op("vote_all", v < 24)
        bits = k.op("ballot", (v % 3).eq(0), type=U32)
        return bits + k.cast(some, "u32") * 0x10000 + k.cast(every, "u32") * 0x100000

    got, x, width = run(target, "u32", build, feed)
    bits = ((x % 3 == 0) << np.arange(width, dtype=np.uint32)).sum(1, keepdims=True)
    some, every = (x == 9).any(1, keepdims=True), (x < 24).all(1, keepdims=True)
    want = np.broadcast_to(bits + some * 0x10000 + every * 0x100000, x.shape)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", TARGET)
def test_subgroups_are_runs_of_lanes(target):
    def build(k: KernelBuilder, v: Val) -> Val:
        k.barrier("subgroup")
        return k.op("subgroup_id", type=I32) * 100 + k.op("subgroup_lane", type=I32)

    got, _, width = run(target, "i32", build, np.zeros(THREADS, np.int32))
    lane = np.arange(THREADS).reshape(-1, width)
    np.testing.assert_array_equal(got, lane // width * 100 + lane % width)


def test_a_kernel_for_another_width_is_refused_with_both_widths():
    k = KernelBuilder("wide", 64, subgroup=32)
    k.store(k.param("y", "i32", 64, "w"), k.lane(), k.op("subgroup_lane", type=I32))
    with pytest.raises(CapabilityError, match="subgroups of 32: lavapipe has 8"):
        emit(k.kernel(), profile("lavapipe"))
    with pytest.raises(CapabilityError, match="subgroups of 32: webgpu-baseline has 0"):
        emit(k.kernel(), profile("webgpu-baseline"))


def test_bools_are_not_exchanged():
    k = KernelBuilder("bools", 8, subgroup=8)
    flag = k.op("shuffle_xor", k.lane() < 3, mask=1)
    k.store(k.param("y", "bool", 8, "w"), k.lane(), flag)
    with pytest.raises(DtypeLowering, match="bool needs a cast to u32"):
        emit(k.kernel(), profile("lavapipe"))
