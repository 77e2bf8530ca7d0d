"""Kernels as closures: constants and registers in slots, and which statements can wait."""

from __future__ import annotations

import pytest

from poot.codegen.kir.sim.exact import WAVES
from poot.codegen.kir.sim.portable import VECTOR
from poot.codegen.kir.sim.program import compile_kernel
from poot.errors import SimulationError
from tests.support.kernels import kernel_of

pytestmark = pytest.mark.quick


def test_equal_constants_share_a_slot_and_unequal_ones_do_not():
    program = compile_kernel(
        kernel_of("a: i32 = add 1, 1\nb: f32 = set 1.0\nc: u32 = set 1:u32"), VECTOR
    )
    assert len(program.registers) == 3 + 3
    zeros = compile_kernel(kernel_of("a: f32 = add 0.0, -0.0"), VECTOR)
    assert len(zeros.registers) == 1 + 2


def test_a_machine_refuses_an_op_that_it_lacks():
    with pytest.raises(SimulationError, match="the vector simulator has no `t: bool = elect`"):
        compile_kernel(kernel_of("t: bool = elect", width=32), VECTOR)


def test_only_what_waits_is_a_coroutine():
    text = "for i: i32 = 0, 2, 1 {{\na: i32 = add i, 1\n{}\n}}"
    assert compile_kernel(kernel_of(text.format("")), WAVES).block.plain is not None
    assert compile_kernel(kernel_of(text.format("barrier scope=group")), WAVES).block.plain is None
    assert (
        compile_kernel(kernel_of(text.format("barrier scope=group")), VECTOR).block.plain
        is not None
    )


def test_a_while_lets_other_waves_run_where_there_are_any():
    text = "var m: i32 = set 0\nwhile {\nc: bool = lt m, 1\n} c {\nm = set 1\n}"
    assert compile_kernel(kernel_of(text), WAVES).block.plain is None
    assert compile_kernel(kernel_of(text), VECTOR).block.plain is not None
