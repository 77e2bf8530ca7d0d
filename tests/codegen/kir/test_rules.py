"""The rules that others read too: declarations by name, scopes, accesses."""

from __future__ import annotations

import pytest

from poot.codegen.kir.nodes import Ins, Ty
from poot.codegen.kir.ops import KIR_OPS
from poot.codegen.kir.rules import RULES, Decls, index_problem, memory_access, named_scope
from tests.support.kernels import kernel_of

pytestmark = pytest.mark.quick


def test_every_portable_op_has_a_rule():
    assert sorted(RULES) == sorted(n for n, row in KIR_OPS.items() if row.portable)


def test_declarations_are_found_by_name():
    head = (
        "param x: f32[8] r align=4\nshared s: f32[4] align=4\nshared b: mbar[1] align=8\nimm n: i32"
    )
    decls = Decls.of(kernel_of("", head))
    assert decls.memory("x") is decls.params["x"]
    assert decls.memory("s") is decls.shared["s"]
    assert decls.memory("b") is None
    assert decls.memory(None) is None
    assert decls.is_mbar("b")
    assert not decls.is_mbar("s")
    assert decls.imms["n"].dtype == "i32"


@pytest.mark.parametrize(
    "scope, want",
    [
        (("named", 1, 64), (1, 64)),
        ("group", None),
        (("named", 1), None),
        (("named", "1", 64), None),
        (("other", 1, 64), None),
    ],
)
def test_a_named_scope_is_a_number_and_lanes(scope, want):
    assert named_scope(scope) == want


def test_an_index_is_one_whole_number():
    assert index_problem(Ty("i64")) == ""
    assert index_problem(Ty("i32", 2))
    assert index_problem(Ty("f32"))


@pytest.mark.parametrize(
    "op, access",
    [
        ("load", "r"),
        ("prefetch", "r"),
        ("store", "w"),
        ("atomic", "rw"),
        ("frag_load", "r"),
        ("frag_store", "w"),
        ("add", ""),
    ],
)
def test_an_op_touches_memory_as_its_row_says(op, access):
    assert memory_access(Ins(op, (), ())) == access
