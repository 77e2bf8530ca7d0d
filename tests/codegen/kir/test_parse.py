"""What the parser refuses, and how it says so."""

from __future__ import annotations

import pytest

from poot.codegen.kir.ops import KIR_OPS
from poot.codegen.kir.parse import SUBSCRIPTS, parse
from poot.errors import ParseError

pytestmark = pytest.mark.quick


def body(text: str) -> str:
    return f"kernel k threads=1 {{\n{text}\n}}\n"


@pytest.mark.parametrize(
    "text, said",
    [
        ("kernel", "line 1: expected the kernel's name"),
        ("kernel k threads=x {", "expected a whole number, found x"),
        (body("t: f33 = lane"), "there is no type 'f33'"),
        (body("t: i32 = line"), "there is no op 'line'"),
        (body("t: i32 = add u, 1"), "expected a register written before, found u"),
        (body("m = set 1"), "expected the type of m, at its first line"),
        (body("t: i32 = group_id axes=0"), "expected an attribute of group_id: axis"),
        (body("t: i32 = lane at=0"), "expected an attribute of lane: it has none"),
        (body("t: i32 = lane\nif t {"), "expected a statement, found the end of the text"),
        (body("t: f32x3 = lane"), "there is no type 'f32x3'"),
        (body("t: i32 = add x[1], 1"), "expected no memory as operand 1 of add"),
        (body("t: i32 = lane at"), "expected a register written before, found at"),
        (body("for i: i32 = 0, 1 {\n}"), "expected ','"),
        (body("t: i32 = lane") + "more", "expected the end of the text, found more"),
        (body("@"), "line 2: expected a word, number or mark at '@'"),
    ],
)
def test_a_wrong_text_is_refused_with_its_line(text, said):
    with pytest.raises(ParseError) as found:
        parse(text)
    assert said in str(found.value)


def test_the_line_of_the_fault_is_named_and_shown():
    with pytest.raises(ParseError, match=r"line 3: .*t2: i32 = add t9, 1"):
        parse(body("t1: i32 = lane\nt2: i32 = add t9, 1"))


def test_every_subscript_names_an_attribute_of_its_op():
    for op, attrs in SUBSCRIPTS.items():
        assert set(attrs) <= set(KIR_OPS[op].attrs), op


def test_every_op_that_names_memory_writes_it_as_a_subscript():
    named = {name for name, row in KIR_OPS.items() if "mem" in row.attrs}
    assert named <= set(SUBSCRIPTS)
