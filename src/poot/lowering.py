"""From the graphs that the passes leave to kernels: the plan, and each of its requests lowered and
emitted, or found in the cache.

A step of several eqns that no generator writes, or that the device can't run whole, runs as its
primitives instead: the entry point's report "apart" says which and why, and so does the log. What
can't be taken apart is refused, with the line of who asked for it.
"""

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
from poot.errors import CapabilityError, FormatError
from poot.ir.graph import Graph
from poot.limits import DeviceLimits
from poot.passes.pipeline import PassReport
from poot.passes.regions.apart import take_apart
from poot.planner.key import GENERATOR_VERSION
from poot.planner.plan import Plan
from poot.planner.request import Request

LOG = logging.getLogger("poot")
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Kernels:
    """Every request of a plan as kernels and code; `keys` has the code of each call."""

    lowered: Mapping[Request, Lowered]
    keys: Mapping[Request, tuple[str, ...]]
    codes: tuple[Code, ...]


@dataclass(frozen=True, slots=True)
class Lowering:
    """A program's entry points planned and lowered: the graphs as they run, what was taken apart,
    and the seconds that planning and lowering took."""

    graphs: Mapping[str, Graph]
    apart: Mapping[str, tuple[PassReport, ...]]
    plan: Plan
    kernels: Kernels
    plan_s: float
    kernels_s: float


def lower_program(
    graphs: Mapping[str, Graph],
    plan_of: Callable[[Mapping[str, Graph]], Plan],
    limits: DeviceLimits,
    cache: DiskCache | None,
    progress: Progress,
) -> Lowering:
    """The entry points planned by `plan_of`, and every step lowered. Raises what planning raises,
    and the CapabilityError of a step that is one primitive, with the user's line."""
    apart: dict[str, tuple[PassReport, ...]] = dict.fromkeys(graphs, ())
    plan_s = kernels_s = 0.0
    while True:
        clock = time.perf_counter()
        plan = plan_of(graphs)
        plan_s += time.perf_counter() - clock
        clock = time.perf_counter()
        kernels, refused = _lower_all(requests_of(plan), limits, cache, progress)
        kernels_s += time.perf_counter() - clock
        if not refused:
            for note in [n for reports in apart.values() for r in reports for n in r.notes]:
                LOG.warning("%s%s", note.what, f"  at {note.loc}" if note.loc else "")
            return Lowering(graphs, apart, plan, kernels, plan_s, kernels_s)
        graphs, found = _without(graphs, plan, refused)
        if not found:  # ends: each round leaves fewer regions of several eqns
            raise _located(plan, refused)
        apart = {name: (*apart[name], *found.get(name, ())) for name in apart}


def requests_of(plan: Plan) -> list[Request]:
    """The plan's requests, equal ones once, in the order of their steps."""
    if plan.limits.target == "oracle":
        return []
    shared = {id(s.request): s.request for e in plan.lists for s in e.steps}
    return list(dict.fromkeys(shared.values()))


def _without(
    graphs: Mapping[str, Graph], plan: Plan, refused: Mapping[Request, CapabilityError]
) -> tuple[dict[str, Graph], dict[str, tuple[PassReport, ...]]]:
    """The graphs with the refused steps taken apart, and the reports of those that changed."""
    left, reports = dict(graphs), dict[str, tuple[PassReport, ...]]()
    for entry in plan.entries:
        why = {
            int(p.name.rpartition("/v")[2]): refused[s.request].message
            for s in entry.steps
            if s.request in refused
            for p in s.outs
        }
        found = take_apart(graphs[entry.name], why) if why else None
        if found is not None:
            left[entry.name], report = found
            reports[entry.name] = (report,)
    return left, reports


def _located(plan: Plan, refused: Mapping[Request, CapabilityError]) -> CapabilityError:
    """The first step's error, with the op and the user's line."""
    step = next(s for e in plan.lists for s in e.steps if s.request in refused)
    error = refused[step.request]
    return error if error.loc else type(error)(f"{step.op}: {error.message}", step.loc)


def request_key(request: Request, limits: DeviceLimits) -> str:
    """What a request's lowered step and its code are kept under, as 64 hexadecimal digits."""
    text = f"{GENERATOR_VERSION}\n{limits}\n{request}"
    return hashlib.sha256(text.encode()).hexdigest()


def _lower_all(
    requests: list[Request], limits: DeviceLimits, cache: DiskCache | None, progress: Progress
) -> tuple[Kernels, dict[Request, CapabilityError]]:
    lowered: dict[Request, Lowered] = {}
    keys: dict[Request, tuple[str, ...]] = {}
    codes: dict[str, Code] = {}
    refused: dict[Request, CapabilityError] = {}
    for n, request in enumerate(requests):
        progress("kernels", n, len(requests))
        try:
            low, made = _lower_one(request, limits, cache)
        except CapabilityError as e:
            refused[request] = e
            continue
        lowered[request] = low
        keys[request] = tuple(c.key for c in made)
        codes.update({c.key: c for c in made})
    progress("kernels", len(requests), len(requests))
    return Kernels(lowered, keys, tuple(codes.values())), refused


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
