"""What rows write into: names, constants, and how a register is held."""

from __future__ import annotations

import pytest

from poot.codegen.kir.build import KernelBuilder
from poot.codegen.kir.nodes import Frag, Lit, Reg, Ty
from poot.codegen.kir.uniform import analyse
from poot.codegen.llvm.body import Body, float_text, overload, register_type
from poot.codegen.llvm.homes import Homes
from poot.errors import DtypeLowering


def body(width: int = 16) -> Body:
    k = KernelBuilder("k", 16)
    k.store(k.param("y", "i32", 16, "w"), k.lane(), k.lane() * 2)
    kernel = k.kernel()
    uniformity = analyse(kernel)
    return Body(width, uniformity, Homes(kernel.body, uniformity), True)


def test_intrinsics_are_named_by_their_types():
    assert overload("<16 x float>") == "v16f32"
    assert overload("<8 x ptr>") == "v8p0"
    assert overload("i32") == "i32"


def test_float_constants_are_the_bits_of_a_double():
    assert float_text(1.0, "f32") == "0x3FF0000000000000"
    assert float_text(float("inf"), "f32") == "0x7FF0000000000000"
    assert float_text(70000.0, "f16") == "0x7FF0000000000000"
    assert float_text(0.1, "bf16") == float_text(0.10009765625, "f32")


def test_constants_fill_vectors_and_wrap():
    b = body()
    assert b.const("i32", 5, True) == "splat (i32 5)"
    assert b.const("u32", 2**32 - 1) == "-1"
    assert b.const("i8", 200) == "-56"
    assert b.const("u8", 200) == "200"
    assert b.const("bool", True) == "true"


def test_a_linear_value_becomes_a_vector_by_its_stride():
    b = body()
    vector = b.spread("i32", "%x", 3)
    assert b.lines[-1].strip().startswith(f"{vector} = add <16 x i32>")
    assert "i32 0, i32 3, i32 6" in b.lines[-1]


def test_a_literal_is_not_wide_and_a_matrix_fragment_is_refused():
    b = body()
    assert not b.is_wide(Lit(3, Ty("i32")))
    with pytest.raises(DtypeLowering, match="no register of type frag"):
        register_type(Reg("f", Frag("mma", "a", 16, 16, "f16")))


def test_loops_say_how_they_may_be_unrolled():
    b = body()
    assert b.loop_hint(None) == ""
    assert "!llvm.loop !1" in b.loop_hint(1)
    b.loop_hint(4)
    assert 'unroll.disable"' in "\n".join(b.metadata)
    assert 'unroll.count", i32 4' in "\n".join(b.metadata)
