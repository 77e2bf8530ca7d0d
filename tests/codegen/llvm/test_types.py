"""Narrow dtypes through memory and registers, every pattern of their bits."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.kir.build import KernelBuilder
from poot.codegen.kir.nodes import Kernel, Ty
from poot.codegen.llvm.types import per_word
from poot.ir.dtypes import DTYPES
from tests.support.cpu import WIDTHS, cpu
from tests.support.gpu import launch_arrays

N = 1 << 16


def widen(dtype: str, count: int) -> Kernel:
    k = KernelBuilder("widen", 64)
    x, y = k.param("x", dtype, count, "r"), k.param("y", "f32", count, "w")
    i = k.group_id(0) * 64 + k.lane()
    k.store(y, i, k.cast(k.load(x, i), "f32"))
    return k.kernel()


def narrow(dtype: str, count: int) -> Kernel:
    k = KernelBuilder("narrow", 64)
    x, y = k.param("x", "f32", count, "r"), k.param("y", dtype, count, "w")
    i = k.group_id(0) * 64 + k.lane()
    k.store(y, i, k.cast(k.load(x, i), dtype))
    return k.kernel()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e4m3"])
def test_every_narrow_float_is_read_as_numpy_reads_it(dtype, width):
    bits = np.arange(256 if dtype == "f8e4m3" else N)
    raw = bits.astype(np.uint8 if dtype == "f8e4m3" else np.uint16).view(DTYPES[dtype].numpy)
    got = launch_arrays(cpu(width), widen(dtype, raw.size), {"x": raw}, (raw.size // 64, 1, 1))
    with np.errstate(invalid="ignore"):  # a signalling NaN is quieted
        np.testing.assert_array_equal(got["y"], raw.astype(np.float32))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e4m3"])
def test_floats_are_rounded_as_numpy_rounds_them(dtype, width):
    rng = np.random.default_rng(5)
    x = (rng.standard_normal(N) * 2.0 ** rng.integers(-30, 20, N)).astype(np.float32)
    halfway = np.arange(1 << 10, dtype=np.float32) / 512 + np.float32(1 / 1024)
    x[:1024] = halfway
    x[1024:1032] = [np.inf, -np.inf, np.nan, 65504, 65520, 448, 464, 465]
    with np.errstate(over="ignore"):
        want = x.astype(DTYPES[dtype].numpy).astype(np.float32)
    got = launch_arrays(cpu(width), narrow(dtype, N), {"x": x}, (N // 64, 1, 1))["y"]
    np.testing.assert_array_equal(got.astype(np.float32), want)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["f16", "i8", "u8", "bf16", "f8e4m3"])
def test_narrow_elements_are_gathered_and_scattered(dtype, width):
    k = KernelBuilder("turn", 64)
    x, y = k.param("x", dtype, 64, "r"), k.param("y", dtype, 64, "w")
    at = (k.lane() * 37 + 5) % 64
    k.store(y, (k.lane() * 11) % 64, k.load(x, at))
    raw = np.arange(64).astype(np.uint8 if DTYPES[dtype].nbytes == 1 else np.uint16)
    values = raw.view(DTYPES[dtype].numpy)
    lane = np.arange(64)
    want = np.zeros(64, raw.dtype)
    want[lane * 11 % 64] = raw[(lane * 37 + 5) % 64]
    got = launch_arrays(cpu(width), k.kernel(), {"x": values})["y"]
    np.testing.assert_array_equal(got.view(raw.dtype), want)


def test_wide_words_split_and_join():
    k = KernelBuilder("words", 16)
    y = k.param("y", "u32", 32, "w")
    wide = k.cast(k.lane(), "i64") * k.lit((1 << 33) + 5, Ty("i64"))
    pair = k.bitcast(wide, Ty("u32", 2))
    again = k.bitcast(pair, Ty("i64"))
    k.store(y, k.lane() * 2, k.extract(pair, 0))
    k.store(y, k.lane() * 2 + 1, k.cast(again >> k.lit(32, Ty("i64")), "u32"))
    got = launch_arrays(cpu(), k.kernel(), {})["y"].reshape(16, 2)
    lane = np.arange(16, dtype=np.uint64)
    np.testing.assert_array_equal(got[:, 0], lane * 5)
    np.testing.assert_array_equal(got[:, 1], lane * 2)


def test_a_word_holds_as_many_elements_as_fit():
    assert [per_word(d) for d in ("f32", "f16", "i8", "bool", "i64")] == [1, 2, 4, 1, 1]
