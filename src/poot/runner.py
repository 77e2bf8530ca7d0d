"""How a session's memory and launches are driven: on a device, or by the oracle. Sessions check,
runners act."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Protocol

import numpy as np

from poot.backends.base import (
    Buffer,
    Device,
    Executable,
    TakesSlots,
    Together,
)
from poot.carried import Carried
from poot.device_array import Stored
from poot.device_bytes import from_device, to_device
from poot.errors import RangeError, ValidationError
from poot.failures import feed_failure, guard_failure
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Input, Slot, TensorType
from poot.ir.transaction import RECORD
from poot.launch_lists import LaunchList, LaunchLists, Signature
from poot.planner.feed import OK
from poot.planner.layouts import pack
from poot.planner.plan import Place, Resident
from poot.planner.residents import slot_name
from poot.planner.words import WORD
from poot.staged_slots import StagedSlots

Failure = ValidationError | RangeError
Parts = Sequence[tuple[int, np.ndarray]]
REST = "rest"  # the space whose bytes are 0xff between launches


class Runner(Protocol):
    """One session's memory. Arrays come checked, and nothing is asked after `close`: the session
    sees to both. An entry point's plan is prepared, its slots are written, it runs, and then its
    failure or its outputs are read."""

    @property
    def device(self) -> Device | None: ...
    def together(self) -> AbstractContextManager[object]:
        """A context for all that a step enqueues."""
        ...

    def prepare(self, entry: str, fed: bool) -> None:
        """Makes ready what `run` needs: with `fed`, also what checks slots from the device."""
        ...

    def write_slot(self, entry: str, name: str, parts: Parts) -> None:
        """Takes runs of a slot's elements: (first flat element, values), whole words each. The
        next run has them."""
        ...

    def write_whole(self, entry: str, name: str, raw: bytes) -> None:
        """Takes a slot's elements, all of them, as the host holds them."""
        ...

    def feed_slot(self, entry: str, name: str, source: Stored) -> None:
        """Copies a value of this device into a slot."""
        ...

    @property
    def binds(self) -> int:
        """How often the weights were bound: forks share them, and this."""
        ...

    def write_weights(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Puts other arrays in the place of some weights, for all forks."""
        ...

    def read_state(self, i: Input) -> np.ndarray: ...
    def write_state(self, i: Input, array: np.ndarray) -> None: ...
    def record(self, entry: str) -> bool: ...
    def carried(self, entry: str) -> Carried | None:
        """How a recorded entry point brings its slots along; None where they go by `send`."""
        ...

    def send(self, entry: str, fed: bool) -> None:
        """Brings slots to the device; with `fed`, runs what checks those that came from there. No
        State is written."""
        ...

    def run(self, entry: str) -> None:
        """Runs the entry point, after `send`."""
        ...

    def failure(self, entry: str, fed: bool) -> Failure | None:
        """What failed in the last run, from its records."""
        ...

    def results(self, entry: str, fed: bool) -> tuple[Failure | None, list[np.ndarray]]:
        """What failed in the last run, or its outputs."""
        ...

    def stored(self, entry: str) -> list[Stored]:
        """Where the last run's outputs lie, until the next."""
        ...

    def timed(self, entry: str) -> list[tuple[str, str, float]]:
        """Runs as `run` does, and gives (step, kernel, microseconds) of each launch."""
        ...

    def fork(self) -> Runner: ...
    def wait(self) -> None: ...
    def close(self) -> None: ...


def _is_session_owned(space: str) -> bool:
    return space.split(".")[0] in ("arena", "results", "states", "slots", REST)


class Shared:
    """Weights and Consts on a device, by space, and how often the weights were bound."""

    def __init__(self, buffers: dict[str, Buffer]) -> None:
        self.buffers = buffers
        self.binds = 1


class DeviceRunner:
    """A plan at work on a device. Weights and Consts are shared by forks; the rest is the session's
    own."""

    def __init__(self, lists: LaunchLists, device: Device, loaded: object, shared: Shared) -> None:
        self._lists, self._device, self._loaded = lists, device, loaded
        self._shared = shared
        self._entries, self._signatures = lists.lists, lists.signatures
        self._residents: dict[str, Resident] = {r.name: r for r in lists.residents}
        self._own: dict[str, Buffer] = {}
        self._ready: dict[str, Executable | None] = {}
        self._carried: dict[str, Carried] = {}
        self._doubtful: set[str] = set()  # entry points whose word may be false
        self._together = device.together if isinstance(device, Together) else nullcontext
        for space, nbytes in lists.spaces:
            if _is_session_owned(space):
                self._own[space] = device.allocate(nbytes, space)
                if space == REST:
                    words = np.full(-(-nbytes // 4), 0xFFFFFFFF, np.uint32)
                    device.copy_in(self._own[space], 0, words)
        self._staged = {
            space: StagedSlots(buffer.nbytes)
            for space, buffer in self._own.items()
            if space.split(".")[0] == "slots"
        }
        self._all = shared.buffers | self._own
        self._plain = self._plain_slots()
        for name in self._entries:
            self._write_word(name)

    @property
    def device(self) -> Device | None:
        return self._device

    def together(self) -> AbstractContextManager[object]:
        return self._together()

    def _buffers(self) -> dict[str, Buffer]:
        self._device.need_open()
        return self._all

    def _write_word(self, entry: str) -> None:
        """The word that says that the slots hold: true but after a feed that failed."""
        word = self._residents.get(slot_name(entry, OK))
        if word is not None:
            p = word.place
            self._staged[p.space].write(p.offset, to_device(np.ones((), np.bool_), WORD))

    def write_slot(self, entry: str, name: str, parts: Parts) -> None:
        r = self._residents[slot_name(entry, name)]
        if not r.place.nbytes:
            return
        staged, nbytes = self._staged[r.place.space], DTYPES[r.type.dtype].nbytes
        for first, values in parts:
            data = to_device(values, TensorType(r.type.dtype, values.shape))
            if values.size == r.type.elems:
                staged.own(r.place.offset)
            staged.write(r.place.offset + first * nbytes, data)

    def write_whole(self, entry: str, name: str, raw: bytes) -> None:
        at = self._plain.get((entry, name))
        if at is not None:
            self._staged[at[0]].write_whole(at[1], raw)
            return
        dtype = self._residents[slot_name(entry, name)].type.dtype
        self.write_slot(entry, name, [(0, np.frombuffer(raw, DTYPES[dtype].numpy))])

    def _plain_slots(self) -> dict[tuple[str, str], tuple[str, int]]:
        """Space and offset of each slot whose bytes on the device are the host's, whole words."""
        found: dict[tuple[str, str], tuple[str, int]] = {}
        for entry, signature in self._signatures.items():
            for i in signature.inputs:
                r = self._residents.get(slot_name(entry, i.name))
                is_plain = i.var.type.dtype != "bool" and not i.var.type.nbytes % 4
                if isinstance(i.storage, Slot) and r is not None and r.place.nbytes and is_plain:
                    found[entry, i.name] = (r.place.space, r.place.offset)
        return found

    def feed_slot(self, entry: str, name: str, source: Stored) -> None:
        p = self._residents[slot_name(entry, name)].place
        if p.nbytes and source.buffer is not None:
            self._staged[p.space].lose(p.offset, p.nbytes)
            target = self._buffers()[p.space]
            self._device.copy(source.buffer, source.offset, target, p.offset, p.nbytes)

    def _copy_slots(self) -> None:
        """Brings to the device all that was written to slots since the last run."""
        for space, staged in self._staged.items():
            for first, data in staged.runs():
                self._device.copy_in(self._buffers()[space], first, data)
            staged.done()

    def read_state(self, i: Input) -> np.ndarray:
        p = self._residents[i.name].place
        if i.var.type.elems == 0:
            return np.zeros(i.var.type.shape, DTYPES[i.var.type.dtype].numpy)
        data = self._device.copy_out(self._buffers()[p.space], p.offset, p.nbytes)
        return from_device(data, i.var.type)

    def write_state(self, i: Input, array: np.ndarray) -> None:
        p = self._residents[i.name].place
        if p.nbytes:
            self._device.copy_in(self._buffers()[p.space], p.offset, to_device(array, i.var.type))

    @property
    def binds(self) -> int:
        return self._shared.binds

    def write_weights(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._device.need_open()
        self._shared.binds += 1
        _upload(self._lists, self._device, self._shared.buffers, arrays)

    def _executable(self, plan: LaunchList) -> Executable | None:
        """The plan's launches over the session's buffers; None where it has none."""
        buffers = self._buffers()
        if plan.name not in self._ready:
            loaded, launches = self._loaded, plan.launches
            made = self._device.prepare(loaded, launches, buffers) if launches else None
            self._ready[plan.name] = made
        return self._ready[plan.name]

    def prepare(self, entry: str, fed: bool) -> None:
        plan = self._entries[entry]
        self._executable(plan)
        if fed and plan.feed is not None:
            self._executable(plan.feed)

    def record(self, entry: str) -> bool:
        made = self._executable(self._entries[entry])
        if isinstance(made, TakesSlots) and len(self._staged) == 1:
            ((space, staged),) = self._staged.items()
            room = made.record_with(space)
            if room:
                places = {n: at for (e, n), (_, at) in self._plain.items() if e == entry}
                stored = self.stored(entry)
                self._carried[entry] = Carried(made, staged, room, places, stored)
                return True
        return made is None or made.record()

    def carried(self, entry: str) -> Carried | None:
        return self._carried.get(entry)

    def send(self, entry: str, fed: bool) -> None:
        plan = self._entries[entry]
        if not fed and entry in self._doubtful:
            self._write_word(entry)
        carried = self._carried.get(entry)
        if carried is not None:
            carried.make_room()
        if fed or carried is None or not carried.takes_all():
            self._copy_slots()
        self._doubtful.discard(entry)
        if fed and plan.feed is not None:
            self._doubtful.add(entry)
            made = self._executable(plan.feed)
            if made is not None:
                made.run()

    def run(self, entry: str) -> None:
        carried = self._carried.get(entry)
        if carried is not None:
            carried.run()
            return
        made = self._executable(self._entries[entry])
        if made is not None:
            made.run()

    def _block(self, nbytes: int) -> np.ndarray:
        """The first bytes of the results, in one copy."""
        if not nbytes:
            return np.zeros(0, np.uint8)
        return self._device.copy_out(self._buffers()["results"], 0, nbytes)

    def failure(self, entry: str, fed: bool) -> Failure | None:
        plan = self._entries[entry]
        if not plan.records and not fed:
            return None
        return self._failure(entry, fed, self._block(plan.records_nbytes))

    def _failure(self, entry: str, fed: bool, block: np.ndarray) -> Failure | None:
        return failure_in(self._entries[entry], self._signatures[entry], fed, block)

    def results(self, entry: str, fed: bool) -> tuple[Failure | None, list[np.ndarray]]:
        plan = self._entries[entry]
        block = self._block(plan.results_nbytes)
        failed = self._failure(entry, fed, block)
        if failed is not None:
            return failed, []
        return None, [_in_block(block, p, t) for t, p in plan.outputs]

    def stored(self, entry: str) -> list[Stored]:
        buffers = self._buffers()
        return [
            Stored(t, self._device, buffers.get(p.space), p.offset)
            for t, p in self._entries[entry].outputs
        ]

    def timed(self, entry: str) -> list[tuple[str, str, float]]:
        plan = self._entries[entry]
        made = self._executable(plan)
        self._copy_slots()  # what `send` left for a recording
        times = made.timed() if made is not None else []
        return [(op, kernel, us) for (op, kernel), us in zip(plan.steps, times, strict=True)]

    def fork(self) -> DeviceRunner:
        self._copy_slots()
        other = DeviceRunner(self._lists, self._device, self._loaded, self._shared)
        for space, buffer in self._own.items():
            if space.split(".")[0] in ("states", "slots"):
                self._device.copy(buffer, 0, other._own[space], 0, -(-buffer.nbytes // 4) * 4)
        other._staged = {space: staged.copy() for space, staged in self._staged.items()}
        other._doubtful = set(self._doubtful)
        return other

    def wait(self) -> None:
        for space, buffer in self._buffers().items():
            if space in ("arena", "results"):
                self._device.copy_out(buffer, 0, 4)

    def close(self) -> None:
        """Frees what is its own, and then the weights where no fork has them."""
        buffers, held = list(self._own.values()), self._shared
        self._shared = Shared({})
        self._shared.binds = held.binds
        self._own.clear()
        self._all = {}
        self._ready.clear()
        self._carried.clear()
        with ExitStack() as each:  # all of them, whatever the driver says of one
            for buffer in buffers:
                each.callback(self._device.free, buffer)


def failure_in(
    plan: LaunchList, signature: Signature, fed: bool, block: np.ndarray
) -> Failure | None:
    """What the records at the start of the results say of a run of the entry point; with `fed`, of
    what checked its slots too."""
    if fed and plan.feed is not None:
        slots = {i.name: i for i in signature.inputs}
        records = [_in_block(block, p, t) for t, p in plan.feed.outputs]
        failed = feed_failure([slots[name] for name in plan.fed], records)
        if failed is not None:
            return failed
    records = [_in_block(block, p, RECORD) for p in plan.records]
    return guard_failure(signature.guards, records, plan.late)


def _in_block(block: np.ndarray, p: Place, type: TensorType) -> np.ndarray:
    """A value of the results, as a view of the copied block."""
    if type.elems == 0:
        return np.zeros(type.shape, DTYPES[type.dtype].numpy)
    return from_device(block[p.offset : p.offset + p.nbytes], type)


def upload_shared(lists: LaunchLists, device: Device, weights: Mapping[str, np.ndarray]) -> Shared:
    """Weights and Consts on the device, packed as the plan asks."""
    buffers = {
        space: device.allocate(nbytes, space)
        for space, nbytes in lists.spaces
        if not _is_session_owned(space)
    }
    _upload(lists, device, buffers, weights)
    for r in lists.residents:
        if r.type.elems and r.name in lists.consts:
            data = np.frombuffer(lists.consts[r.name], np.uint8)
            device.copy_in(buffers[r.place.space], r.place.offset, data)
    return Shared(buffers)


def _upload(
    lists: LaunchLists,
    device: Device,
    buffers: Mapping[str, Buffer],
    arrays: Mapping[str, np.ndarray],
) -> None:
    """Copies arrays to every place that holds them, in its layout."""
    for r in lists.residents:
        array = arrays.get(r.name.split("@")[0])
        if array is not None and r.type.elems:
            device.copy_in(
                buffers[r.place.space], r.place.offset, to_device(pack(array, r.layout), r.type)
            )
