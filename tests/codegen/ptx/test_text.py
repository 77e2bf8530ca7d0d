"""Numbers, declarations and architectures as PTX spells them."""

from __future__ import annotations

import math

import pytest

from poot.codegen.kir.nodes import Lit, Ty
from poot.codegen.ptx.text import WIDTH, arch_number, as_bits, declarations, spell
from poot.errors import CapabilityError


@pytest.mark.parametrize(
    "dtype, value, text",
    [
        ("f32", 1.0, "0f3F800000"),
        ("f32", -0.0, "0f80000000"),
        ("f32", -math.inf, "0fFF800000"),
        ("f32", math.nan, "0f7FC00000"),
        ("f32", 1e300, "0f7F800000"),
        ("f16", 1.5, "0x3E00"),
        ("bf16", -2.0, "0xC000"),
        ("f8e4m3", 448.0, "0x007E"),
        ("i32", -1, "-1"),
        ("i32", 2**32 - 1, "-1"),
        ("u32", -1, "4294967295"),
        ("i64", 2**63, "-9223372036854775808"),
        ("u64", -1, "18446744073709551615"),
        ("i8", 255, "-1"),
        ("u8", -1, "255"),
    ],
)
def test_a_number_is_spelled_by_its_dtype(dtype, value, text):
    assert spell(Lit(value, Ty(dtype))) == text


def test_a_float_is_its_bits_where_no_type_is_said():
    assert as_bits("0f3F800000") == "0x3F800000"
    assert as_bits("$t1") == "$t1"


def test_an_architecture_is_sm_80_or_newer():
    assert [arch_number(a) for a in ("sm_80", "sm_86", "sm_90a", "sm_100")] == [80, 86, 90, 100]
    for arch in ("sm_75", "gfx942", "", "sm_90b"):
        with pytest.raises(CapabilityError, match=f"sm_80 or newer: got '{arch}'"):
            arch_number(arch)


def test_declarations_keep_the_page_and_their_order():
    names = {"p": ["$p"], "r": [f"$register{n}" for n in range(40)], "d": []}
    lines = declarations(names)
    assert lines[0] == "    .reg .pred $p;"
    assert all(len(line) <= WIDTH for line in lines)
    listed = [n for line in lines[1:] for n in line.rstrip(";").split(".b32 ")[1].split(", ")]
    assert listed == names["r"]
