"""The builder: shares what is equal, folds what is known, keeps control structured."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.kir.build import BOOL, F32, I32, KernelBuilder
from poot.codegen.kir.nodes import For, If, Ins, While
from poot.codegen.kir.sim import simulate
from poot.codegen.kir.text import parse, show
from poot.codegen.kir.verify import verify

pytestmark = pytest.mark.quick


def ops(k: KernelBuilder) -> list[str]:
    return [s.op for s in k.kernel().body if isinstance(s, Ins)]


def test_equal_pure_values_are_made_once():
    k = KernelBuilder("k", 32)
    a, b = k.lane() * 4 + 1, k.lane() * 4 + 1
    assert a.operand == b.operand
    assert ops(k) == ["lane", "mul", "add"]


def test_what_a_mutable_register_held_is_not_shared():
    k = KernelBuilder("k", 32)
    m = k.var(1, I32)
    a = m + 1
    k.set(m, 5)
    b = m + 1
    assert a.operand != b.operand


def test_loads_are_not_shared():
    k = KernelBuilder("k", 32)
    x = k.param("x", "f32", 32, "rw")
    assert k.load(x, 0).operand != k.load(x, 0).operand


def test_what_a_branch_made_is_not_used_after_it():
    k = KernelBuilder("k", 32)
    with k.if_(k.lane() < 3):
        inside = k.lane() * 5
    after = k.lane() * 5
    assert inside.operand != after.operand
    verify(k.kernel())


def test_known_numbers_make_no_instruction():
    k = KernelBuilder("k", 32)
    assert (k.lit(3, I32) * 4 + 1).literal == 13
    assert (k.lane() * 1 + 0).operand == k.lane().operand
    assert ops(k) == ["lane"]


def test_each_attribute_of_the_row_is_there():
    k = KernelBuilder("k", 32)
    x = k.param("x", "f32", 32, "rw")
    k.store(x, 0, 1.0)
    k.barrier()
    store, barrier = k.kernel().body
    assert isinstance(store, Ins)
    assert isinstance(barrier, Ins)
    assert store.attrs == (("cache", None), ("mem", "x"))
    assert barrier.attrs == (("scope", "group"),)
    with pytest.raises(AssertionError):
        k.op("lane", type=I32, axis=0)


def test_operators_are_the_instructions_they_say():
    k = KernelBuilder("k", 1)
    o = k.param("o", "i32", 16, "w")
    a, f = k.var(7, I32), k.var(2.0, F32)
    values = [
        a + 1,
        1 + a,
        a - 1,
        10 - a,
        a * 2,
        a // 2,
        a % 4,
        a & 3,
        a | 8,
        a ^ 1,
        ~a,
        a << 1,
        a >> 1,
        -a,
    ]
    flags = [a < 8, a <= 7, a > 7, a >= 7, a.eq(7), a.ne(7)]
    for n, v in enumerate(values):
        k.store(o, n, v)
    packed = k.lit(0, I32)
    for n, c in enumerate(flags):
        packed = packed | (k.cast(c, "i32") << n)
    k.store(o, 14, packed)
    k.store(o, 15, k.cast(f / 4.0 * 8.0, "i32"))
    out = np.zeros(16, np.int32)
    kernel = k.kernel()
    verify(kernel)
    simulate(kernel, {"o": out}, 1)
    want = [8, 8, 6, 3, 14, 3, 3, 3, 15, 6, -8, 14, 3, -7, 0b011011, 4]
    np.testing.assert_array_equal(out, want)


def test_control_nests_and_closes():
    k = KernelBuilder("k", 32)
    total = k.var(0, I32)
    with k.for_(0, 4, unroll=2) as i, k.if_(i < 2):
        k.set(total, total + i)
    with k.block_() as head:
        again = total < 10
    with k.while_(head, again):
        k.set(total, total + 3)
    with k.if_(again):
        k.set(total, 1)
    with k.else_():
        k.set(total, 2)
    kernel = k.kernel()
    assert [type(s) for s in kernel.body[1:]] == [For, While, If]
    verify(kernel)
    assert parse(show(kernel)) == kernel


def test_else_follows_its_if():
    k = KernelBuilder("k", 32)
    k.lane()
    with pytest.raises(AssertionError), k.else_():
        pass


def test_vectors_are_put_together_and_taken_apart():
    k = KernelBuilder("k", 1)
    x, y = k.param("x", "f32", 4, "r"), k.param("y", "f32", 4, "w")
    v = k.load(x, 0, lanes=4)
    k.store(y, 0, k.vec(*(k.extract(v, n) for n in (3, 2, 1, 0))))
    given = {"x": np.arange(4, dtype=np.float32), "y": np.zeros(4, np.float32)}
    kernel = k.kernel()
    verify(kernel)
    simulate(kernel, given, 1)
    np.testing.assert_array_equal(given["y"], [3, 2, 1, 0])


def test_a_workgroup_array_can_be_asked_for_twice_and_grows():
    k = KernelBuilder("k", 1)
    k.need_shared("s", "f32", 8)
    k.need_shared("s", "f32", 4)
    k.need_shared("s", "f32", 16)
    assert [(s.name, s.elems) for s in k.kernel().shared] == [("s", 16)]


def test_names_are_declared_once():
    k = KernelBuilder("k", 1)
    k.param("x", "f32", 8, "r")
    with pytest.raises(AssertionError):
        k.shared("x", "f32", 8)


def test_a_choice_takes_its_type_from_its_values():
    k = KernelBuilder("k", 1)
    chosen = k.select(k.lane() < 1, 2.0, k.var(1.0))
    assert chosen.type == F32
    assert (k.lane() < 1).type == BOOL


def test_a_register_may_be_declared_before_it_holds_anything():
    k = KernelBuilder("k", 32)
    y = k.param("y", "i32", 32, "w")
    held = k.register(I32)
    k.set(held, k.lane() * 2)
    k.store(y, k.lane(), held)
    verify(k.kernel())
    got = np.zeros(32, np.int32)
    simulate(k.kernel(), {"y": got}, (1, 1, 1))
    np.testing.assert_array_equal(got, 2 * np.arange(32))
