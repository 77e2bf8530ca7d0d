"""Narrow dtypes against numpy and ml_dtypes, over every bit pattern or many of them."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.kir.build import KernelBuilder
from poot.codegen.kir.nodes import Kernel, Ty
from poot.codegen.spirv.types import per_word
from poot.ir.dtypes import DTYPES
from tests.support.gpu import DEVICES, gpu, launch_arrays

FLOATS = ("f16", "bf16", "f8e4m3")


def patterns(dtype: str) -> np.ndarray:
    """Every value of a narrow dtype."""
    size = DTYPES[dtype].nbytes
    bits = np.arange(1 << 8 * size, dtype=np.uint16 if size == 2 else np.uint8)
    return bits.view(DTYPES[dtype].numpy)


def convert(source: str, target: str, count: int) -> Kernel:
    k = KernelBuilder("convert", 64)
    x, y = k.param("x", source, count, "r"), k.param("y", target, count, "w")
    at = (k.group_id(0) * 64 + k.lane()) * 4
    with k.if_(at < count):
        v = k.load(x, at, 4)
        k.store(y, at, k.vec(*(k.cast(k.extract(v, n), target) for n in range(4))))
    return k.kernel()


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Equal values and signs of zero; every NaN is one value."""
    a, b = got.astype(np.float32), want.astype(np.float32)
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(np.signbit(a[b == 0]), np.signbit(b[b == 0]))


def run(target: str, kernel: Kernel, feed: np.ndarray) -> np.ndarray:
    groups = -(-feed.size // 256)
    return launch_arrays(gpu(target), kernel, {"x": feed}, (groups, 1, 1))["y"]


@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_narrow_float_widens_exactly(target, dtype):
    feed = patterns(dtype)
    same(run(target, convert(dtype, "f32", feed.size), feed), feed)


@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_narrow_float_survives_a_copy(target, dtype):
    feed = patterns(dtype)
    same(run(target, convert(dtype, dtype, feed.size), feed), feed)


def edges(dtype: str) -> np.ndarray:
    """Halfway between neighbours of the narrow dtype, a little to each side, and random floats."""
    exact = patterns(dtype).astype(np.float32)
    exact = np.sort(exact[np.isfinite(exact)])
    middle = (exact[1:] / 2 + exact[:-1] / 2).astype(np.float32)
    near = [np.nextafter(middle, np.float32(s * np.inf)) for s in (1, -1)]
    rng = np.random.default_rng(5)
    exponents = rng.integers(-30, 20, 4096)
    loose = (rng.standard_normal(4096) * 2.0**exponents).astype(np.float32)
    special = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30, 65520, 448, 464], np.float32)
    feed = np.concatenate([middle, *near, loose, special])
    feed = feed[np.isnan(feed) | (np.abs(feed) >= 2.0**-125) | (feed == 0)]
    return feed[: feed.size // 4 * 4]


@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_round_to_nearest_even(target, dtype):
    feed = edges(dtype)
    with np.errstate(over="ignore"):
        want = feed.astype(DTYPES[dtype].numpy)
    same(run(target, convert("f32", dtype, feed.size), feed), want)


@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_narrow_arithmetic_rounds_at_every_op(target, dtype):
    k = KernelBuilder("chain", 64)
    x, y = k.param("x", dtype, 256, "r"), k.param("y", dtype, 256, "w")
    at = k.lane() * 4
    v = k.load(x, at, 4)
    k.store(y, at, (v * v + v) / k.vec(*([k.lit(3.0, Ty(dtype))] * 4)))
    rng = np.random.default_rng(2)
    feed = rng.standard_normal(256).astype(np.float32).astype(DTYPES[dtype].numpy)
    got = launch_arrays(gpu(target), k.kernel(), {"x": feed})["y"]
    three = np.array(3, feed.dtype)
    np.testing.assert_array_equal(got, (feed * feed + feed) / three)


@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_narrow_integers_wrap(target, dtype):
    k = KernelBuilder("wrap", 64)
    x, y = k.param("x", dtype, 256, "r"), k.param("y", dtype, 256, "w")
    at = k.lane() * 4
    v = k.load(x, at, 4)
    k.store(y, at, v * v + v)
    feed = np.arange(256).astype(np.uint8).view(DTYPES[dtype].numpy)
    got = launch_arrays(gpu(target), k.kernel(), {"x": feed})["y"]
    np.testing.assert_array_equal(got, feed * feed + feed)


@pytest.mark.parametrize(
    "dtype, held", [("f32", 1), ("i64", 1), ("bool", 1), ("f16", 2), ("u8", 4)]
)
def test_a_word_holds_as_many_elements_as_fit(dtype, held):
    assert per_word(dtype) == held
