"""Numbers in registers: rounding by bits is the target's own rounding, and bits survive."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.gen.numbers import Numbers, held, natives
from poot.codegen.kir.build import F32, U32, KernelBuilder
from poot.codegen.kir.sim.run import simulate
from poot.ir.dtypes import DTYPES
from poot.limits import PROFILES

NARROW = ("f16", "bf16", "f8e4m3")


def samples() -> np.ndarray:
    rng = np.random.default_rng(0)
    wild = rng.integers(0, 1 << 32, 20000, dtype=np.uint32).view(np.float32)
    near = rng.normal(0, 1, 5000).astype(np.float32) * np.float32(2) ** rng.integers(-30, 20, 5000)
    edges = [0, -0.0, 1, 448, 464, 464.1, 65504, 65519, 65520, 1e-8, 2**-24, 2**-25, 3 * 2**-25]
    return np.concatenate([wild, near.astype(np.float32), np.array(edges, np.float32)])


@pytest.mark.parametrize("dtype", NARROW)
def test_rounding_and_bits_are_ml_dtypes_own(dtype):
    x = samples()
    k = KernelBuilder("round", threads=1)
    k.param("x", "f32", x.size, "r")
    k.param("y", "f32", x.size, "w")
    k.param("bits", "u32", x.size, "w")
    numbers = Numbers(k, frozenset())
    i = k.group_id(0)
    rounded = numbers.rounded(k.load("x", i), dtype)
    word = numbers.to_bits(rounded, dtype)
    k.store("y", i, numbers.from_bits(word, dtype))
    k.store("bits", i, word)
    y, word_out = np.zeros(x.size, np.float32), np.zeros(x.size, np.uint32)
    simulate(k.kernel(), {"x": x, "y": y, "bits": word_out}, x.size)
    with np.errstate(all="ignore"):
        want = x.astype(DTYPES[dtype].numpy)
        np.testing.assert_array_equal(y, want.astype(np.float32))
    is_number = ~np.isnan(want.astype(np.float32))
    unsigned = {1: np.uint8, 2: np.uint16}[DTYPES[dtype].nbytes]
    np.testing.assert_array_equal(word_out[is_number], want.view(unsigned)[is_number])


def test_registers_hold_four_bytes_and_bools():
    assert held("f16") == held("bf16") == held("f8e4m3") == F32
    assert held("u8") == U32
    assert held("i8").dtype == "i32"


def test_what_a_target_rounds_itself():
    assert natives(PROFILES["lavapipe"]) == {"f16"}
    assert natives(PROFILES["webgpu-baseline"]) == frozenset()
    assert natives(PROFILES["h200"]) == {"f16", "bf16"}
