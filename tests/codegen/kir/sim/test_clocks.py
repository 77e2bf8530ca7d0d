"""What comes before what, by clocks."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.kir.sim.clocks import Clocks
from poot.errors import SimulationError
from tests.support.kernels import run_kernel

pytestmark = pytest.mark.quick


def test_a_release_carries_what_its_lanes_did_and_all_that_they_had_seen():
    clocks = Clocks(8, 4)
    first = clocks.release(0, np.array([0, 1]))
    np.testing.assert_array_equal(first, [1, 1, 0, 0, 0, 0, 0, 0])
    assert clocks.now[0] == 2
    clocks.acquire(1, first)
    second = clocks.release(1, np.arange(4, 8))
    np.testing.assert_array_equal(second, [1, 1, 0, 0, 1, 1, 1, 1])


def test_a_join_orders_the_lanes_of_one_wave():
    clocks = Clocks(4, 4)
    clocks.join(0, np.arange(4))
    np.testing.assert_array_equal(clocks.seen[0], 1)
    assert clocks.now[0] == 2


HEAD = "param out: i32[64] w align=4\nshared s: i32[64] align=4"
START = "l: i32 = lane\nx: i32 = xor l, 1\n"


def run(body: str) -> None:
    out = np.zeros(64, np.int32)
    run_kernel(START + body, HEAD, {"out": out}, width=32, in_waves=True)


def test_a_subgroups_barrier_orders_its_lanes():
    run(
        "store s[l], l\nbarrier scope=subgroup\nv: i32 = load s[x]\n"
        "barrier scope=subgroup\nstore s[l], v"
    )


RACES = {
    "no barrier": "store s[l], l\nv: i32 = load s[x]",
    "a shuffle orders nothing": "store s[l], l\nu: i32 = shuffle_xor l mask=1\nv: i32 = load s[x]",
    "a read, then a write": (
        "store s[l], l\nbarrier scope=subgroup\nv: i32 = load s[x]\nstore s[l], v"
    ),
    "a subgroup's barrier orders no other subgroup": (
        "y: i32 = xor l, 32\nstore s[l], l\nbarrier scope=subgroup\nv: i32 = load s[y]"
    ),
    "a read of another subgroup": (
        "y: i32 = xor l, 32\nstore s[l], l\nbarrier scope=group\nv: i32 = load s[y]\n"
        "barrier scope=subgroup\nstore s[l], v"
    ),
}


@pytest.mark.parametrize("body", RACES.values(), ids=RACES.keys())
def test_lanes_of_waves_that_meet_are_found(body):
    with pytest.raises(SimulationError) as found:
        run(body)
    assert found.value.kind in ("race", "uninitialised")


def test_a_groups_barrier_orders_all():
    run(
        "y: i32 = xor l, 33\nstore s[l], l\nbarrier scope=group\nv: i32 = load s[y]\n"
        "barrier scope=group\nstore s[l], v"
    )
