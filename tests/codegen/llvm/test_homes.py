"""Which registers are stack slots, and which writes leave lanes as they were."""

from __future__ import annotations

from poot.codegen.kir.build import I32, KernelBuilder, Val
from poot.codegen.kir.nodes import Kernel, Reg
from poot.codegen.kir.uniform import analyse
from poot.codegen.llvm.homes import ROOT, Homes


def reg(value: Val) -> Reg:
    assert isinstance(value.operand, Reg)
    return value.operand


def homes(kernel: Kernel) -> Homes:
    return Homes(kernel.body, analyse(kernel))


def test_a_value_read_where_it_was_written_or_inside_is_no_slot():
    k = KernelBuilder("k", 16)
    y = k.param("y", "i32", 16, "w")
    a = k.lane() + 1
    with k.if_(k.lane() < 4):
        k.store(y, k.lane(), a)
    assert not homes(k.kernel()).is_slot(reg(a))


def test_a_mutable_register_and_one_read_outside_its_block_are_slots():
    k = KernelBuilder("k", 16)
    y = k.param("y", "i32", 16, "w")
    m = k.var(k.lit(0, I32))
    with k.if_(k.group_id(0) < 4):
        inner = k.lane() * 3
    k.store(y, k.lane(), inner)
    made = homes(k.kernel())
    assert made.is_slot(reg(m))
    assert made.is_slot(reg(inner))


def test_a_write_is_partial_only_where_lanes_part_between_it_and_its_uses():
    k = KernelBuilder("k", 16)
    y = k.param("y", "i32", 16, "w")
    outer = k.var(k.lit(0, I32))
    with k.if_(k.lane() < 4):
        own = k.var(k.lit(1, I32))
        k.set(own, 2)
        k.set(outer, k.copy(own))
    with k.if_(k.group_id(0) < 4):
        k.set(outer, 5)
    k.store(y, k.lane(), k.copy(outer))
    made = homes(k.kernel())
    assert made.is_partial(reg(outer), (*ROOT, 1))
    assert not made.is_partial(reg(own), (*ROOT, 1))
    assert not made.is_partial(reg(outer), ROOT)
    assert not made.is_partial(reg(outer), (*ROOT, 3))  # 2 is the first if's empty else
