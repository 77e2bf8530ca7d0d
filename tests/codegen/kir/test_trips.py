"""Bounds of how often a lane goes round a kernel's loops."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.emitters import emit
from poot.codegen.kir.parse import parse
from poot.codegen.kir.trips import most_trips
from poot.errors import CapabilityError
from poot.limits import LLVMPIPE_TRIPS, PROFILES
from tests.support.gpu import GPUS, gpu, launch_arrays


def kernel(body: str) -> object:
    lines = "\n".join(f"  {line}" for line in body.strip().splitlines())
    head = "kernel count threads=64 {\n  param out0: i32[64] w align=16\n"
    return parse(f"{head}  param in0: i32[2] r align=16\n{lines}\n}}")


@pytest.mark.parametrize(
    "body, trips",
    [
        ("t1: i32 = lane", 0),
        ("for a: i32 = 0, 10, 1 {\n}", 11),
        ("for a: i32 = 3, 10, 2 {\n}", 5),
        ("for a: i32 = 0, 10, 1 {\nfor b: i32 = 0, 3, 1 {\n}\n}", 10 * (1 + 4) + 1),
        ("t1: i32 = lane\nfor a: i32 = t1, 128, 64 {\n}", 3),
        ("t1: i32 = lane\nfor a: i32 = 0, t1, 1 {\n}", 64),
        ("t1: i32 = load in0[0]\nt2: i32 = min t1, 20\nfor a: i32 = 0, t2, 1 {\n}", 21),
        ("t1: i32 = load in0[0]\nfor a: i32 = 0, t1, 1 {\n}", 2),
        ("for a: i32 = 0, 10, 1 {\nfor b: i32 = 0, a, 1 {\n}\n}", 10 * (1 + 10) + 1),
    ],
)
def test_trips_are_counted_with_the_last_look(body: str, trips: int):
    assert most_trips(kernel(body)) == trips


def test_a_chunk_is_as_long_as_its_size_wherever_it_begins():
    body = """
t1: i32 = load in0[0]
t2: i32 = min t1, 1000
t3: i32 = add t2, 3
t4: i32 = div t3, 4
t5: i32 = group_id axis=0
t6: i32 = mul t4, t5
t7: i32 = add t6, t4
t8: i32 = min t7, t2
t9: i32 = lane
t10: i32 = add t6, t9
for a: i32 = t10, t8, 64 {
}
"""
    assert most_trips(kernel(body)) == 5


COUNT = """kernel count threads=1 {
  param out0: i32[1] w align=16
  param in0: i32[2] r align=16
  t1: i32 = load in0[0]
  t2: i32 = load in0[1]
  var n: i32 = set 0
  for a: i32 = 0, t1, 1 {
    for b: i32 = 0, t2, 1 {
      t3: i32 = add n, 1
      n = set t3
    }
  }
  store out0[0], n
}"""


@pytest.mark.parametrize("target", GPUS)
def test_a_device_makes_every_trip_that_its_limits_allow(target: str):
    """And where it ends loops after so many, its limits say so."""
    device = gpu(target)

    def counted(outer: int, inner: int) -> int:
        given = {"in0": np.asarray([outer, inner], np.int32)}
        return int(launch_arrays(device, parse(COUNT), given)["out0"][0])

    most = device.limits.loop_trips or 200_000
    inner = 300
    outer = (most - 1) // (inner + 2)
    assert outer * (inner + 2) + 1 <= most
    assert counted(outer, inner) == outer * inner
    if "llvmpipe" in device.description:
        assert device.limits.loop_trips == LLVMPIPE_TRIPS
        assert counted(outer + 2, inner) < (outer + 2) * inner


def test_a_kernel_that_would_be_cut_short_is_refused():
    long = kernel("for a: i32 = 0, 65535, 1 {\n}")
    with pytest.raises(CapabilityError, match=r"up to 65536 times .* lavapipe ends them after"):
        emit(long, PROFILES["lavapipe"])
    assert emit(long, PROFILES["webgpu-baseline"]).binary
