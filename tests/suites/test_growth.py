"""What a compile does grows no faster than its layers: counted in lines of Python, not in seconds.

A line counts each time it runs, a loop's each time round, so that a scan of everything for each
thing is seen. Counts are the same on every run and every machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import poot
from poot.ir.graph import Graph
from poot.limits import profile
from poot.passes.pipeline import run_pipeline
from poot.planner.check import Memory
from poot.planner.make import make_plan
from poot.planner.plan import Place
from poot.planner.schedules import choose
from tests.support.llama_like import llama_like, llama_like_specs

LIMITS = profile("lavapipe")
SOURCES = str(Path(poot.__file__).parent)
LAYERS = (6, 12, 18)
STAGES = ("trace", "passes", "plan")


def lines_of(body: Callable[[], object]) -> int:
    """How many lines of poot's own sources run."""
    count = 0

    def line(frame: FrameType, event: str, arg: object) -> object:
        nonlocal count
        count += event == "line"
        return line

    def call(frame: FrameType, event: str, arg: object) -> object:
        return line if frame.f_code.co_filename.startswith(SOURCES) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        body()
    finally:
        sys.settrace(before)
    return count


def traced(layers: int) -> Graph:
    return poot.trace(llama_like, llama_like_specs(layers, 1))


def counts_of(layers: int) -> dict[str, int]:
    graph = traced(layers)
    final = run_pipeline(graph, LIMITS)[0]
    return {
        "trace": lines_of(lambda: traced(layers)),
        "passes": lines_of(lambda: run_pipeline(graph, LIMITS)),
        "plan": lines_of(lambda: make_plan({"main": final}, choose, LIMITS)),
    }


@pytest.fixture(scope="module")
def counts() -> list[dict[str, int]]:
    counts_of(1)  # what is made once a process
    return [counts_of(n) for n in LAYERS]


@pytest.mark.parametrize("stage", STAGES)
def test_each_six_layers_more_take_as_many_lines_more(counts: list[dict[str, int]], stage: str):
    few, some, many = (c[stage] for c in counts)
    assert some > few
    assert many - some <= 1.02 * (some - few)


def test_a_replay_of_a_plan_looks_only_at_what_a_write_touches():
    """Each write once went over all that its space holds."""

    def writes(count: int) -> int:
        memory = Memory()
        return lines_of(
            lambda: [
                memory.write(Place("arena", 64 * n, 64, f"v{n}"), f"v{n}") for n in range(count)
            ]
        )

    assert writes(400) < 2.1 * writes(200)


def test_a_loop_inside_a_loop_is_counted():
    """The measure itself: it tells a line that is run for every pair."""
    memory = Memory()
    one = lines_of(lambda: memory.write(Place("arena", 0, 64, "a"), "a"))
    wide = lines_of(lambda: memory.write(Place("arena", 0, 64, "a"), "a"))
    for n in range(32):
        memory.write(Place("arena", 64 * n, 64, f"v{n}"), f"v{n}")
    over_all = lines_of(lambda: memory.write(Place("arena", 0, 32 * 64, "all"), "all"))
    assert one <= wide < over_all - 32
