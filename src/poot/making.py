"""Every stage of a compile, in order: passes, plan, kernels."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from poot.cache import DiskCache
from poot.codegen.code import Code
from poot.codegen.emitters import emit
from poot.codegen.gen.lower import lower
from poot.codegen.gen.lowered import Lowered
from poot.codegen.stored import decode, encode
from poot.compiled import CompiledEntry, Whole
from poot.errors import FormatError
from poot.ir.graph import Graph
from poot.knobs import knobs
from poot.limits import DeviceLimits
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
from poot.planner.key import GENERATOR_VERSION
from poot.planner.make import make_plan
from poot.planner.request import Request
from poot.planner.schedules import choose
from poot.planner.steps import choose_nothing

LOG = logging.getLogger("poot")
Progress = Callable[[str, int, int], None]


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


def request_key(request: Request, limits: DeviceLimits) -> str:
    """What a request's lowered step and its code are kept under, as 64 hexadecimal digits."""
    text = f"{GENERATOR_VERSION}\n{limits}\n{request}"
    return hashlib.sha256(text.encode()).hexdigest()


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
    clock = time.perf_counter()
    plan = make_plan(
        finals,
        choose_nothing if is_oracle else choose,
        limits,
        feeds={} if is_oracle else _feeds(finals, limits),
        memory_budget=options.memory_budget,
        options=str(options),
    )
    seconds["plan"] = time.perf_counter() - clock
    clock = time.perf_counter()
    shared = {id(s.request): s.request for e in plan.lists for s in e.steps}
    requests = [] if is_oracle else list(dict.fromkeys(shared.values()))
    lowered, keys, codes = _lower_all(requests, limits, disk, progress)
    seconds["kernels"] = time.perf_counter() - clock
    by_name = {e.name: e for e in plan.entries}
    entries = {n: CompiledEntry(g, finals[n], reports[n], by_name[n]) for n, g in graphs.items()}
    return Whole(entries, plan, lowered, keys, codes)


def _feeds(graphs: Mapping[str, Graph], limits: DeviceLimits) -> dict[str, Graph]:
    """What checks the slots that come from the device, by entry point, in regions."""
    feeds: dict[str, Graph] = {}
    for name, graph in graphs.items():
        feed = feed_of(graph)
        if feed is not None:
            feeds[name] = run_pipeline(feed, limits, FEED_PASSES)[0]
    return feeds


def _lower_all(
    requests: list[Request], limits: DeviceLimits, cache: DiskCache | None, progress: Progress
) -> tuple[dict[Request, Lowered], dict[Request, tuple[str, ...]], tuple[Code, ...]]:
    lowered: dict[Request, Lowered] = {}
    keys: dict[Request, tuple[str, ...]] = {}
    codes: dict[str, Code] = {}
    for n, request in enumerate(requests):
        progress("kernels", n, len(requests))
        low, made = _lower_one(request, limits, cache)
        lowered[request] = low
        keys[request] = tuple(c.key for c in made)
        codes.update({c.key: c for c in made})
    progress("kernels", len(requests), len(requests))
    return lowered, keys, tuple(codes.values())


def _lower_one(
    request: Request, limits: DeviceLimits, cache: DiskCache | None
) -> tuple[Lowered, tuple[Code, ...]]:
    key = request_key(request, limits) if cache is not None else ""
    stored = cache.get(key) if cache is not None else None
    if stored is not None:
        try:
            return decode(stored)
        except FormatError as e:
            LOG.warning("a cache entry was not used: %s", e.message)
    low = lower(request, limits)
    codes = tuple(emit(call.kernel, limits) for call in low.calls)
    if cache is not None:
        cache.put(key, encode(low, codes))
    return low, codes
