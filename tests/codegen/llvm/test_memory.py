"""Loads and stores of every shape of address, masked and not, against the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.kir.build import I32, KernelBuilder, Val
from poot.codegen.llvm.emit import function_text
from tests.support.cpu import WIDTHS, agrees, cpu


def addresses(k: KernelBuilder, kind: str) -> Val:
    lane = k.lane()
    return {
        "same": k.group_id(0) * 0 + 3,
        "next to next": lane + 5,
        "two apart": lane * 2,
        "backward": 63 - lane,
        "anyhow": (lane * lane * 3) % 61,
    }[kind]


KINDS = ("same", "next to next", "two apart", "backward", "anyhow")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["f32", "f16", "i8", "bool"])
@pytest.mark.parametrize("kind", KINDS)
def test_loads_find_their_elements(kind, dtype, width):
    for masked in (False, True):
        k = KernelBuilder("loads", 29)
        x, y = k.param("x", dtype, 64, "r"), k.param("y", "f32", 29, "w")
        lane = k.lane()
        if masked:
            with k.if_((lane & 3).eq(1)):
                k.store(y, lane, k.cast(k.load(x, addresses(k, kind)), "f32"))
        else:
            k.store(y, lane, k.cast(k.load(x, addresses(k, kind)), "f32"))
        values = np.arange(64) % 7
        numpy = {"f32": np.float32, "f16": np.float16, "i8": np.int8, "bool": np.bool_}[dtype]
        arrays = {"x": values.astype(numpy), "y": np.full(29, -1, np.float32)}
        agrees(k.kernel(), arrays, width=width)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["f32", "f16", "i8"])
@pytest.mark.parametrize("kind", KINDS[1:4])
def test_stores_reach_their_elements_and_no_others(kind, dtype, width):
    for masked in (False, True):
        k = KernelBuilder("stores", 29)
        y = k.param("y", dtype, 96, "w")
        value = k.cast(k.lane() + 1, dtype)
        if masked:
            with k.if_((k.lane() & 3).eq(1)):
                k.store(y, addresses(k, kind), value)
        else:
            k.store(y, addresses(k, kind), value)
        numpy = {"f32": np.float32, "f16": np.float16, "i8": np.int8}[dtype]
        agrees(k.kernel(), {"y": np.full(96, 99, numpy)}, width=width)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["f32", "f16", "u8"])
@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_short_vectors_are_read_and_written_whole(lanes, dtype, width):
    for kind in ("run", "anyhow", "same"):
        k = KernelBuilder("short", 16)
        x, y = k.param("x", dtype, 16 * lanes, "r"), k.param("y", dtype, 16 * lanes, "w")
        lane = k.lane()
        at = {"run": lane, "anyhow": (lane * 7) & 15, "same": k.lit(2, I32)}[kind]
        with k.if_(lane < 13):
            k.store(y, lane * lanes, k.load(x, at * lanes, lanes))
        numpy = {"f32": np.float32, "f16": np.float16, "u8": np.uint8}[dtype]
        x_values = np.arange(16 * lanes).astype(numpy)
        agrees(k.kernel(), {"x": x_values, "y": np.zeros(16 * lanes, numpy)}, width=width)


def test_neighbouring_addresses_are_one_vector_and_equal_ones_a_scalar():
    k = KernelBuilder("shapes", 16)
    x, y = k.param("x", "f32", 64, "r"), k.param("y", "f32", 16, "w")
    k.store(y, k.lane(), k.load(x, k.lane()) + k.load(x, 7))
    text = function_text(k.kernel(), cpu().limits)
    assert "load <16 x float>, ptr" in text
    assert "load float, ptr" in text
    assert "gather" not in text


@pytest.mark.parametrize("stride", [0, 1, None])
def test_a_hint_fetches_the_line_of_the_first_lane_and_reads_nothing(stride):
    k = KernelBuilder("hints", 16)
    x, y = k.param("x", "f32", 64, "r"), k.param("y", "i32", 16, "w")
    at = k.lane() * k.lane() // 8 if stride is None else k.lane() * stride
    k.prefetch(x, at)
    k.store(y, k.lane(), at)
    assert function_text(k.kernel(), cpu().limits).count("call void @llvm.prefetch") == 1
    agrees(k.kernel(), {"x": np.zeros(64, np.float32), "y": np.zeros(16, np.int32)})
    k = KernelBuilder("hints", 16)
    k.prefetch(k.param("x", "f32", 64, "r"), k.group_id(0))
    assert "load float" not in function_text(k.kernel(), cpu().limits)


def test_a_streamed_run_fetches_ahead_of_itself():
    k = KernelBuilder("streams", 16)
    x, y = k.param("x", "f32", 64, "r"), k.param("y", "f32", 64, "w")
    at = k.group_id(0) * 16 + k.lane()
    k.store(y, at, k.load(x, at, cache="stream"))
    assert "llvm.prefetch" in function_text(k.kernel(), cpu().limits)
    values = np.arange(64, dtype=np.float32)
    got = agrees(k.kernel(), {"x": values, "y": np.zeros(64, np.float32)}, (4, 1, 1))
    np.testing.assert_array_equal(got["y"], values)
