"""Target-only ops: each is of one kind, and a target that has none of a kind says why."""

import pytest

from poot.codegen.kir.nodes import Ins
from poot.codegen.kir.ops import KIR_OPS
from poot.codegen.kir.refusals import TARGET_ONLY, refused
from poot.errors import DtypeLowering


def test_the_kinds_hold_every_op_that_is_not_portable_once():
    ops = [op for kind in TARGET_ONLY.values() for op in kind]
    assert sorted(ops) == sorted(name for name, op in KIR_OPS.items() if not op.portable)


def test_a_row_refuses_with_target_op_and_reason():
    rows = refused("abacus", {"maps": "it has no tensor maps", "election": "it has one lane"})
    assert set(rows) == {"tma_load", "tma_store", "elect"}
    with pytest.raises(DtypeLowering, match="abacus has no tma_store: it has no tensor maps"):
        rows["tma_store"](None, Ins("tma_store", (), (), ()))
    with pytest.raises(DtypeLowering, match="abacus has no elect: it has one lane"):
        rows["elect"](None, Ins("elect", (), (), ()), None)
