"""Every op has a row in every table that answers for ops. pytest's diff is the to-do list."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from poot.codegen.hip.ops import HIP
from poot.codegen.kir.ops import KIR_OPS
from poot.codegen.llvm.ops import LLVM
from poot.codegen.ptx.ops import PTX
from poot.codegen.spirv.ops import SPIRV
from poot.ir.ops import OPS
from poot.oracle import ROWS


@pytest.mark.parametrize(
    "ops, table",
    [
        pytest.param(OPS, ROWS, id="oracle"),
        pytest.param(KIR_OPS, SPIRV, id="spirv"),
        pytest.param(KIR_OPS, PTX, id="ptx"),
        pytest.param(KIR_OPS, HIP, id="hip"),
        pytest.param(KIR_OPS, LLVM, id="llvm"),
    ],
)
def test_every_op_has_a_row(ops: Mapping[str, object], table: Mapping[str, object]):
    assert sorted(table) == sorted(ops)
