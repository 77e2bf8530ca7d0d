"""The op table: every row says what it is, and can be told apart from the others."""

from __future__ import annotations

import pytest

from poot.codegen.kir.nodes import Ins
from poot.codegen.kir.ops import KIR_OPS
from poot.codegen.kir.text import parse, show

pytestmark = pytest.mark.quick
EFFECTS = ("pure", "load", "store", "atomic", "sync", "async", "id")


@pytest.mark.parametrize("row", KIR_OPS.values(), ids=KIR_OPS.keys())
def test_a_row_is_whole(row):
    assert KIR_OPS[row.name] is row
    assert row.name.isidentifier()
    assert row.effect in EFFECTS
    assert row.attrs == tuple(sorted(row.attrs))
    assert row.doc.endswith(".")
    assert row.dsts in (0, 1)
    assert row.args is None or row.args >= 0


def test_what_touches_memory_says_so():
    for name, row in KIR_OPS.items():
        if row.effect in ("load", "store", "atomic"):
            assert "mem" in row.attrs, name


def test_asynchronous_ops_are_target_only():
    assert not [n for n, row in KIR_OPS.items() if row.effect == "async" and row.portable]


@pytest.mark.parametrize("name", [n for n, r in KIR_OPS.items() if r.args == 0 and r.dsts == 0])
def test_an_op_without_operands_is_its_name(name):
    attrs = " scope=group" if "scope" in KIR_OPS[name].attrs else ""
    kernel = parse(f"kernel k threads=1 {{\n  {name}{attrs}\n}}\n")
    (ins,) = kernel.body
    assert isinstance(ins, Ins)
    assert ins.op == name
    assert parse(show(kernel)) == kernel
