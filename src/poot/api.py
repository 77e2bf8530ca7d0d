"""trace -> compile -> bind -> step: the stages a user writes, each ahead of the next."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from poot.backends.base import Device
from poot.backends.registry import auto_target, open_device
from poot.binding import bind_weights, need_flag, need_names
from poot.bundle.load import save
from poot.cache import DiskCache
from poot.collector import collector_paused
from poot.errors import BackendUnavailable, BindError
from poot.foreign_array import on_device
from poot.ir.graph import Graph
from poot.knobs import knobs
from poot.launch_lists import lists_of, signature_of
from poot.limits import PROFILES, DeviceLimits
from poot.lowering import Progress, lower_program
from poot.oracle_runner import OracleRunner, OracleWeights
from poot.passes.checking import check_compiled
from poot.passes.pipeline import (
    FEED_PASSES,
    PIPELINE,
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
from poot.program import Compiled, CompiledEntry
from poot.report import dump, explain, stage_text
from poot.runner import DeviceRunner, upload_shared
from poot.session import Session

LOG = logging.getLogger("poot")
MOST_NAME = 100  # characters of an entry point's name


def _no_progress(stage: str, done: int, total: int) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Target:
    """What a program is compiled for: limits, and the device where there is one."""

    name: str
    limits: DeviceLimits
    device: Device | None


def resolve_target(target: str | DeviceLimits | Device) -> Target:
    """A device by name ("vulkan", "wgpu:1", "auto"), a limits profile by name, limits as they are,
    or a device that the caller opened (on a stream of its own, say)."""
    if isinstance(target, DeviceLimits):
        return Target(target.name, target, None)
    if not isinstance(target, str):
        if not isinstance(getattr(target, "limits", None), DeviceLimits):
            raise BackendUnavailable(
                f"a target is a device's name, a profile's, limits or a device: got {target!r}"
            )
        return Target(target.limits.name, target.limits, target)
    if target in PROFILES:
        return Target(target, PROFILES[target], None)
    name = target
    if target == "auto":
        name = knobs().target or auto_target()
        LOG.info("auto is %s", name)
        if name in PROFILES:
            return Target(name, PROFILES[name], None)
    device = open_device(name)
    return Target(name, device.limits, device)


class Program(Compiled):
    """A compiled program: immutable, shared by any number of sessions."""

    __slots__ = ()

    def bind(
        self,
        weights: Mapping[str, object] | None = None,
        *,
        allow_nonfinite: bool = False,
        device_outputs: bool = False,
    ) -> Session:
        """A session: device memory with the weights in it, State at zero.

        `weights` by input name, of exactly the declared dtype and shape. Raises BindError on a
        missing, unknown,
        ill-typed or (unless allowed) non-finite one, and BackendUnavailable where the program was
        compiled from a
        profile. What was bound is copied: changing an array later changes nothing. With
        `device_outputs` every step leaves its outputs on the device that doesn't say otherwise."""
        need_flag(allow_nonfinite, "allow_nonfinite")
        need_flag(device_outputs, "device_outputs")
        named = need_names({} if weights is None else weights, "bind")
        given = {name: on_device(self.device, value, name) for name, value in named.items()}
        if self._is_oracle:
            graphs = {name: e.source for name, e in self.entries.items()}
            arrays = bind_weights(graphs, given, allow_nonfinite)
            signatures = {name: signature_of(g, g) for name, g in graphs.items()}
            runner = OracleRunner(graphs, OracleWeights(arrays))
            return Session(self, runner, signatures, device_outputs)
        lists = lists_of(self)
        arrays = bind_weights(lists.signatures, given, allow_nonfinite)
        if self.device is None:
            raise BackendUnavailable(
                f"this program was compiled for the profile {self.target!r}, without a device; "
                "compile it for one of poot.devices() to run it"
            )
        loaded = self.device.load(self.codes)
        runner = DeviceRunner(lists, self.device, loaded, upload_shared(lists, self.device, arrays))
        return Session(self, runner, lists.signatures, device_outputs)

    def save(
        self,
        path: str | Path,
        weights: Mapping[str, object] | None = None,
        *,
        weights_path: str | Path | None = None,
        allow_nonfinite: bool = False,
    ) -> None:
        """Writes the program as a bundle, which `poot.load` and the C runtime read: a zip of a JSON
        manifest and the kernels. With `weights` they are written too, packed as the device takes
        them, to a safetensors file of the bundle's name (or `weights_path`). Raises what `bind`
        raises of weights, and CapabilityError for the oracle's programs."""
        save(self, path, weights, weights_path, allow_nonfinite)

    @property
    def _is_oracle(self) -> bool:
        return self.limits.target == "oracle"

    def explain(self) -> str:
        """What was fused into what, what declined and why, with source lines; schedules; kernels;
        memory."""
        return explain(self)

    def text(self, stage: str, entry: str | None = None) -> str:
        """One stage as text: "trace", a pass's name, "final", "plan", or "kernels". Raises
        BindError with the list."""
        return stage_text(self, stage, entry)


