"""Constants, registers and their variables."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.kir.build import F32, I32
from poot.codegen.kir.nodes import Frag, Lit, Reg, Ty
from poot.codegen.spirv.body import HELD_IN, Body, register_type
from poot.codegen.spirv.text import disassemble
from poot.codegen.spirv.words import Module
from poot.errors import DtypeLowering
from poot.ir.dtypes import DTYPES
from poot.limits import profile


def body(escaping: frozenset[str] = frozenset()) -> Body:
    return Body(Module(), profile("webgpu-baseline"), escaping, None)


def globals_of(b: Body) -> str:
    return disassemble(b.module.binary())


def test_every_dtype_is_held_in_one_that_registers_have():
    assert set(HELD_IN) >= set(DTYPES)
    assert set(HELD_IN.values()) == {"f32", "i32", "u32", "bool", "i64", "u64"}


def test_a_literal_is_rounded_to_its_dtype():
    b = body()
    assert b.const("f16", 1 / 3) == b.const("f32", float(np.float16(1 / 3)))
    assert b.const("f16", 1 / 3) != b.const("f32", 1 / 3)
    assert b.const("i32", -1) != b.const("u32", 0xFFFFFFFF)


def test_an_infinity_is_made_from_its_bits():
    b = body()
    b.const("f32", float("-inf"))
    assert str(0xFF800000) in globals_of(b)
    assert len(b.code) == 4
    b.const("f16", 1e6)  # too large for the dtype: an infinity too
    assert len(b.code) == 8


def test_a_register_written_once_needs_no_variable():
    b = body(frozenset({"out"}))
    one = b.const("f32", 1.0)
    b.put(Reg("a", F32), [one])
    assert (b.get(Reg("a", F32)), b.variables) == ((one,), [])
    b.put(Reg("out", F32), [one])
    b.put(Reg("m", F32, mutable=True), [one])
    assert len(b.variables) == 8
    assert b.get(Reg("m", F32, mutable=True)) != (one,)


def test_a_literal_fills_every_lane_of_a_vector():
    assert len(set(body().get(Lit(2, Ty("i32", 4))))) == 1


def test_a_register_of_another_kind_is_refused():
    with pytest.raises(DtypeLowering, match="no register of type frag"):
        register_type(Reg("f", Frag("mma", "a", 16, 16, "f16")))
    assert register_type(Reg("i", I32)) == I32
