"""Every stage of a compile, in order: passes, plan, kernels."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from poot.cache import DiskCache
from poot.compiled import CompiledEntry, Whole
from poot.ir.graph import Graph
from poot.knobs import knobs
from poot.limits import DeviceLimits
from poot.lowering import Progress, lower_program
from poot.passes.checking import check_compiled
from poot.passes.pipeline import (
    FEED_PASSES,
    RECORDS,
    Pass,
    PassReport,
    run_pipeline,
    with_records,
)
from poot.planner.feed import feed_of
from poot.planner.make import make_plan
from poot.planner.plan import Plan
from poot.planner.schedules import choose
from poot.planner.steps import choose_nothing


def silent(stage: str, done: int, total: int) -> None:
    """A Progress that nobody hears."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a compile was asked for beside graphs and limits."""

    passes: tuple[Pass, ...]
    assume_hidden: bool
    memory_budget: int | None

    def __str__(self) -> str:
        return f"passes={[p.name for p in self.passes]} assume_hidden={self.assume_hidden}"


def make_whole(
    graphs: Mapping[str, Graph],
    limits: DeviceLimits,
    options: Options,
    disk: DiskCache | None,
    progress: Progress,
    seconds: dict[str, float],
) -> Whole:
    """All stages; the seconds that each took go into `seconds`. Raises what `api.compile` does of
    graphs and limits."""
    clock = time.perf_counter()
    finals: dict[str, Graph] = {}
    reports: dict[str, tuple[PassReport, ...]] = {}
    is_oracle = limits.target == "oracle"
    wanted = (RECORDS,) if is_oracle else with_records(options.passes)
    for n, (name, graph) in enumerate(graphs.items()):
        progress("passes", n, len(graphs))
        finals[name], reports[name] = run_pipeline(
            graph, limits, wanted, assume_hidden=options.assume_hidden
        )
        if knobs().check:
            check_compiled(graph, finals[name])
    seconds["passes"] = time.perf_counter() - clock

    def plan_of(entries: Mapping[str, Graph]) -> Plan:
        return make_plan(
            entries,
            choose_nothing if is_oracle else choose,
            limits,
            feeds={} if is_oracle else _feeds(entries, limits),
            memory_budget=options.memory_budget,
            options=str(options),
        )

    low = lower_program(finals, plan_of, limits, disk, progress)
    seconds |= {"plan": low.plan_s, "kernels": low.kernels_s}
    by_name = {e.name: e for e in low.plan.entries}
    entries = {
        n: CompiledEntry(g, low.graphs[n], (*reports[n], *low.apart[n]), by_name[n])
        for n, g in graphs.items()
    }
    kernels = low.kernels
    return Whole(entries, low.plan, kernels.lowered, kernels.keys, kernels.codes)


def _feeds(graphs: Mapping[str, Graph], limits: DeviceLimits) -> dict[str, Graph]:
    """What checks the slots that come from the device, by entry point, in regions."""
    feeds: dict[str, Graph] = {}
    for name, graph in graphs.items():
        feed = feed_of(graph)
        if feed is not None:
            feeds[name] = run_pipeline(feed, limits, FEED_PASSES)[0]
    return feeds
