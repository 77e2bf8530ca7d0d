"""Named barriers, mbarriers with phases and bytes, elect."""

from __future__ import annotations

import numpy as np
import pytest

from poot.errors import SimulationError
from tests.support.kernels import run_kernel

pytestmark = pytest.mark.quick

HEAD = """
  param out: i32[64] w align=4
  shared s: i32[64] align=4
  shared bar: mbar[2] align=8
"""
START = """
  l: i32 = lane
  w: i32 = div l, 32
  first: bool = eq w, 0
  second: bool = eq w, 1
  one: bool = eq l, 0
"""


def run(body: str, is_verified: bool = True) -> np.ndarray:
    out = np.zeros(64, np.int32)
    run_kernel(START + body, HEAD, {"out": out}, width=32, is_verified=is_verified)
    return out


PRODUCE = "if first {\nstore s[l], l\nARRIVE\n}\n"
CONSUME = "if second {\nWAIT\nx: i32 = sub l, 32\nv: i32 = load s[x]\nstore out[l], v\n}\n"


def handed_on(arrive: str, wait: str, before: str = "") -> np.ndarray:
    """What the second subgroup reads of what the first wrote."""
    return run(before + PRODUCE.replace("ARRIVE", arrive) + CONSUME.replace("WAIT", wait))[32:]


INIT = "if one {\nmbar_init bar[0] count=32\n}\nbarrier scope=group\n"
HANDS = {
    "a named barrier, one side not waiting": (
        "barrier_arrive 1 threads=64",
        "barrier_sync 1 threads=64",
        "",
    ),
    "a named barrier, both waiting": (
        "barrier scope=(named, 2, 64)",
        "barrier scope=(named, 2, 64)",
        "",
    ),
    "an mbarrier": ("mbar_arrive bar[0]", "mbar_wait bar[0], 0", INIT),
}


@pytest.mark.parametrize("arrive, wait, before", HANDS.values(), ids=HANDS.keys())
def test_what_was_written_before_is_seen_after(arrive, wait, before):
    np.testing.assert_array_equal(handed_on(arrive, wait, before), np.arange(32))


def test_without_the_wait_it_is_a_race():
    with pytest.raises(SimulationError) as found:
        handed_on("mbar_arrive bar[0]", "", INIT)
    assert found.value.kind == "race"


def test_the_order_reaches_only_what_the_arriving_lane_did():
    """Lane 0's arrival says nothing of the others' stores; after a subgroup's barrier it does."""
    init = INIT.replace("count=32", "count=1")
    lone = "e: bool = elect\nif e {\nmbar_arrive bar[0]\n}"
    with pytest.raises(SimulationError) as found:
        handed_on(lone, "mbar_wait bar[0], 0", init)
    assert found.value.kind == "race"
    after = handed_on("barrier scope=subgroup\n" + lone, "mbar_wait bar[0], 0", init)
    np.testing.assert_array_equal(after, np.arange(32))


def test_phases_alternate_and_a_fresh_one_counts_parity_1_as_complete():
    body = """
      if one {
        mbar_init bar[0] count=1
        mbar_init bar[1] count=32
      }
      barrier scope=group
      if first {
        e: bool = elect
        if e {
          for i: i32 = 0, 4, 1 {
            odd: i32 = and i, 1
            free: i32 = xor odd, 1
            mbar_wait bar[1], free
            t: i32 = mul i, 10
            store s[0], t
            mbar_arrive bar[0]
          }
        }
      }
      if second {
        var sum: i32 = set 0
        for j: i32 = 0, 4, 1 {
          parity: i32 = and j, 1
          mbar_wait bar[0], parity
          v: i32 = load s[0]
          more: i32 = add sum, v
          sum = set more
          mbar_arrive bar[1]
        }
        store out[l], sum
      }
    """
    np.testing.assert_array_equal(run(body)[32:], 60)
    with pytest.raises(SimulationError) as found:
        run(body.replace("mbar_wait bar[1], free", ""))
    assert found.value.kind in ("race", "deadlock")


def test_a_wait_for_what_never_arrives_says_what_is_missing():
    with pytest.raises(SimulationError) as found:
        run(INIT + "if first {\nmbar_wait bar[0], 0\n}")
    assert "mbarrier bar[0], parity 0: 32 arrivals and 0 bytes missing" in str(found.value)
    assert found.value.kind == "deadlock"


@pytest.mark.parametrize(
    "body, kind, said",
    [
        ("mbar_arrive bar[0]", "uninitialised", "mbarrier bar[0] before its init"),
        (
            "if one {\nmbar_init bar[0] count=1\nmbar_init bar[0] count=1\n}",
            "undefined",
            "a second init",
        ),
        ("if one {\nmbar_init bar[2] count=1\n}", "out-of-bounds", "mbarrier bar[2]"),
        (
            "if one {\nmbar_init bar[0] count=2\nmbar_arrive bar[0]\n}\nif second {\n"
            "mbar_arrive bar[0]\n}",
            "race",
            "mbarrier bar[0] was initialised",
        ),
        (
            "if first {\nbarrier_sync 1 threads=32\n}\nif second {\nbarrier_sync 1 threads=64\n}",
            "undefined",
            "named barrier 1 for 64 lanes and for 32",
        ),
        (
            "n: i32 = add l, 1\nbarrier_sync n threads=64",
            "undefined",
            "lanes of a subgroup name different places",
        ),
    ],
)
def test_wrong_uses_are_refused(body, kind, said):
    with pytest.raises(SimulationError) as found:
        run(body)
    assert said in str(found.value)
    assert found.value.kind == kind


def test_elect_chooses_one_active_lane_and_the_same_each_time():
    body = """
      a: bool = elect
      b: bool = elect
      both: bool = and a, b
      if both {
        store out[l], 1
      }
      grid_wait
      grid_trigger
    """
    np.testing.assert_array_equal(np.flatnonzero(run(body)), [0, 32])
