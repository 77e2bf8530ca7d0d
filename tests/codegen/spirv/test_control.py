"""Loops and branches on every GPU target, counted against Python."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.kir.build import I32, KernelBuilder
from poot.codegen.kir.nodes import For, If, Ins, Kernel, Lit, Reg, Role, Roles, While
from poot.codegen.spirv.control import escaping
from poot.codegen.spirv.emit import emit
from poot.errors import DtypeLowering
from poot.limits import profile
from tests.support.gpu import DEVICES, gpu, launch_arrays

TRIPS = (0, 1, 2, 17)


def counter(threads: int = 1) -> tuple[KernelBuilder, str, str]:
    k = KernelBuilder("count", threads)
    return k, k.param("n", "i32", 4, "r"), k.param("y", "i32", 4 * threads, "w")


@pytest.mark.parametrize("target", DEVICES)
def test_nested_loops_make_every_trip(target):
    k, n, y = counter()
    outer, inner = k.load(n, 0), k.load(n, 1)
    total, ends = k.var(0, I32), k.var(0, I32)
    with k.for_(0, outer) as i:
        with k.for_(0, inner) as j:
            k.set(total, total + i * 100 + j)
        k.set(ends, ends + 1)
    k.store(y, 0, total)
    k.store(y, 1, ends)
    kernel, device = k.kernel(), gpu(target)
    for a in TRIPS:
        for b in TRIPS:
            got = launch_arrays(device, kernel, {"n": np.array([a, b, 0, 0], np.int32)})["y"]
            want = sum(i * 100 + j for i in range(a) for j in range(b))
            assert (got[0], got[1]) == (want, a)


@pytest.mark.parametrize("target", DEVICES)
def test_steps_and_starts_are_kept(target):
    k, n, y = counter()
    total = k.var(0, I32)
    with k.for_(k.load(n, 0), k.load(n, 1), k.load(n, 2)) as i:
        k.set(total, total * 10 + i)
    k.store(y, 0, total)
    kernel, device = k.kernel(), gpu(target)
    for start, stop, step in ((2, 9, 3), (5, 5, 1), (7, 3, 2), (0, 1, 9), (-2, 3, 2)):
        feed = {"n": np.array([start, stop, step, 0], np.int32)}
        want = 0
        for i in range(start, stop, step):
            want = want * 10 + i
        assert launch_arrays(device, kernel, feed)["y"][0] == want


@pytest.mark.parametrize("unroll", [None, 0, 1, 4])
@pytest.mark.parametrize("target", DEVICES)
def test_an_unrolling_wish_changes_nothing_but_speed(target, unroll):
    k, _, y = counter()
    total = k.var(0, I32)
    with k.for_(0, 10, unroll=unroll) as i:
        k.set(total, total * 3 + i)
    k.store(y, 0, total)
    want = 0
    for i in range(10):
        want = want * 3 + i
    assert launch_arrays(gpu(target), k.kernel(), {})["y"][0] == want


@pytest.mark.parametrize("target", DEVICES)
def test_a_while_leaves_from_its_head_with_work_in_it(target):
    """Two exit levels and an early continue, in the one loop form (case 118)."""
    k, n, y = counter()
    found, i, skipped = k.var(-1, I32), k.var(0, I32), k.var(0, I32)
    stop = k.load(n, 0)
    with k.block_() as head:
        square = k.copy(i) * k.copy(i)
        with k.if_(square >= stop):
            k.set(found, i)
        going = k.op("and", found < 0, k.copy(i) < 50)
    with k.while_(head, going):
        with k.if_((i % 3).eq(0)):
            k.set(skipped, skipped + 1)
        with k.else_():
            inner = k.var(0, I32)
            with k.block_() as inside:
                more = k.copy(inner) < k.copy(i)
            with k.while_(inside, more):
                k.set(inner, inner + 4)
            k.set(skipped, skipped + inner * 100)
        k.set(i, i + 1)
    k.store(y, 0, found)
    k.store(y, 1, skipped)
    kernel, device = k.kernel(), gpu(target)
    for stop_at in (0, 1, 2, 17, 100000):
        got = launch_arrays(device, kernel, {"n": np.array([stop_at, 0, 0, 0], np.int32)})["y"]
        assert (got[0], got[1]) == _while(stop_at)


def _while(stop: int) -> tuple[int, int]:
    found, i, skipped = -1, 0, 0
    while True:
        if i * i >= stop:
            found = i
        if not (found < 0 and i < 50):
            return found, skipped
        skipped += 1 if i % 3 == 0 else -(-i // 4) * 4 * 100
        i += 1


@pytest.mark.parametrize("target", DEVICES)
def test_lanes_may_leave_a_loop_at_different_trips(target):
    k, _, y = counter(16)
    total, lane = k.var(0, I32), k.lane()
    with k.for_(0, lane) as i, k.if_((i % 2).eq(0)):
        k.set(total, total + i)
    k.store(y, lane, total)
    got = launch_arrays(gpu(target), k.kernel(), {})["y"][:16]
    np.testing.assert_array_equal(got, [sum(range(0, n, 2)) for n in range(16)])


@pytest.mark.parametrize("target", DEVICES)
def test_both_sides_of_an_if_write_one_register(target):
    k, _, y = counter(16)
    x, lane = k.var(0, I32), k.lane()
    with k.if_(lane < 5):
        k.set(x, lane * 2)
        with k.if_(lane < 2):
            k.set(x, x + 1000)
    with k.else_():
        k.set(x, lane * 3)
    k.store(y, lane, x)
    got = launch_arrays(gpu(target), k.kernel(), {})["y"][:16]
    want = [n * 2 + 1000 * (n < 2) if n < 5 else n * 3 for n in range(16)]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", DEVICES)
def test_a_register_read_outside_the_block_that_wrote_it_keeps_its_value(target):
    k, n, y = counter()
    count = k.load(n, 0)
    with k.for_(0, count) as i:
        last = k.copy(i) * 7
    k.store(y, 0, last)
    kernel = k.kernel()
    assert last.operand.name in escaping(kernel.body)
    got = launch_arrays(gpu(target), kernel, {"n": np.array([5, 0, 0, 0], np.int32)})["y"]
    assert got[0] == 28


def reg(name: str) -> Reg:
    return Reg(name, I32)


def add(dst: str, *args: str) -> Ins:
    return Ins("add", (reg(dst),), tuple(reg(a) for a in args), ())


@pytest.mark.parametrize(
    "body, found",
    [
        ((add("a", "x", "x"), add("b", "a", "a")), set()),
        ((If(reg("c"), (add("a", "x", "x"),)), add("b", "a", "a")), {"a"}),
        ((If(reg("c"), (add("a", "x", "x"),), (add("a", "x", "x"),)),), {"a"}),
        ((While((add("a", "x", "x"),), reg("a"), (add("b", "a", "a"),)),), set()),
        ((While((add("a", "x", "x"),), reg("a"), ()), add("b", "a", "a")), {"a"}),
        ((For(reg("i"), Lit(0, I32), Lit(9, I32), Lit(1, I32), (add("a", "i", "i"),)),), set()),
        ((For(reg("i"), Lit(0, I32), Lit(9, I32), Lit(1, I32), ()), add("a", "i", "i")), {"i"}),
    ],
)
def test_escaping_finds_exactly_what_leaves_its_block(body, found):
    assert escaping(body) == found


def test_roles_are_refused_by_name():
    body = (Roles((Role("producer", 0, 1, 0, ()),)),)
    with pytest.raises(DtypeLowering, match="no roles within a workgroup: producer"):
        emit(Kernel("k", (), (), (), (), 32, None, body), profile("lavapipe"))
