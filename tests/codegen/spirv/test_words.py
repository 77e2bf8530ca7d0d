"""Instruction encoding and the module builder."""

from __future__ import annotations

import struct

import pytest

from poot.codegen.spirv.words import MAGIC, OPCODES, VERSION, Module, encode, string_words


def test_an_instruction_starts_with_its_length_and_opcode():
    assert encode("OpIAdd", 1, 2, 3, 4) == [5 << 16 | 128, 1, 2, 3, 4]
    assert encode("OpReturn") == [1 << 16 | 253]


def test_strings_end_in_zero_and_fill_words():
    assert string_words("abc") == [0x00636261]
    assert string_words("main") == [0x6E69616D, 0]
    assert encode("OpName", 7, "x") == [3 << 16 | 5, 7, 0x78]


@pytest.mark.parametrize("operands", [(), (1, 2), (1, 2, 3, 4, 5)])
def test_a_wrong_operand_count_is_caught(operands):
    with pytest.raises(AssertionError, match="OpIAdd"):
        encode("OpIAdd", *operands)


def test_no_two_names_share_an_opcode():
    codes = [code for code, _ in OPCODES.values()]
    assert len(codes) == len(set(codes))


def test_equal_types_and_constants_are_made_once():
    m = Module()
    u32 = m.type("OpTypeInt", 32, 0)
    assert m.type("OpTypeInt", 32, 0) == u32 != m.type("OpTypeInt", 32, 1)
    assert m.constant(u32, 5) == m.constant(u32, 5) != m.constant(u32, 6)
    flag = m.type("OpTypeBool")
    assert m.truth(flag, True) == m.truth(flag, True) != m.truth(flag, False)
    assert m.fresh_type("OpTypeStruct", u32) != m.fresh_type("OpTypeStruct", u32)


def test_capabilities_and_extensions_are_declared_once_and_come_first():
    m = Module()
    m.type("OpTypeVoid")
    for _ in range(2):
        m.capability("Shader")
        m.extension("SPV_KHR_16bit_storage")
    words = struct.unpack(f"<{len(m.binary()) // 4}I", m.binary())
    assert words[:5] == (MAGIC, VERSION, 0, 2, 0)
    assert words[5:7] == (2 << 16 | 17, 1)
    assert [w & 0xFFFF for w in words].count(10) == 1
    assert words[-2:] == (2 << 16 | 19, 1)
