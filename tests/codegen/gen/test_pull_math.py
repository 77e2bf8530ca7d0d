"""Ops that compute, element by element, at every dtype and edge."""

from __future__ import annotations

import numpy as np
import pytest

from poot.ir.dtypes import DTYPES
from poot.ir.graph import TensorType
from poot.limits import PROFILES
from tests.support.launch import BASELINE, LAVAPIPE, body_of, check_step

UNARY = ("neg", "exp", "log", "sqrt", "rsqrt", "recip", "sin", "cos", "tanh", "erf", "abs", "floor")
BINARY = ("add", "sub", "mul", "div", "max", "min", "rem")
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
FLOATS = ("f32", "f16", "bf16")
# A 16-bit result may round the other way where the oracle's f32 differs in its last place.
WITHIN = {"f32": 1e-6, "f16": 1e-3, "bf16": 8e-3}


@pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE], ids=["lavapipe", "baseline"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", UNARY)
def test_unary_ops_are_the_oracles_at_every_edge(op, dtype, limits):
    x = TensorType(dtype, (3, 67))
    check_step(body_of(op, x), "none", limits=limits, edges=True, within=WITHIN[dtype])


@pytest.mark.parametrize("dtype", [*FLOATS, "i32", "u32"])
@pytest.mark.parametrize("op", BINARY)
def test_binary_ops_are_the_oracles_at_every_edge(op, dtype):
    a, b = TensorType(dtype, (5, 1, 33)), TensorType(dtype, (7, 33))
    check_step(body_of(op, a, b), "none", edges=True, within=WITHIN.get(dtype, 0))


@pytest.mark.parametrize("dtype", [*FLOATS, "i32", "u32", "bool"])
@pytest.mark.parametrize("op", COMPARE)
def test_comparisons_are_false_with_nan_but_ne(op, dtype):
    t = TensorType(dtype, (4, 50))
    check_step(body_of(op, t, t), "none", edges=True, within=0)


@pytest.mark.parametrize(
    "op, dtype",
    [(o, d) for o in ("and", "or", "xor") for d in ("i32", "u32", "bool")]
    + [(o, d) for o in ("shl", "shr") for d in ("i32", "u32")],
)
def test_bits_and_shifts(op, dtype):
    t = TensorType(dtype, (40,))
    check_step(body_of(op, t, t), "none", edges=True, within=0)


@pytest.mark.parametrize(
    "target", ["f32", "f16", "bf16", "f8e4m3", "i32", "u32", "i8", "u8", "bool"]
)
@pytest.mark.parametrize(
    "source", ["f32", "f16", "bf16", "f8e4m3", "i32", "u32", "i8", "u8", "bool"]
)
def test_casts_round_saturate_and_wrap(source, target):
    check_step(
        body_of("cast", TensorType(source, (301,)), dtype=target), "none", edges=True, within=0
    )


@pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE, PROFILES["h200"]], ids=lambda p: p.name)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e4m3"])
def test_every_narrow_number_survives_f32_and_back(dtype, limits):
    count = 256 if dtype == "f8e4m3" else 65536
    bits = np.arange(count, dtype=np.uint8 if count == 256 else np.uint16)
    text = f"""in v0: {dtype}[{count}]
               v1: f32[{count}] = cast(v0) dtype=f32
               v2: {dtype}[{count}] = cast(v1) dtype={dtype}
               out v1, v2"""
    x = bits.view(DTYPES[dtype].numpy)
    check_step(text, "none", limits=limits, ins=[x], within=0)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f8e4m3"])
def test_casts_to_narrow_floats_round_to_even_everywhere(dtype):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 1 << 32, 20000, dtype=np.uint32).view(np.float32)
    ties = np.arange(0, 1 << 16, 7, dtype=np.uint32) << 16 | 0x8000
    x = np.concatenate([x, ties.view(np.float32), rng.normal(0, 300, 5000).astype(np.float32)])
    for limits in (LAVAPIPE, BASELINE):
        body = body_of("cast", TensorType("f32", x.shape), dtype=dtype)
        check_step(body, "none", limits=limits, ins=[x], within=0)
