"""Casts and bits between every two dtypes, as the simulator has them; literals too."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from poot.codegen.kir.build import KernelBuilder
from poot.codegen.kir.nodes import Ty
from poot.ir.dtypes import DTYPES
from tests.support.ptx_agree import agree, assembled

DTYPE = ("f32", "f16", "bf16", "f8e4m3", "i32", "u32", "i8", "u8", "bool")
SMALL = np.array([0, 1, -1, 2.5, -3.5, 7, 100, -100, 0.125, 63], np.float32)


def of(dtype: str) -> np.ndarray:
    """Numbers that every other dtype holds, or rounds to."""
    x = np.resize(SMALL, 32)
    if dtype == "bool":
        return x > 0
    if DTYPES[dtype].kind == "uint":
        x = np.abs(x)
    return x.astype(DTYPES[dtype].numpy)


@pytest.mark.parametrize("source", DTYPE)
def test_a_cast_is_the_simulators(source):
    k = KernelBuilder("casts", 32)
    x = k.param("x", source, 32, "r")
    given = of(source)
    for target in DTYPE:
        if target == "bool" and source != "bool":
            continue
        value = k.load(x, k.lane())
        if DTYPES[target].kind == "uint" and DTYPES[source].kind == "float":
            value = k.op("abs", k.cast(value, "f32"))
        k.store(k.param(f"to_{target}", target, 32, "w"), k.lane(), k.cast(value, target))
    agree(k.kernel(), {"x": given})


def test_wide_integers_cast_both_ways():
    k = KernelBuilder("wide", 32)
    x = k.param("x", "i32", 32, "r")
    y, z = k.param("y", "i32", 32, "w"), k.param("z", "f32", 32, "w")
    wide = k.cast(k.load(x, k.lane()), "i64") * k.lit(1 << 33, Ty("i64"))
    k.store(y, k.lane(), k.cast(wide >> k.lit(33, Ty("i64")), "i32"))
    k.store(z, k.lane(), k.cast(wide, "f32"))
    agree(k.kernel(), {"x": np.arange(-16, 16, dtype=np.int32)})


@pytest.mark.parametrize("value", [0.0, -0.0, 448.0, 464.0, 465.0, 1e9, 2.0**-9, 2.0**-10,
                                   2.0**-11, np.nan, -np.inf, 0.0166])  # fmt: skip
def test_e4m3_rounds_to_even_and_overflows_to_nan(value):
    k = KernelBuilder("e4m3", 32)
    x, y = k.param("x", "f32", 32, "r"), k.param("y", "f8e4m3", 32, "w")
    k.store(y, k.lane(), k.cast(k.load(x, k.lane()), "f8e4m3"))
    got = agree(k.kernel(), {"x": np.full(32, value, np.float32)})["y"]
    want = np.float32(value).astype(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(got.astype(np.float32), np.full(32, want, np.float32))


def test_every_byte_is_its_e4m3():
    k = KernelBuilder("bytes", 256)
    x, y = k.param("x", "f8e4m3", 256, "r"), k.param("y", "f32", 256, "w")
    k.store(y, k.lane(), k.cast(k.load(x, k.lane()), "f32"))
    given = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    agree(k.kernel(), {"x": given})


BITS = {"f32": 32, "i32": 32, "u32": 32, "f16": 16, "bf16": 16, "i8": 8, "u8": 8, "f8e4m3": 8}


def test_bits_are_kept_between_vectors_of_one_size():
    k = KernelBuilder("bits", 32)
    x = k.param("x", "u32", 32 * 4, "r")
    words = k.load(x, k.lane() * 4, 4)
    for n, (a, b) in enumerate(itertools.permutations(BITS, 2)):
        first = k.bitcast(words, Ty(a, 128 // BITS[a]))
        second = k.bitcast(first, Ty(b, 128 // BITS[b]))
        y = k.param(f"y{n}", "u32", 32 * 4, "w")
        k.store(y, k.lane() * 4, k.bitcast(second, Ty("u32", 4)))
        if n > 40:
            break
    rng = np.random.default_rng(0)
    agree(k.kernel(), {"x": rng.integers(0, 2**31, 128).astype(np.uint32)})


def test_literals_are_cast_and_seen_as_bits():
    k = KernelBuilder("literals", 32)
    y = k.param("y", "u32", 8, "w")
    half = k.cast(k.lit(2.5), "f16")
    k.store(y, 0, k.bitcast(k.cast(half, "f32"), Ty("u32")))
    k.store(y, 1, k.bitcast(k.lit(1.0), Ty("u32")))
    k.store(y, 2, k.cast(k.lit(7, Ty("i8")), "u32"))
    k.store(y, 3, k.cast(k.cast(k.lit(True, Ty("bool")), "f32"), "u32"))
    k.store(y, 4, k.bitcast(k.vec(k.lit(1.0, Ty("bf16")), k.lit(2.0, Ty("bf16"))), Ty("u32")))
    assert [r.spills for r in assembled(k.kernel())] == [0, 0]
    agree(k.kernel(), {})
