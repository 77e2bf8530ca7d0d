"""docs/ops.md, made from the op table: `python -m poot.ir.docs > docs/ops.md` writes it."""

from __future__ import annotations

import sys

from poot.ir.ops import OPS, OpRow

HEAD = """# Ops

Made from the op table by `python -m poot.ir.docs`. A row's text is its meaning: the numpy oracle
computes it and every emitter obeys it. Operands are named as in the row's typing rule.
"""


def room(row: OpRow) -> str:
    """The file of `ir/rules/` that a row stands in."""
    return row.rule.__module__.rpartition(".")[2]


def entry(row: OpRow) -> str:
    """One op: name, operand count, attributes and meaning."""
    words = {None: "any number of operands", 0: "no operand", 1: "1 operand"}
    facts = [words.get(row.ins, f"{row.ins} operands")]
    if row.attrs:
        facts.append("attributes " + ", ".join(f"`{a}`" for a in row.attrs))
    if row.fused:
        facts.append("formed only by passes")
    return f"### {row.name}\n\n{'; '.join(facts)}\n\n{row.doc}\n"


def ops_page() -> str:
    """The whole page, as markdown: one section a room, ops by name. Ends with a newline."""
    parts = [HEAD]
    for name in sorted({room(row) for row in OPS.values()}):
        rows = sorted((r for r in OPS.values() if room(r) == name), key=lambda r: r.name)
        parts += [f"## {name}\n", *map(entry, rows)]
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(ops_page())
