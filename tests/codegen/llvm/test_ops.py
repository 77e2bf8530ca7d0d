"""Every row against numpy at half the machine's width (the GPU targets' table runs at its own), and
what rows refuse."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.kir.build import F32, I32, KernelBuilder
from poot.codegen.kir.nodes import Ins, Kernel, Reg
from poot.codegen.kir.ops import KIR_OPS
from poot.codegen.llvm.emit import function_text
from poot.errors import DtypeLowering
from tests.codegen.spirv.test_ops import CASES, agree, kernel_of, padded
from tests.support.cpu import agrees, cpu
from tests.support.gpu import launch_arrays


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.op}-{c.dtype}-{c.result}")
def test_a_row_does_what_its_op_says(case):
    inputs = {f"x{at}": padded(x) for at, x in enumerate(case.inputs)}
    agree(launch_arrays(cpu("half"), kernel_of(case), inputs)["y"], case)


@pytest.mark.parametrize("op", sorted(o.name for o in KIR_OPS.values() if not o.portable))
def test_a_target_only_op_is_refused_with_a_reason(op):
    row = KIR_OPS[op]
    args = tuple(Reg(f"a{n}", I32) for n in range(row.args or 0))
    dsts = tuple(Reg(f"d{n}", F32) for n in range(row.dsts))
    kernel = Kernel("k", (), (), (), (), 1, None, (Ins(op, dsts, args, ()),))
    with pytest.raises(DtypeLowering, match=f"kernel k: llvm has no {op}: "):
        function_text(kernel, cpu().limits)


def test_a_dtype_that_an_op_lacks_is_refused_by_name():
    ins = Ins("sqrt", (Reg("d", I32),), (Reg("a", I32),), ())
    undef = Ins("undef", (Reg("a", I32, True),), (), ())
    kernel = Kernel("k", (), (), (), (), 1, None, (undef, ins))
    with pytest.raises(DtypeLowering, match=r"sqrt .*not for i32"):
        function_text(kernel, cpu().limits)


def test_a_division_that_no_active_lane_makes_does_not_trap():
    """Lanes outside the branch hold zeros and the least integer over -1."""
    k = KernelBuilder("divides", 32)
    a, b = k.param("a", "i32", 32, "r"), k.param("b", "i32", 32, "r")
    y = k.param("y", "i32", 32, "w")
    lane = k.lane()
    x, by = k.load(a, lane), k.load(b, lane)
    with k.if_(lane < 20):
        k.store(y, lane, x // by + x % by)
    rng = np.random.default_rng(2)
    top = rng.integers(-(2**31), 2**31, 32).astype(np.int32)
    under = np.where(np.arange(32) % 2, 7, -3).astype(np.int32)
    top[20:], under[20:26], under[26:] = -(2**31), 0, -1
    agrees(k.kernel(), {"a": top, "b": under, "y": np.zeros(32, np.int32)})
