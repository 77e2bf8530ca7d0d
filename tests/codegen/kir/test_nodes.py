"""Kernel IR nodes: how types print, what equality means, how much workgroup memory a kernel has."""

from __future__ import annotations

import math

import pytest

from poot.codegen.kir.nodes import (
    For,
    Frag,
    If,
    Ins,
    Kernel,
    Lit,
    Reg,
    Role,
    Roles,
    Shared,
    Token,
    Ty,
    While,
    instructions,
    walk,
)

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    "type, text",
    [
        (Ty("f32"), "f32"),
        (Ty("f16", 8), "f16x8"),
        (Frag("mma", "acc", 16, 8, "f32"), "frag[mma,acc,16,8,f32]"),
        (Token("wgmma"), "token[wgmma]"),
        (Token(), "token[copy]"),
    ],
)
def test_a_type_prints_as_the_text_writes_it(type, text):
    assert str(type) == text


def test_numbers_print_so_that_they_come_back():
    assert [str(Lit(v, Ty("f32"))) for v in (0.1, 1e-30, math.inf)] == ["0.1", "1e-30", "inf"]
    assert str(Lit(True, Ty("bool"))) == "true"
    assert Lit(float("nan"), Ty("f32")) == Lit(math.nan, Ty("f32"))


def test_an_attribute_that_is_left_out_has_its_default():
    ins = Ins("load", (Reg("v", Ty("f32")),), (), (("cache", None), ("mem", "x")))
    assert ins.attr("mem") == "x"
    assert ins.attr("cache", "stream") is None
    assert ins.attr("trans", False) is False


def test_workgroup_arrays_lie_in_order_each_at_its_alignment():
    shared = (
        Shared("a", "bf16", 3, 2),
        Shared("b", "f32", 2, 16),
        Shared("c", "mbar", 2, 8),
        Shared("d", "u8", 1, 1024),
    )
    kernel = Kernel("k", (), (), (), shared, 32, None, ())
    assert kernel.shared_nbytes == 1025
    assert kernel.shared_offsets == {"a": 0, "b": 16, "c": 24, "d": 1024}
    assert Kernel("k", (), (), (), (), 32, None, ()).shared_nbytes == 0
    assert Kernel("k", (), (), (), shared[:3], 32, None, ()).shared_nbytes == 40


def test_nested_statements_are_walked_in_text_order():
    zero, cond, i = Lit(0, Ty("i32")), Reg("c", Ty("bool")), Reg("i", Ty("i32"))
    a, b, c, d, e, f = (Ins(op, (), ()) for op in "abcdef")
    branch = If(cond, (a,), (b,))
    loop = For(i, zero, zero, zero, (branch, c))
    again = While((d,), cond, (e,))
    roles = Roles((Role("own", 0, 1, 0, (f,)),))
    assert list(walk((loop, again, roles))) == [loop, branch, a, b, c, again, d, e, roles, f]
    assert "".join(s.op for s in instructions((loop, again, roles))) == "abcdef"
