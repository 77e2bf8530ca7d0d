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
from poot.compiled import Whole
from poot.errors import BackendUnavailable, BindError
from poot.foreign_array import on_device
from poot.ir.graph import Graph
from poot.kept import keep, program_key, take
from poot.knobs import knobs
from poot.later import Later, made
from poot.launch_lists import signature_of
from poot.limits import PROFILES, DeviceLimits
from poot.lowering import Progress
from poot.making import Options, make_whole, silent
from poot.oracle_runner import OracleRunner, OracleWeights
from poot.passes.pipeline import PIPELINE, Pass
from poot.program import Compiled
from poot.report import dump, explain, stage_text
from poot.runner import DeviceRunner, upload_shared
from poot.session import Session

LOG = logging.getLogger("poot")
MOST_NAME = 100  # characters of an entry point's name


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
            arrays = bind_weights(self.sources, given, allow_nonfinite)
            signatures = {name: signature_of(g, g) for name, g in self.sources.items()}
            runner = OracleRunner(self.sources, OracleWeights(arrays))
            return Session(self, runner, signatures, device_outputs)
        lists = self.lists()
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
    progress: Progress = silent,
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
    options = Options(passes, assume_hidden, memory_budget)
    disk = DiskCache(knobs().cache_dir) if cache else None
    program = _compiled(named, where, options, disk, progress)
    folder = knobs().dump
    if folder is not None:
        dump(program, folder)
    return program


def _compiled(
    graphs: dict[str, Graph],
    where: Target,
    options: Options,
    disk: DiskCache | None,
    progress: Progress,
) -> Program:
    """The program that an earlier run kept, or a new one, which is kept. A compile that is to be
    checked (POOT_CHECK) is done."""
    limits, seconds = where.limits, dict[str, float]()
    clock = time.perf_counter()
    key = None if disk is None or knobs().check else program_key(graphs, limits, options)
    kept = None if disk is None or key is None else take(disk, key, graphs, limits)
    if kept is not None:
        name = kept.key
        progress("kernels", len(kept.codes), len(kept.codes))
        seconds["kept"] = time.perf_counter() - clock

        def again() -> Whole:
            with collector_paused():
                whole = make_whole(graphs, limits, options, disk, silent, {})
            assert whole.plan.key == name, "a compile of the same graphs makes the same plan"
            return whole

        return Program(
            graphs, kept.codes, limits, name, where.device, where.name, seconds,
            Later(again), kept.lists,
        )  # fmt: skip
    whole = make_whole(graphs, limits, options, disk, progress, seconds)
    if disk is not None and key is not None:
        keep(disk, key, whole)
    return Program(
        graphs, whole.codes, limits, whole.plan.key, where.device, where.name, seconds, made(whole)
    )
