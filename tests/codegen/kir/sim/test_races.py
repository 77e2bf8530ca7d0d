"""Lanes that meet in one element, with and without something that orders them."""

from __future__ import annotations

import numpy as np
import pytest

from poot.errors import SimulationError
from tests.support.kernels import run_kernel

pytestmark = pytest.mark.quick

HEAD = """
  param x: f32[256] rw align=16
  param n: i32[4] rw align=4
  shared s: f32[128] align=16
"""
START = "l: i32 = lane\nr: i32 = sub 63, l\ng: i32 = group_id axis=0\n"


def run(body: str, grid: int = 2, **options: bool) -> None:
    given = {"x": np.zeros(256, np.float32), "n": np.zeros(4, np.int32)}
    run_kernel(START + body, HEAD, given, grid=grid, **options)


ORDERED = {
    "a barrier between": "store s[l], 1.0\nbarrier scope=group\nv: f32 = load s[r]",
    "own elements": "store s[l], 1.0\nv: f32 = load s[l]\nstore s[l], v",
    "only readers": "store s[l], 1.0\nbarrier scope=group\nv: f32 = load s[0]\nw: f32 = load s[r]",
    "readers, a barrier, a writer": (
        "store s[l], 1.0\nbarrier scope=group\nv: f32 = load s[r]\nbarrier scope=group\n"
        "store s[l], v"
    ),
    "one lane writes, all read": (
        "c: bool = eq l, 0\nif c {\nstore s[0], 1.0\n}\nbarrier scope=group\nv: f32 = load s[0]"
    ),
    "a loop of both": (
        "store s[l], 1.0\nfor i: i32 = 0, 3, 1 {\nbarrier scope=group\nv: f32 = load s[r]\n"
        "barrier scope=group\nstore s[l], v\n}"
    ),
    "a barrier that only some groups pass": (
        "store s[l], 1.0\nc: bool = eq g, 0\nif c {\nbarrier scope=group\nv: f32 = load s[r]\n"
        "barrier scope=group\nstore s[l], 2.0\n}\nbarrier scope=group\nw: f32 = load s[r]"
    ),
}


@pytest.mark.parametrize("in_waves", [False, True], ids=["vector", "waves"])
@pytest.mark.parametrize("body", ORDERED.values(), ids=ORDERED.keys())
def test_ordered_accesses_pass(body, in_waves):
    run(body, in_waves=in_waves)


RACES = {
    "a write, then a read": ("store s[l], 1.0\nv: f32 = load s[r]", "another lane wrote"),
    "a read, then a write": (
        "store s[l], 1.0\nbarrier scope=group\nv: f32 = load s[r]\nstore s[l], 2.0",
        "another lane read",
    ),
    "two writes": ("store s[l], 1.0\nstore s[r], 1.0", "another lane wrote"),
    "two writes at once": ("store s[0], 1.0", "another lane writes"),
    "many readers, then a write": (
        "c: bool = eq l, 0\nif c {\nstore s[0], 1.0\n}\nbarrier scope=group\nv: f32 = load s[0]\n"
        "if c {\nstore s[0], 2.0\n}",
        "another lane read",
    ),
    "vectors that overlap": (
        "i: i32 = div l, 4\ni4: i32 = mul i, 4\nq: i32 = rem l, 4\nc: bool = eq q, 0\nif c {\n"
        "store s[i4], 0.0:f32x4\n}\nv: f32 = load s[l]",
        "another lane wrote",
    ),
    "a barrier that only other groups pass": (
        "store s[l], 1.0\nc: bool = eq g, 0\nif c {\nbarrier scope=group\n}\nv: f32 = load s[r]",
        "of group (1, 0, 0)",
    ),
}


@pytest.mark.parametrize("in_waves", [False, True], ids=["vector", "waves"])
@pytest.mark.parametrize("body, said", RACES.values(), ids=RACES.keys())
def test_lanes_that_meet_are_found(body, said, in_waves):
    with pytest.raises(SimulationError) as found:
        run(body, in_waves=in_waves)
    # Wave by wave, a lane may come before the one it races with has written, or after it has gone
    # on.
    kinds = ("race", "uninitialised") if in_waves else ("race",)
    assert found.value.kind in kinds
    assert in_waves or said in str(found.value)


IN_BUFFERS = {
    "two groups write": ("store x[l], 1.0", "another lane w"),
    "one group writes, one reads": (
        "c: bool = eq g, 0\nif c {\nstore x[l], 1.0\n} else {\nv: f32 = load x[l]\n}",
        "another lane wrote",
    ),
    "one reads, then another writes": (
        "v: f32 = load x[r]\nc: bool = eq g, 1\nif c {\nstore x[l], 1.0\n}",
        "another lane read",
    ),
    "a barrier without a fence": (
        "i: i32 = mul g, 64\na: i32 = add i, l\nb: i32 = add i, r\nstore x[a], 1.0\n"
        "barrier scope=group\nv: f32 = load x[b]",
        "another lane wrote",
    ),
    "a plain load of a relaxed word": (
        "c: bool = eq l, 0\nif c {\nd: bool = eq g, 0\nif d {\nstore n[0], 1 cache=relaxed\n}\n"
        "v: i32 = load n[0]\n}",
        "another lane wrote",
    ),
}


@pytest.mark.parametrize("body, said", IN_BUFFERS.values(), ids=IN_BUFFERS.keys())
@pytest.mark.parametrize("in_waves", [False, True], ids=["vector", "waves"])
def test_lanes_that_meet_in_a_buffer_are_found_when_asked(body, said, in_waves):
    run(body, in_waves=in_waves)
    with pytest.raises(SimulationError) as found:
        run(body, in_waves=in_waves, buffer_races=True)
    assert found.value.kind == "race"
    assert said in str(found.value)


APART = {
    "each group its own": (
        "i: i32 = mul g, 64\na: i32 = add i, l\nstore x[a], 1.0\nv: f32 = load x[a]"
    ),
    "all read": "v: f32 = load x[l]\nw: f32 = load x[r]\nu: f32 = load x[0]",
    "a fence and a barrier": (
        "i: i32 = mul g, 64\na: i32 = add i, l\nb: i32 = add i, r\nstore x[a], 1.0\n"
        "fence scope=device\nbarrier scope=group\nv: f32 = load x[b]"
    ),
    "relaxed words": (
        "c: bool = eq l, 0\nif c {\nd: bool = eq g, 0\nif d {\nstore n[0], 1 cache=relaxed\n}\n"
        "v: i32 = load n[0] cache=relaxed\n}"
    ),
    "atomics": "o: i32 = atomic n[0], 1 kind=add",
}


@pytest.mark.parametrize("in_waves", [False, True], ids=["vector", "waves"])
@pytest.mark.parametrize("body", APART.values(), ids=APART.keys())
def test_lanes_of_a_launch_that_keep_apart_pass(body, in_waves):
    run(body, in_waves=in_waves, buffer_races=True)
