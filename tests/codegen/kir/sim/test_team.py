"""Waves that meet, and what happens when they can't."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from poot.codegen.kir.sim.program import Wait
from poot.codegen.kir.sim.team import run_in_turn
from poot.errors import SimulationError
from tests.support.kernels import run_kernel

pytestmark = pytest.mark.quick


def test_coroutines_go_on_when_what_they_wait_for_is_there():
    log: list[str] = []

    def waits() -> Iterator[Wait]:
        yield Wait(lambda: "done" in log, "the other")
        log.append("after")

    def spins() -> Iterator[Wait]:
        for _ in range(3):
            yield Wait(None, "")
        log.append("done")

    run_in_turn([waits(), spins()], ["a", "b"])
    assert log == ["done", "after"]


def test_a_deadlock_says_who_waits_for_what():
    def waits(what: str) -> Iterator[Wait]:
        yield Wait(lambda: False, what)

    with pytest.raises(SimulationError) as found:
        run_in_turn([waits("rain"), waits("sun")], ["the first", "the second"])
    assert str(found.value) == "deadlock: the first waits for rain; the second waits for sun"
    assert found.value.kind == "deadlock"


ROLES = """
  l: i32 = lane
  roles {
    first first=0 count=1 regs=0 {
      FIRST
    }
    second first=1 count=2 regs=0 {
      SECOND
    }
  }
  barrier scope=group
"""
HEAD = "shared s: i32[96] align=4\nparam out: i32[96] w align=4"


def run(first: str, second: str, **options: bool) -> np.ndarray:
    out = np.zeros(96, np.int32)
    body = ROLES.replace("FIRST", first).replace("SECOND", second) + "\nv: i32 = load s[l]\n"
    run_kernel(body + "store out[l], v", HEAD, {"out": out}, threads=96, width=32, **options)
    return out


def test_each_subgroup_runs_its_role_and_all_go_on():
    got = run("a: i32 = add l, 100\nstore s[l], a", "b: i32 = add l, 200\nstore s[l], b")
    np.testing.assert_array_equal(got, np.arange(96) + np.where(np.arange(96) < 32, 100, 200))


def test_a_roles_barrier_is_for_its_own_lanes():
    swap = "store s[l], l\nbarrier scope=role\nx: i32 = sub 127, l\ny: i32 = load s[x]\n"
    got = run("store s[l], l", swap + "barrier scope=role\nstore s[l], y")
    np.testing.assert_array_equal(got[32:], 127 - np.arange(32, 96))


def test_without_it_the_roles_lanes_race():
    swap = "store s[l], l\nx: i32 = sub 127, l\ny: i32 = load s[x]\n"
    with pytest.raises(SimulationError) as found:
        run("store s[l], l", swap + "barrier scope=role\nstore s[l], y")
    assert found.value.kind in ("race", "uninitialised")


def test_a_barrier_that_one_role_never_reaches_is_a_deadlock():
    with pytest.raises(SimulationError) as found:
        run("store s[l], l\nbarrier scope=(named, 1, 96)", "store s[l], l")
    assert found.value.kind == "deadlock"
    assert "subgroup 0 of group (0, 0, 0) waits for barrier named 1" in str(found.value)


def test_a_deadlock_at_the_end_of_one_role_is_found():
    with pytest.raises(SimulationError, match="deadlock"):
        run_kernel(
            "l: i32 = lane\nw: i32 = div l, 32\nc: bool = eq w, 0\nif c {\nbarrier scope=group\n}",
            threads=64,
            width=32,
            is_verified=False,
            in_waves=True,
        )
