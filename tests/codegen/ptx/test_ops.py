"""The op table: every row there is, and every op assembled for both architectures."""

from __future__ import annotations

import pytest

from poot.codegen.kir.ops import KIR_OPS
from poot.codegen.ptx.ops import PTX
from tests.codegen.spirv.test_ops import CASES, agree, kernel_of, padded
from tests.support.gpu import gpu, launch_arrays
from tests.support.ptx_agree import assembled


def test_every_op_has_a_row():
    assert sorted(PTX) == sorted(KIR_OPS)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.op}-{c.dtype}-{c.result}")
def test_a_row_assembles_and_does_what_its_op_says(case):
    kernel = kernel_of(case)
    assert [r.spills for r in assembled(kernel)] == [0, 0]
    inputs = {f"x{at}": padded(x) for at, x in enumerate(case.inputs)}
    agree(launch_arrays(gpu("ptx"), kernel, inputs)["y"], case)
