"""One program on every target: how each is opened, and a run of any graph on it.

A target joins by one row of BACKEND_MARKS (a backend of the registry) or of OPEN.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from poot.api import Program
from poot.api import compile as compile_program
from poot.backends.base import Device
from poot.backends.registry import BACKENDS, open_device
from poot.errors import BackendUnavailable
from poot.ir.attrs import graph_attr
from poot.ir.graph import Eqn, Graph, Slot, State, Weight
from poot.limits import DeviceLimits
from poot.oracle import Result
from poot.passes.pipeline import PIPELINE, Pass
from poot.session import Session
from tests.support.gpu import clean, gpu, validate
from tests.support.sim_device import SimDevice

# Devices that tests open in a way of their own.
OPEN: dict[str, Callable[[], Device]] = {
    "simulator": SimDevice,
    "ptx": lambda: gpu("ptx"),
    "vulkan": lambda: gpu("vulkan"),
    "wgpu": lambda: gpu("wgpu"),
    "webgpu-baseline": lambda: gpu("webgpu-baseline"),
    "hip-fibers-32": lambda: gpu("hip-fibers-32"),
    "hip-fibers-64": lambda: gpu("hip-fibers-64"),
}
# Other backends, and the marks of what runs on each. One that the registry lacks has no tests.
BACKEND_MARKS: dict[str, tuple[pytest.MarkDecorator, ...]] = {
    "cpu": (),
    "cuda": (pytest.mark.cuda,),
    "hip": (pytest.mark.amd,),
}
DEVICES = (*OPEN, *(name for name in BACKEND_MARKS if name in BACKENDS))
# Python runs these, slowly: tests at size leave both out by `on(but="simulator")`.
SLOW = ("simulator", "ptx")
# Emitters' texts run by machines of the tests' own. The suites run on them; the hard cases, whose
# kernels are of the same kinds, leave them out by `on(but="emulated")`.
EMULATED = ("ptx", "hip-fibers-32", "hip-fibers-64")


def on(*names: str, but: str = "") -> pytest.MarkDecorator:
    """Runs the test on each of these targets, or on every device but those named in `but`, where
    "hip-fibers" names both widths, "simulator" every slow one and "emulated" those of EMULATED."""
    groups = {"simulator": SLOW, "emulated": EMULATED}
    left_out = {n for word in but.split() for n in (word, *groups.get(word, ()))}
    chosen = names or tuple(n for n in DEVICES if not {n, n.rpartition("-")[0]} & left_out)
    rows = [
        pytest.param(n, marks=BACKEND_MARKS.get(n, ())) for n in chosen if n in (*DEVICES, "oracle")
    ]
    return pytest.mark.parametrize("target", rows)


@functools.cache
def _opened(target: str) -> Device | str:
    try:
        return OPEN[target]() if target in OPEN else open_device(target)
    except BackendUnavailable as e:
        return e.message


def device_of(target: str) -> Device:
    """The process's device of a target, or a skip that says what is missing."""
    device = _opened(target)
    if isinstance(device, str):
        pytest.skip(device)
    return device


_VALID: set[str] = set()


def compile_on(
    target: str,
    graphs: Graph | Mapping[str, Graph],
    *,
    passes: tuple[Pass, ...] = PIPELINE,
    fresh: bool = False,
    limits: DeviceLimits | None = None,
) -> Program:
    """The graphs compiled for a target's own device, past the disk cache, under its limits or
    these. A program that was made lately in this process serves again, unless `fresh`."""
    named = {"main": graphs} if isinstance(graphs, Graph) else graphs
    key = tuple((name, g, g.tree) for name, g in named.items())
    return (_compiled.__wrapped__ if fresh else _compiled)(target, key, passes, limits)


@functools.lru_cache(maxsize=48)
def _compiled(
    target: str,
    named: tuple[tuple[str, Graph, object], ...],
    passes: tuple[Pass, ...],
    limits: DeviceLimits | None,
) -> Program:
    """Each kernel for Vulkan is shown to spirv-val once."""
    graphs = {name: g for name, g, _ in named}
    if target == "oracle":
        return compile_program(graphs, target="oracle", passes=passes)
    device = device_of(target)
    made = compile_program(graphs, target=limits or device.limits, passes=passes, cache=False)
    if target == "vulkan":
        for code in made.codes:
            if code.key not in _VALID:
                validate(code.binary)
                _VALID.add(code.key)
    return replace(made, device=device, target=target)


def bind_feed(program: Program, graph: Graph, feed: Mapping[str, object]) -> Session:
    """A session with the feed's weights bound and its States written."""
    weights = {i.name: feed[i.name] for i in graph.inputs if isinstance(i.storage, Weight)}
    session = program.bind(weights, allow_nonfinite=True)
    for i in graph.inputs:
        if isinstance(i.storage, State) and i.name in feed:
            session.state[i.name] = feed[i.name]
    return session


def slots_of(graph: Graph, feed: Mapping[str, object]) -> dict[str, object]:
    return {i.name: feed[i.name] for i in graph.inputs if isinstance(i.storage, Slot)}


def run_program(program: Program, feed: Mapping[str, object], entry: str = "main") -> Result:
    """One step in a session of its own: outputs in order, States after it. The validation layer
    has nothing to say about it."""
    graph = replace(program.entries[entry].source, tree=None)
    session = bind_feed(program, graph, feed)
    try:
        session.step(entry, **slots_of(graph, feed))
        _, outputs = session.runner.results(entry, False)
        states = {name: np.asarray(session.state[name]) for name in session.state_inputs}
    finally:
        session.close()
    if program.device is not None:
        clean(program.device)
    return Result(tuple(outputs), states, ())


def run_everywhere(
    graph: Graph,
    feed: Mapping[str, object],
    target: str,
    *,
    passes: tuple[Pass, ...] = PIPELINE,
) -> Result:
    """The graph compiled for the target and run once on the feed (an array for each Weight, Slot
    and State by name)."""
    return run_program(compile_on(target, graph, passes=passes), feed)


def eqns_of(graph: Graph) -> list[Eqn]:
    """Every eqn, those in the bodies of regions in the place of their region."""
    bodies = (graph_attr(e).eqns if e.op == "region" else (e,) for e in graph.eqns)
    return list(itertools.chain.from_iterable(bodies))


def fused_count(program: Program, op: str, entry: str = "main") -> int:
    """How many eqns of a fused op an entry point has after the passes."""
    return sum(e.op == op for e in eqns_of(program.entries[entry].final))
