from __future__ import annotations

import pytest

from poot.errors import TypeRuleError
from poot.ir.rules.elementwise import (
    BINARY,
    BITWISE,
    COMPARE,
    SHIFT,
    UNARY_FLOAT,
    broadcast_shapes,
)
from tests.support.rules import refused, typed


@pytest.mark.parametrize(
    "shapes, out",
    [
        (((2, 1), (3,)), (2, 3)),
        (((), (4,)), (4,)),
        (((1,), (0,)), (0,)),
        (((5, 1, 3), (2, 1), (1, 1)), (5, 2, 3)),
        ((), ()),
    ],
)
def test_shapes_broadcast_from_the_right(shapes, out):
    assert broadcast_shapes(*shapes) == out


@pytest.mark.parametrize("shapes", [((2,), (3,)), ((0,), (2,)), ((2, 3), (3, 3))])
def test_unlike_extents_do_not_broadcast(shapes):
    with pytest.raises(TypeRuleError, match="shapes that broadcast"):
        broadcast_shapes(*shapes)


@pytest.mark.parametrize("op", UNARY_FLOAT)
def test_a_unary_op_keeps_its_operands_type(op):
    for dtype in ("f32", "f16", "bf16"):
        assert typed(op, f"{dtype}[2,3]") == f"{dtype}[2,3]"
    refused("a float", op, "bool[2]")
    if op in ("neg", "abs"):
        assert typed(op, "i32[2]") == "i32[2]"
        refused("a float or i32", op, "u32[2]")
    else:
        refused("a float", op, "i32[2]")


@pytest.mark.parametrize("op", BINARY)
def test_a_binary_op_broadcasts_numbers_of_one_dtype(op):
    for dtype in ("f32", "bf16", "i32", "u32"):
        assert typed(op, f"{dtype}[2,1]", f"{dtype}[3]") == f"{dtype}[2,3]"
    refused("operands of one dtype", op, "f32[2]", "f16[2]")
    refused("floats, i32 or u32", op, "bool[2]", "bool[2]")
    refused("shapes that broadcast", op, "f32[2]", "f32[3]")


@pytest.mark.parametrize("op", COMPARE)
def test_a_comparison_gives_bools(op):
    for dtype in ("f32", "f16", "i32", "u32", "bool"):
        assert typed(op, f"{dtype}[2,1]", f"{dtype}[3]") == "bool[2,3]"
    refused("operands of one dtype", op, "i32[2]", "u32[2]")
    refused("comparable operands", op, "u8[2]", "u8[2]")


@pytest.mark.parametrize("op", BITWISE)
def test_bitwise_ops_take_words_and_bools(op):
    for dtype in ("i32", "u32", "bool"):
        assert typed(op, f"{dtype}[2]", f"{dtype}[1]") == f"{dtype}[2]"
    refused("i32 or u32 or bool", op, "f32[2]", "f32[2]")


@pytest.mark.parametrize("op", SHIFT)
def test_shifts_take_words_alone(op):
    assert typed(op, "u32[2]", "u32[]") == "u32[2]"
    refused("i32 or u32", op, "bool[2]", "bool[2]")
    refused("operands of one dtype", op, "u32[2]", "i32[2]")


def test_not_takes_words_and_bools():
    assert typed("not", "bool[2]") == "bool[2]"
    refused("i32, u32 or bool", "not", "f32[2]")


def test_select_broadcasts_all_three():
    assert typed("select", "bool[2,1]", "f16[3]", "f16[]") == "f16[2,3]"
    refused("a bool condition", "select", "i32[2]", "f32[2]", "f32[2]")
    refused("branches of one dtype", "select", "bool[2]", "f32[2]", "i32[2]")


def test_cast_changes_the_dtype_alone():
    assert typed("cast", "f32[2]", dtype="u8") == "u8[2]"
    refused("a known dtype", "cast", "f32[2]", dtype="f64")


def test_bitcast_keeps_the_size():
    assert typed("bitcast", "f16[2]", dtype="bf16") == "bf16[2]"
    assert typed("bitcast", "i8[2]", dtype="f8e4m3") == "f8e4m3[2]"
    refused("dtypes of one size", "bitcast", "f32[2]", dtype="f16")
    refused("other than bool", "bitcast", "u32[2]", dtype="bool")
    refused("other than bool", "bitcast", "bool[2]", dtype="u32")


def test_index_guard_gives_the_clamped_index_and_a_witness():
    assert typed("index_guard", "i32[2]", lo=0, hi=5) == "i32[2] bool[2]"
    refused("an i32 operand", "index_guard", "u32[2]", lo=0, hi=5)
    refused("lo < hi", "index_guard", "i32[2]", lo=5, hi=5)