def _feeds(graphs: Mapping[str, Graph], limits: DeviceLimits) -> dict[str, Graph]:
    """What checks the slots that come from the device, by entry point, in regions."""
    feeds: dict[str, Graph] = {}
    for name, graph in graphs.items():
        feed = feed_of(graph)
        if feed is not None:
            feeds[name] = run_pipeline(feed, limits, FEED_PASSES)[0]
    return feeds


def _named(graphs: object) -> dict[str, Graph]:
    """Entry points by name. Raises BindError on what is no graph, on a name that can't be shown,
    and where there is none."""
    if isinstance(graphs, Graph):
        return {"main": graphs}
    remedy = "make a Graph of a function by poot.trace"
    if not isinstance(graphs, Mapping) or not graphs:
        kind = "no entry point" if isinstance(graphs, Mapping) else type(graphs).__name__
        raise BindError(f"compile needs a Graph, or Graphs by name: got {kind}; {remedy}")
    named: dict[str, Graph] = {}
    given = cast("Mapping[object, object]", graphs)  # what it holds is seen here
    for name, graph in need_names(given, "compile").items():
        if not (0 < len(name) <= MOST_NAME and name.isprintable()):
            raise BindError(
                f"compile needs entry points named by 1 to {MOST_NAME} printable characters: "
                f"got {name[:120]!r}"
            )
        if not isinstance(graph, Graph):
            kind = type(graph).__name__
            raise BindError(f"entry point {name!r} needs a Graph: got {kind}; {remedy}")
        named[name] = graph
    return named


def _check_options(
    passes: object, assume_hidden: object, memory_budget: object, cache: object, progress: object
) -> None:
    """Raises BindError on an option of another kind."""
    need_flag(assume_hidden, "assume_hidden")
    need_flag(cache, "cache")
    is_passes = isinstance(passes, tuple) and all(
        isinstance(p, Pass) for p in cast("tuple[object, ...]", passes)
    )
    if not is_passes:
        raise BindError(
            f"passes needs a tuple of poot.passes.pipeline.Pass: got {passes!r}; "
            "() runs the primitives"
        )
    if memory_budget is not None and not (type(memory_budget) is int and memory_budget >= 0):
        raise BindError(f"memory_budget needs bytes, an int of 0 or more: got {memory_budget!r}")
    if not callable(progress):
        raise BindError(f"progress needs a function (stage, done, total): got {progress!r}")


@collector_paused()
def compile(
    graphs: Graph | Mapping[str, Graph],
    target: str | DeviceLimits | Device = "auto",
    *,
    passes: tuple[Pass, ...] = PIPELINE,
    assume_hidden: bool = False,
    memory_budget: int | None = None,
    cache: bool = True,
    progress: Progress = _no_progress,
) -> Program:
    """Compiles entry points for a device, or for a limits profile without one.

    `passes=()` runs the primitives as they were written. `memory_budget` in bytes. Under POOT_CHECK
    the oracle compares each entry point with its source: PassError names the worst element. Raises
    BindError on an argument of another kind, PlanError where entry points disagree, a
    CapabilityError with its numbers where the device can't, BackendUnavailable where it isn't
    there."""
    named = _named(graphs)
    _check_options(passes, assume_hidden, memory_budget, cache, progress)
    where = resolve_target(target)
    seconds: dict[str, float] = {}
    clock = time.perf_counter()
    finals: dict[str, Graph] = {}
    reports: dict[str, tuple[PassReport, ...]] = {}
    is_oracle = where.limits.target == "oracle"
    wanted = (RECORDS,) if is_oracle else with_records(passes)
    for n, (name, graph) in enumerate(named.items()):
        progress("passes", n, len(named))
        finals[name], reports[name] = run_pipeline(
            graph, where.limits, wanted, assume_hidden=assume_hidden
        )
        if knobs().check:
            check_compiled(graph, finals[name])
    seconds["passes"] = time.perf_counter() - clock
    options = f"passes={[p.name for p in passes]} assume_hidden={assume_hidden}"

    def plan_of(entries: Mapping[str, Graph]) -> Plan:
        return make_plan(
            entries,
            choose_nothing if is_oracle else choose,
            where.limits,
            feeds={} if is_oracle else _feeds(entries, where.limits),
            memory_budget=memory_budget,
            options=options,
        )

    disk = DiskCache(knobs().cache_dir) if cache else None
    low = lower_program(finals, plan_of, where.limits, disk, progress)
    seconds |= {"plan": low.plan_s, "kernels": low.kernels_s}
    by_name = {e.name: e for e in low.plan.entries}
    entries = {
        n: CompiledEntry(g, low.graphs[n], (*reports[n], *low.apart[n]), by_name[n])
        for n, g in named.items()
    }
    kernels = low.kernels
    made = Program(
        entries,
        low.plan,
        kernels.lowered,
        kernels.keys,
        kernels.codes,
        where.device,
        where.name,
        seconds,
    )
    folder = knobs().dump
    if folder is not None:
        dump(made, folder)
    return made
