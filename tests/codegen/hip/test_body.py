"""What rows write into: registers by scalar, structs and functions made once."""

from __future__ import annotations

import pytest

from poot.codegen.hip.body import Body
from poot.codegen.kir.nodes import Lit, Param, Reg, Ty
from tests.support.hip.both import MI300X


@pytest.fixture
def body() -> Body:
    return Body(MI300X, 64, [Param("x", "f32", 4, "r")])


def test_a_register_is_declared_once_and_const_where_it_never_changes(body: Body):
    fixed, moving = Reg("t", Ty("f32")), Reg("m", Ty("i32"), True)
    body.put(fixed, ["1.0f"])
    body.put(moving, ["1"])
    body.put(moving, ["2"])
    assert body.lines == ["  const float t = 1.0f;", "  int m = 1;", "  m = 2;"]


def test_a_vector_is_a_struct_by_its_scalars(body: Body):
    pair = Reg("p", Ty("f16", 2))
    body.put(pair, ["a", "b"])
    assert body.lines == ["  const f32x2 p = f32x2{a, b};"]
    assert body.lanes(pair) == ["p.s[0]", "p.s[1]"]
    assert body.whole(pair) == "p"
    assert body.prelude() == ["struct alignas(8) f32x2 { float s[2]; };"]


def test_a_literal_vector_repeats_its_number(body: Body):
    assert body.lanes(Lit(2.0, Ty("f32", 2))) == ["2.0f", "2.0f"]
    assert body.whole(Lit(2.0, Ty("f32", 2))) == "f32x2{2.0f, 2.0f}"


def test_a_register_that_is_declared_stays_so(body: Body):
    moving = Reg("m", Ty("u32"), True)
    body.declare(moving)
    body.declare(moving)
    body.put(moving, ["3u"])
    assert body.lines == ["  unsigned m;", "  m = 3u;"]


def test_blocks_are_indented(body: Body):
    with body.block("if (c)"):
        body.line("a;")
        with body.block("while (true)"):
            body.line("b;")
    assert body.lines == ["  if (c) {", "    a;", "    while (true) {", "      b;", "    }", "  }"]


def test_a_function_is_made_once(body: Body):
    for _ in range(2):
        body.function("twice", "float", "float v", ["return v + v;"])
    (text,) = body.prelude()
    assert text.endswith("float twice(float v) {\n  return v + v;\n}")


def test_registers_keep_clear_of_memories_and_functions(body: Body):
    assert body.register(Reg("x", Ty("f32"))) == "x_"
    assert body.register(Reg("is_nan", Ty("f32"))) == "is_nan_"
    name, decl = body.memory("x")
    assert (name, decl.name) == ("x", "x")
