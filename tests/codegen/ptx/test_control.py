"""Branches, loops in every form of unrolling, roles with budgets and barriers."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.kir.build import I32, KernelBuilder
from poot.codegen.kir.nodes import Kernel, Lit, Role, Ty
from poot.codegen.ptx.control import entry_registers
from poot.errors import CapabilityError
from tests.support.kernels import kernel_text
from tests.support.ptx_agree import agree, assembled, ptx_of


def counting(start: int, stop: object, step: int, unroll: int | None) -> Kernel:
    """y[lane] depends on each of the loop's values, in order; a str `stop` is an immediate."""
    k = KernelBuilder("counting", 32)
    y = k.param("y", "i32", 32, "w")
    end = k.imm("stop") if isinstance(stop, str) else stop
    total = k.var(0, I32)
    with k.for_(start, end, step, unroll=unroll) as n:  # pyright: ignore[reportArgumentType] - int or register
        k.set(total, total * 3 + n + k.lane())
    k.store(y, k.lane(), total)
    return k.kernel()


@pytest.mark.parametrize("unroll", [None, 0, 1, 2, 4])
@pytest.mark.parametrize(
    "start, stop, step", [(0, 8, 1), (0, 7, 2), (3, 3, 1), (5, 4, 1), (-4, 9, 3)]
)
def test_a_loop_of_known_bounds_makes_every_trip(start, stop, step, unroll):
    agree(counting(start, stop, step, unroll), {})


@pytest.mark.parametrize("unroll", [None, 1, 2, 4])
@pytest.mark.parametrize("stop", [0, 1, 4, 5, 11])
def test_a_loop_of_unknown_bounds_makes_every_trip(stop, unroll):
    agree(counting(0, "stop", 1, unroll), {}, imms=(stop,))


def test_a_rolled_loop_says_so_and_a_whole_one_has_no_branch():
    assert '.pragma "nounroll";' in ptx_of(counting(0, 8, 1, 1))
    assert "bra" not in ptx_of(counting(0, 8, 1, 0))
    assert ptx_of(counting(0, 8, 1, 4)).count("mul.lo") == 4


def test_branches_nest_and_a_known_one_costs_nothing():
    k = KernelBuilder("branches", 32)
    y = k.param("y", "i32", 32, "w")
    made = k.var(0, I32)
    with k.if_(k.lane() < 20):
        with k.if_(k.lane() < 5):
            k.set(made, 1)
        with k.else_():
            k.set(made, 2)
    with k.else_():
        k.set(made, 3)
    with k.if_(k.lit(False, Ty("bool"))):
        k.set(made, 9)
    k.store(y, k.lane(), made)
    out = agree(k.kernel(), {})["y"]
    np.testing.assert_array_equal(out, [1] * 5 + [2] * 15 + [3] * 12)
    assert "9" not in ptx_of(k.kernel()).split("{")[1].split("L")[-1]


def test_a_while_runs_its_head_before_each_trip():
    k = KernelBuilder("halving", 32)
    y = k.param("y", "i32", 32, "w")
    left, trips = k.var(k.lane(), I32), k.var(0, I32)
    with k.block_() as head:
        more = k.op("gt", left, 0)
    with k.while_(head, more):
        k.set(left, left >> 1)
        k.set(trips, trips + 1)
    k.store(y, k.lane(), trips)
    out = agree(k.kernel(), {})["y"]
    np.testing.assert_array_equal(out, [int(n).bit_length() for n in range(32)])


def roles(*registers: int, count: int = 4) -> Kernel:
    """Roles of `count` warps each; each stores its number, with a barrier of its own."""
    k = KernelBuilder("parts", 32 * count * len(registers), 32)
    y = k.param("y", "i32", k.threads, "w")
    s = k.shared("s", "i32", k.threads)
    made: list[Role] = []
    for n, budget in enumerate(registers):
        with k.block_() as body:
            k.store(s, k.lane(), k.lane() * (n + 1))
            k.barrier("role")
            first, size = 32 * count * n, 32 * count
            k.store(y, k.lane(), k.load(s, size - 1 - (k.lane() - first) + first))
        made.append(Role(f"part{n}", n * count, count, budget, tuple(body)))
    k.roles(*made)
    return k.kernel()


def test_roles_run_apart_with_barriers_of_their_own():
    kernel = roles(0, 0, 0, count=1)
    text = ptx_of(kernel)
    assert [f"bar.sync {n}, 32" in text for n in (15, 14, 13)] == [True] * 3
    agree(kernel, {})


def test_budgets_are_asked_of_whole_warpgroups_within_the_pool():
    text = ptx_of(roles(40, 232, 232))
    assert text.count("setmaxnreg.dec.sync.aligned.u32 40") == 1
    assert text.count("setmaxnreg.inc.sync.aligned.u32 232") == 2
    assert ".minnctapersm 1" in text
    assert assembled(roles(40, 232, 232), ("sm_90a",))[0].warnings == ()
    assert entry_registers(384) == 168
    for bad in (roles(168, 232, 232), roles(40, 230, 232), roles(40, 64, count=2)):
        with pytest.raises(CapabilityError, match="register budgets need whole warpgroups"):
            ptx_of(bad)


def test_a_barrier_that_the_kernel_names_is_no_roles():
    k = KernelBuilder("named", 64, 32)
    made: list[Role] = []
    for n in range(2):
        with k.block_() as body:
            k.barrier("role")
            k.do("barrier_sync", Lit(15, I32).value, threads=64)
        made.append(Role(f"part{n}", n, 1, 0, tuple(body)))
    k.roles(*made)
    text = ptx_of(k.kernel())
    assert "bar.sync 14, 32" in text
    assert "bar.sync 13, 32" in text


def test_the_prefill_kernel_of_roles_and_rings_assembles_without_a_warning():
    (report,) = assembled(kernel_text("prefill_wgmma"), ("sm_90a",))
    assert (report.spills, report.warnings) == (0, ())
