from __future__ import annotations

from poot.ir.docs import entry, ops_page
from poot.ir.graph import TensorType
from poot.ir.ops import OPS, OpRow


def rule(x: TensorType) -> TensorType:
    """The same
    again."""
    return x


def test_every_op_has_one_entry():
    heads = [line for line in ops_page().splitlines() if line.startswith("### ")]
    assert sorted(heads) == sorted(f"### {name}" for name in OPS)


def test_no_op_lacks_a_meaning():
    assert [name for name, row in OPS.items() if not row.doc] == []


def test_an_entry_holds_what_the_row_holds():
    text = entry(OpRow("same", 1, ("axis", "k"), rule, fused=True))
    facts = "1 operand; attributes `axis`, `k`; formed only by passes"
    assert text == f"### same\n\n{facts}\n\nThe same\nagain.\n"


def test_operand_counts_read_as_words():
    assert "\nno operand\n" in entry(OpRow("zero", 0, (), rule))
    assert "\n10 operands\n" in entry(OpRow("ten", 10, (), rule))
    assert "\nany number of operands\n" in entry(OpRow("any", None, (), rule))
