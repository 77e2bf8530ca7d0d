"""How dtypes are spelled: literals, structs, and between memory and registers."""

from __future__ import annotations

import math

import pytest

from poot.codegen.hip import types
from poot.codegen.kir.nodes import ELEMENT_BYTES, Frag, Lit, Token, Ty
from poot.errors import DtypeLowering


@pytest.mark.parametrize(
    "value, dtype, text",
    [
        (0.5, "f32", "0.5f"),
        (-0.0, "f32", "-0.0f"),
        (1e30, "f32", "1e+30f"),
        (0.1, "f32", "0.1f"),
        (0.1, "bf16", "0.100097656f"),
        (1e30, "f16", "__builtin_inff()"),
        (-math.inf, "f32", "-__builtin_inff()"),
        (math.nan, "f32", '__builtin_nanf("")'),
        (7, "i32", "7"),
        (-(2**31), "i32", "(-2147483647 - 1)"),
        (2**32 - 1, "i32", "-1"),
        (-1, "u32", "4294967295u"),
        (2**40, "i64", "1099511627776ll"),
        (-(2**63), "i64", "(-9223372036854775807ll - 1)"),
        (-1, "u64", "18446744073709551615ull"),
        (200, "i8", "-56"),
        (-1, "u8", "255u"),
        (True, "bool", "true"),
        (False, "bool", "false"),
    ],
)
def test_a_literal_is_of_its_dtype(value: float, dtype: str, text: str):
    assert types.literal(Lit(value, Ty(dtype))) == text


def test_a_struct_is_aligned_to_what_one_access_takes():
    assert types.struct_text("f32", 4) == "struct alignas(16) f32x4 { float s[4]; };"
    assert types.struct_text("f32", 8) == "struct alignas(16) f32x8 { float s[8]; };"
    assert types.struct_text("f16", 2) == "struct alignas(4) f16x2 { _Float16 s[2]; };"
    assert types.struct_text("bf16", 8) == "struct alignas(16) bf16x8 { unsigned short s[8]; };"
    assert types.struct_text("bool", 2) == "struct alignas(2) boolx2 { bool s[2]; };"


def test_every_dtype_is_spelled_everywhere():
    assert set(types.HELD_IN) == set(types.IN_MEMORY) == set(ELEMENT_BYTES)
    assert set(types.HELD_IN.values()) == set(types.C_TYPES)
    for dtype in types.HELD_IN:
        assert "x" in types.loaded(dtype, "x")
        assert "x" in types.stored(dtype, "x")
        assert "x" in types.rounded(dtype, "x")
        assert types.kind_of(dtype) in ("float", "int", "uint", "bool")


def test_a_fragment_has_as_many_scalars_as_a_lane_holds():
    assert types.lanes_of(Ty("f32", 4)) == 4
    assert types.lanes_of(Frag("mfma", "acc", 32, 16, "f32")) == 8


def test_a_token_is_refused():
    for ask in (types.lanes_of, types.dtype_of):
        with pytest.raises(DtypeLowering, match=r"hip has no register of type token\[copy\]"):
            ask(Token())
