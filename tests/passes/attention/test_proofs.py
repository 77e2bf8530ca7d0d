"""What is proved of an index, and why something is not."""

from __future__ import annotations

import pytest

from poot.ir.text import parse
from poot.passes.attention.proofs import proofs_of

TEXT = """
slot v0: i32[2] "declared" range=(0, 7)
slot v1: i32[2] "free"
v2: i32[2], v3: bool[2] = index_guard(v1) hi=9 lo=1
v4: i32[2], v5: bool[2] = index_guard(v0) hi=7 lo=0
v6: i32[2] = add(v4, v2)
{validate}
out v6
"""


@pytest.mark.parametrize("validated", [False, True])
def test_a_clamp_proves_only_with_its_witness_declared(validated: bool):
    graph = parse(TEXT.format(validate="validate v3" if validated else ""))
    clamped = graph.eqns[0].outs[0]
    total = graph.eqns[2].out
    proofs = proofs_of(graph)
    why = None if validated else "its index guard's witness is no declared validation; write"
    for var, lo, hi in ((clamped, 1, 8), (total, 1, 14)):
        got = proofs.why_not(var, lo, hi)
        assert got is why or (got or "").startswith(str(why))


def test_a_declared_range_needs_no_witness():
    graph = parse(TEXT.format(validate=""))
    declared, free = (i.var for i in graph.inputs)
    guarded = graph.eqns[1].outs[0]
    proofs = proofs_of(graph)
    assert proofs.why_not(declared, 0, 6) is None
    assert proofs.why_not(declared, 1, 7, 1) is None
    assert proofs.why_not(guarded, 0, 6) is None
    assert proofs.why_not(declared, 0, 5) == "it may be 0..6, not only 0..5"
    assert proofs.why_not(declared, 0, 6, 1) == "it may be 1..7, not only 0..6"
    assert "nothing proves it in 0..5" in (proofs.why_not(free, 0, 5) or "")
