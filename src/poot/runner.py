"""How a session's memory and launches are driven: on a device, or by the oracle. Sessions check,
runners act."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from poot.backends.base import (
    Buffer,
    BufferRef,
    Device,
    Executable,
    KeepsOutputs,
    Launch,
    Lease,
)
from poot.device_bytes import from_device, to_device
from poot.errors import BackendError, BindError
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Const, Graph, Input, Slot, State, TensorType
from poot.oracle import run as run_oracle
from poot.planner.layouts import pack
from poot.planner.make import const_name
from poot.planner.plan import EntryPlan, Place, Resident
from poot.planner.residents import slot_name
from poot.program import Compiled

Failure = tuple[str, str]
_CLOSED = "this session is closed; bind the program again"


class Runner(Protocol):
    """One session's memory. Arrays come checked; nothing here raises a BindError but after
    `close`."""

    def write_slot(self, entry: str, name: str, array: np.ndarray) -> None: ...
    def read_state(self, i: Input) -> np.ndarray: ...
    def write_state(self, i: Input, array: np.ndarray) -> None: ...
    def record(self, entry: str) -> bool: ...
    def run(self, entry: str) -> Failure | None:
        """Runs the entry point. A guard that failed: (message, user's line), and nothing was
        written."""
        ...

    def outputs(self, entry: str) -> list[np.ndarray]: ...
    def device_outputs(self, entry: str, lease: Lease) -> list[object]:
        """The outputs where they are. Raises BackendError where the device can't leave them."""
        ...

    def timed(self, entry: str) -> list[tuple[str, str, float]]: ...
    def fork(self) -> Runner: ...
    def wait(self) -> None: ...
    def close(self) -> None: ...


def describe_failure(graph: Graph, witnesses: Sequence[np.ndarray]) -> Failure | None:
    """The first witness that holds a false, as (message, line), or None."""
    makers = {v.id: e for e in graph.eqns for v in e.outs}
    for var, ok in zip(graph.validations, witnesses, strict=True):
        if ok.all():
            continue
        eqn = makers.get(var.id)
        flat = int(np.argmin(ok.reshape(-1)))
        at = tuple(int(n) for n in np.unravel_index(flat, ok.shape)) if ok.shape else ()
        bounds = (
            f" in [{eqn.attr('lo')}, {eqn.attr('hi')})"
            if eqn is not None and eqn.op == "index_guard"
            else ""
        )
        count = int(ok.size - np.count_nonzero(ok))
        what = eqn.op if eqn is not None else "the validation output"
        message = (
            f"{what} needs every index{bounds}: {count} of {ok.size} failed, the first at {at}; "
            "nothing was published"
        )
        return message, eqn.loc if eqn is not None else ""
    return None


class OracleRunner:
    """The oracle as a target: numpy, by definition right."""

    def __init__(self, graphs: Mapping[str, Graph], weights: Mapping[str, np.ndarray]) -> None:
        self._graphs = graphs
        self._weights = dict(weights)
        self._states: dict[str, np.ndarray] = {}
        self._slots: dict[tuple[str, str], np.ndarray] = {}
        self._outputs: dict[str, list[np.ndarray]] = {}
        self._open = True
        for g in graphs.values():
            for i in g.inputs:
                if isinstance(i.storage, State):
                    self._states[i.name] = np.zeros(
                        i.var.type.shape, DTYPES[i.var.type.dtype].numpy
                    )

    def write_slot(self, entry: str, name: str, array: np.ndarray) -> None:
        self._slots[entry, name] = array.copy()

    def read_state(self, i: Input) -> np.ndarray:
        return self._states[i.name].copy()

    def write_state(self, i: Input, array: np.ndarray) -> None:
        self._states[i.name] = array.copy()

    def record(self, entry: str) -> bool:
        return False

    def run(self, entry: str) -> Failure | None:
        graph = self._graphs[entry]
        if not self._open:
            raise BindError(_CLOSED)
        feed: dict[str, np.ndarray] = {}
        for i in graph.inputs:
            if isinstance(i.storage, State):
                feed[i.name] = self._states[i.name]
            elif isinstance(i.storage, Slot):
                feed[i.name] = self._slots[entry, i.name]
            elif not isinstance(i.storage, Const):
                feed[i.name] = self._weights[i.name]
        result = run_oracle(graph, feed)
        failure = describe_failure(graph, result.witnesses)
        if failure is None:
            self._states.update(result.states)
            self._outputs[entry] = list(result.outputs)
        return failure

    def outputs(self, entry: str) -> list[np.ndarray]:
        return [np.array(x) for x in self._outputs[entry]]

    def device_outputs(self, entry: str, lease: Lease) -> list[object]:
        raise BackendError("the oracle has no device to leave outputs on")

    def timed(self, entry: str) -> list[tuple[str, str, float]]:
        self.run(entry)
        return [("oracle", "numpy", float("nan"))]

    def fork(self) -> OracleRunner:
        other = OracleRunner(self._graphs, self._weights)
        other._states = {n: x.copy() for n, x in self._states.items()}
        return other

    def wait(self) -> None:
        return None

    def close(self) -> None:
        self._open = False
        self._weights.clear()


def _is_slot_space(space: str) -> bool:
    return space.split(".")[0] == "slots"


def _is_session_owned(space: str) -> bool:
    return space.split(".")[0] in ("arena", "states", "slots")


class DeviceRunner:
    """A plan at work on a device. Weights and Consts are shared by forks; the rest is the session's
    own."""

    def __init__(
        self,
        program: Compiled,
        device: Device,
        loaded: object,
        shared: dict[str, Buffer],
        graphs: Mapping[str, Graph],
    ) -> None:
        self._program, self._device, self._loaded, self._graphs = program, device, loaded, graphs
        self._shared = shared
        self._entries = {e.name: e for e in program.plan.entries}
        self._residents: dict[str, Resident] = {r.name: r for r in program.plan.residents}
        self._own: dict[str, Buffer] = {}
        for space, nbytes in program.plan.spaces:
            if _is_session_owned(space):
                self._own[space] = device.allocate(nbytes, space)
        self._ready: dict[str, tuple[Executable | None, Executable | None]] = {}
        self._staged = {
            space: np.zeros(self._own[space].nbytes, np.uint8)
            for space in self._own
            if _is_slot_space(space)
        }
        self._dirty: dict[str, tuple[int, int]] = {}
        self._open = True

    def _buffers(self) -> dict[str, Buffer]:
        if not self._open:
            raise BindError(_CLOSED)
        return self._shared | self._own

    def _write(self, p: Place, array: np.ndarray, type: TensorType) -> None:
        if p.nbytes:
            self._device.copy_in(self._buffers()[p.space], p.offset, to_device(array, type))

    def _read(self, p: Place, type: TensorType) -> np.ndarray:
        if type.elems == 0:
            return np.zeros(type.shape, DTYPES[type.dtype].numpy)
        return from_device(
            self._device.copy_out(self._buffers()[p.space], p.offset, p.nbytes), type
        )

    def write_slot(self, entry: str, name: str, array: np.ndarray) -> None:
        """Takes the slot's bytes; the next run copies all that were written since in one piece."""
        resident = self._residents[slot_name(entry, name)]
        place = resident.place
        if not place.nbytes:
            return
        raw = to_device(array, resident.type)
        first, last = place.offset, place.offset + raw.size
        self._staged[place.space][first:last] = raw
        lo, hi = self._dirty.get(place.space, (first, last))
        self._dirty[place.space] = (min(lo, first), max(hi, last))

    def _copy_slots(self) -> None:
        for space, (first, last) in self._dirty.items():
            self._device.copy_in(self._own[space], first, self._staged[space][first:last])
        self._dirty.clear()

    def read_state(self, i: Input) -> np.ndarray:
        return self._read(self._residents[i.name].place, i.var.type)

    def write_state(self, i: Input, array: np.ndarray) -> None:
        self._write(self._residents[i.name].place, array, i.var.type)

    def _launches(self, entry: EntryPlan, first: int, last: int) -> list[Launch]:
        index = self._program.kernel_index()
        launches: list[Launch] = []
        for step in entry.steps[first:last]:
            groups = {"in": step.ins, "out": step.outs, "scratch": step.scratch}
            for call, key in zip(
                self._program.lowered[step.request].calls,
                self._program.call_keys[step.request],
                strict=True,
            ):
                places = [groups[kind][n] for kind, n in call.args]
                refs = tuple(BufferRef(p.space, p.offset, max(p.nbytes, 4)) for p in places)
                launches.append(Launch(index[key], call.grid, refs, call.imms))
        return launches

    def _prepare(self, entry: str) -> tuple[Executable | None, Executable | None]:
        if entry not in self._ready:
            plan = self._entries[entry]
            parts = ((0, plan.guards), (plan.guards, len(plan.steps)))
            made = [
                self._device.prepare(self._loaded, launches, self._buffers()) if launches else None
                for launches in (self._launches(plan, a, b) for a, b in parts)
            ]
            self._ready[entry] = (made[0], made[1])
        return self._ready[entry]

    def record(self, entry: str) -> bool:
        return all([e.record() for e in self._prepare(entry) if e is not None])

    def run(self, entry: str) -> Failure | None:
        guards, rest = self._prepare(entry)
        plan = self._entries[entry]
        self._copy_slots()
        if guards is not None:
            guards.run()
        if plan.witnesses:
            failure = describe_failure(
                self._graphs[entry], [self._read(p, t) for t, p in plan.witnesses]
            )
            if failure is not None:
                return failure
        if rest is not None:
            rest.run()
        return None

    def outputs(self, entry: str) -> list[np.ndarray]:
        return [np.array(self._read(p, t)) for t, p in self._entries[entry].outputs]

    def device_outputs(self, entry: str, lease: Lease) -> list[object]:
        device, buffers = self._device, self._buffers()
        if not isinstance(device, KeepsOutputs):
            raise BackendError(
                f"{device.limits.name} leaves no outputs on the device; bind without "
                "device_outputs=True"
            )
        places = self._entries[entry].outputs
        return [device.view(buffers[p.space], p.offset, t, lease) for t, p in places]

    def timed(self, entry: str) -> list[tuple[str, str, float]]:
        out: list[tuple[str, str, float]] = []
        plan = self._entries[entry]
        names = [
            (step.op, call.kernel.name)
            for step in plan.steps
            for call in self._program.lowered[step.request].calls
        ]
        self._copy_slots()
        times = [t for part in self._prepare(entry) if part is not None for t in part.timed()]
        for (op, kernel), us in zip(names, times, strict=True):
            out.append((op, kernel, us))
        return out

    def fork(self) -> DeviceRunner:
        other = DeviceRunner(self._program, self._device, self._loaded, self._shared, self._graphs)
        for space, buffer in self._own.items():
            if space.startswith("states"):
                self._device.copy(buffer, 0, other._own[space], 0, buffer.nbytes)
        return other

    def wait(self) -> None:
        for space, buffer in self._own.items():
            if space == "arena":
                self._device.copy_out(buffer, 0, 4)

    def close(self) -> None:
        for buffer in self._own.values():
            self._device.free(buffer)
        self._own.clear()
        self._ready.clear()
        self._open = False


def upload_shared(
    program: Compiled,
    device: Device,
    graphs: Mapping[str, Graph],
    weights: Mapping[str, np.ndarray],
) -> dict[str, Buffer]:
    """Weights and Consts on the device, packed as the plan asks."""
    buffers = {
        space: device.allocate(nbytes, space)
        for space, nbytes in program.plan.spaces
        if not _is_session_owned(space)
    }
    consts = {
        const_name(i): np.frombuffer(i.storage.data, DTYPES[i.var.type.dtype].numpy).reshape(
            i.var.type.shape
        )
        for g in graphs.values()
        for i in g.inputs
        if isinstance(i.storage, Const)
    }
    for r in program.plan.residents:
        name = r.name.split("@")[0]
        array = weights.get(name) if name in weights else consts.get(name)
        if array is not None and r.type.elems:
            device.copy_in(
                buffers[r.place.space], r.place.offset, to_device(pack(array, r.layout), r.type)
            )
    return buffers
