"""A program as what a device replays: launch lists over named buffers, and what a session has to
know to feed them. Data only; a compile makes it, and a bundle holds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from poot.backends.base import BufferRef, Launch
from poot.compiled import Whole
from poot.device_bytes import to_device
from poot.failures import Guard, guards_of
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Const, Graph, Input, TensorType
from poot.planner.plan import EntryPlan, Place, Resident, const_name


@dataclass(frozen=True, slots=True)
class Signature:
    """What an entry point takes and gives, without how. `inputs` has no Consts; `written` names the
    States that a step gives a new value; `tree` is how outputs nest (see `ir.tree`)."""

    inputs: tuple[Input, ...]
    written: tuple[str, ...]
    guards: tuple[Guard, ...]
    tree: object = None


@dataclass(frozen=True, slots=True)
class LaunchList:
    """One entry point's launches in order; `steps` has (step, kernel) of each, for people. The
    other fields are those of `planner.plan.EntryPlan`."""

    name: str
    launches: tuple[Launch, ...]
    steps: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[TensorType, Place], ...]
    records: tuple[Place, ...] = ()
    late: tuple[bool, ...] = ()
    results_nbytes: int = 0
    records_nbytes: int = 0
    feed: LaunchList | None = None
    fed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchLists:
    """A program's lists by entry point, over one set of buffers. `consts` has the device bytes of
    each Const by its resident's name."""

    lists: Mapping[str, LaunchList]
    signatures: Mapping[str, Signature]
    residents: tuple[Resident, ...]
    spaces: tuple[tuple[str, int], ...]
    consts: Mapping[str, bytes]


def signature_of(source: Graph, final: Graph) -> Signature:
    """The signature of a traced graph that is run as `final`, the graph after the passes."""
    names = {i.var.id: i.name for i in final.inputs}
    written = tuple(names[a.id] for a, b in final.states if a.id != b.id)
    inputs = tuple(i for i in final.inputs if not isinstance(i.storage, Const))
    return Signature(inputs, written, guards_of(source), final.tree)


def const_bytes(graphs: Iterable[Graph]) -> dict[str, bytes]:
    """The device bytes of each Const of the graphs, by its resident's name."""
    found: dict[str, bytes] = {}
    for graph in graphs:
        for i in graph.inputs:
            if isinstance(i.storage, Const):
                array = np.frombuffer(i.storage.data, DTYPES[i.var.type.dtype].numpy)
                found[const_name(i)] = to_device(array, i.var.type).tobytes()
    return found


def lists_of(whole: Whole) -> LaunchLists:
    """What a device replays of a compile."""
    index = {c.key: n for n, c in enumerate(whole.codes)}
    return LaunchLists(
        {e.name: _list(whole, e, index) for e in whole.plan.entries},
        {name: signature_of(e.source, e.final) for name, e in whole.entries.items()},
        whole.plan.residents,
        whole.plan.spaces,
        const_bytes(e.final for e in whole.entries.values()),
    )


def _list(whole: Whole, plan: EntryPlan, index: Mapping[str, int]) -> LaunchList:
    launches: list[Launch] = []
    steps: list[tuple[str, str]] = []
    for step in plan.steps:
        groups = {"in": step.ins, "out": step.outs, "scratch": step.scratch}
        calls = whole.lowered[step.request].calls
        for call, key in zip(calls, whole.call_keys[step.request], strict=True):
            refs = tuple(_ref(groups[kind][n]) for kind, n in call.args)
            maps = tuple((_ref(groups[kind][n]), view) for (kind, n), view in call.maps)
            launches.append(Launch(index[key], call.grid, refs, call.imms, call.attributes, maps))
            steps.append((step.op, call.kernel.name))
    return LaunchList(
        plan.name,
        tuple(launches),
        tuple(steps),
        plan.outputs,
        plan.records,
        plan.late,
        plan.results_nbytes,
        plan.records_nbytes,
        None if plan.feed is None else _list(whole, plan.feed, index),
        plan.fed,
    )


def _ref(p: Place) -> BufferRef:
    return BufferRef(p.space, p.offset, max(p.nbytes, 4))
