"""Loops, branches and roles. What they do on a device is tested in tests/codegen/spirv, on fibers
too; here is how they are spelled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.codegen.emitters import emit
from poot.codegen.kir.build import I32, KernelBuilder
from poot.codegen.kir.nodes import Role
from poot.errors import DtypeLowering
from tests.support.hip.both import MI300X, agree, body_of


def loop(unroll: int | None, stop: int) -> list[str]:
    k = KernelBuilder("loop", 4)
    y = k.param("y", "f32", 4, "rw")
    with k.for_(0, stop, unroll=unroll):
        k.store(y, k.lane(), k.load(y, k.lane()) + 1.0)
    return body_of(k.kernel())


@pytest.mark.parametrize(
    "unroll, stop, hint",
    [
        (None, 8, None),
        (None, 9, "#pragma unroll 4"),
        (1, 100, "#pragma unroll 1"),
        (4, 100, "#pragma unroll 4"),
        (0, 100, "#pragma unroll"),
    ],
)
def test_a_loop_says_how_it_is_unrolled(unroll: int | None, stop: int, hint: str | None):
    lines = loop(unroll, stop)
    at = next(n for n, line in enumerate(lines) if line.startswith("for ("))
    assert lines[at] == f"for (int i_1 = 0; i_1 < {stop}; ++i_1) {{"
    assert (lines[at - 1] if "#pragma" in lines[at - 1] else None) == hint


def test_a_loop_counts_by_registers():
    k = KernelBuilder("counts", 2)
    y = k.param("y", "i32", 16, "w")
    with k.for_(k.lane(), k.lane() + 6, k.lane() + 2) as i:
        k.store(y, k.lane() * 8 + i, i)
    got = agree(k.kernel(), {})["y"].reshape(2, 8)
    np.testing.assert_array_equal(got[0], [0, 0, 2, 0, 4, 0, 0, 0])
    np.testing.assert_array_equal(got[1], [0, 1, 0, 0, 4, 0, 0, 0])


def test_a_while_leaves_between_head_and_body():
    k = KernelBuilder("while", 1)
    y = k.param("y", "i32", 1, "w")
    m = k.var(1, I32)
    with k.block_() as head:
        going = k.copy(m) < 100
    with k.while_(head, going):
        k.set(m, k.copy(m) * 3)
    k.store(y, 0, m)
    assert agree(k.kernel(), {})["y"][0] == 243
    lines = [line.strip() for line in body_of(k.kernel())]
    assert "while (true) {" in lines
    assert any(line.startswith("if (!t") and line.endswith(") break;") for line in lines)


def test_a_branch_that_differs_between_lanes():
    k = KernelBuilder("branch", 64)
    y = k.param("y", "i32", 64, "w")
    with k.if_(k.lane() < 20):
        k.store(y, k.lane(), k.lane() * 2)
    with k.else_(), k.if_(k.lane() < 40):
        k.store(y, k.lane(), k.lane() * 3)
    at = np.arange(64)
    want = np.where(at < 20, at * 2, np.where(at < 40, at * 3, 0))
    np.testing.assert_array_equal(agree(k.kernel(), {})["y"], want)


def roles(registers: int = 0) -> KernelBuilder:
    k = KernelBuilder("roles", 128, 64)
    y = k.param("y", "i32", 128, "w")
    with k.block_() as first:
        k.store(y, k.lane(), 1)
    with k.block_() as second:
        k.store(y, k.lane(), 2)
    k.roles(Role("left", 0, 1, registers, tuple(first)), Role("right", 1, 1, 0, tuple(second)))
    return k


def test_roles_are_chosen_by_wave():
    got = agree(roles().kernel(), {})["y"]
    np.testing.assert_array_equal(got, np.repeat([1, 2], 64))


def test_a_role_with_registers_of_its_own_is_refused():
    with pytest.raises(DtypeLowering, match="role left asks 40 registers a lane: hip gives every"):
        emit(roles(40).kernel(), MI300X)


def test_a_barrier_of_a_role_is_refused():
    k = roles()
    k.barrier("role")
    with pytest.raises(DtypeLowering, match="hip barriers are of a group or a subgroup: role"):
        emit(replace(k.kernel(), subgroup=None), MI300X)
