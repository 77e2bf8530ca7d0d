"""A program at work in its caller's memory: the caller gives each run the addresses of its slots,
States and outputs, and of memory to work in, and nothing is copied or allocated here.

An array is bound where it lies if it can be (`can_lie_at`); a slot that can't, or that has a range,
is copied by the caller to its place in the space "slots", and a slot with a range is checked there
by the run's first launches.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from poot.api import Program
from poot.backends.base import Adopts, Buffer, BufferRef, Executable, Launch, RunsOn
from poot.backends.launches import BINDING_QUANTUM
from poot.binding import bind_weights
from poot.errors import BackendError, BindError
from poot.foreign_array import on_device
from poot.ir.graph import Graph, Input, Slot, State, TensorType
from poot.ir.transaction import can_be_fed
from poot.launch_lists import lists_of
from poot.planner.feed import OK
from poot.planner.plan import Place, Resident
from poot.planner.request import Layout
from poot.planner.residents import slot_name
from poot.runner import REST, Failure, failure_in, upload_shared
from poot.slots import WRITE_MAP

# Launch lists kept bound to the addresses that they were last run over.
MOST_BOUND = 32
_SHARED = ("weights", "consts")
# Targets whose memory is named by addresses.
_ADDRESSED = ("ptx", "llvm")


def can_lie_at(address: int, nbytes: int) -> bool:
    """Whether a value may be bound where it is: kernels load whole vectors."""
    return nbytes > 0 and not (address | nbytes) % BINDING_QUANTUM


@dataclass(frozen=True, slots=True)
class Operand:
    """A slot, State or output: `space` is the name that a run takes its address under, `place`
    where it lies in poot's own spaces. A slot that `is_fed` is copied there, and checked."""

    name: str
    type: TensorType
    space: str
    place: Place
    is_fed: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """Memory that a run works in: bytes of a space, all 0xff before it where `is_rest`."""

    space: str
    nbytes: int
    is_rest: bool


class CallerRunner:
    """One entry point of a program with its Weights on the device. Used by one thread at a time.

    Raises BindError where the entry point has a slot that only the host can check, and BackendError
    where the device takes no memory of others."""

    def __init__(
        self,
        program: Program,
        weights: Mapping[str, object],
        entry: str,
        *,
        allow_nonfinite: bool = False,
    ) -> None:
        device = program.device
        if entry not in program.entries:
            known = ", ".join(sorted(program.entries))
            raise BindError(f"there is no entry point {entry!r}; entry points: {known}")
        if (
            device is None
            or not isinstance(device, Adopts)
            or device.limits.target not in _ADDRESSED
        ):
            raise BackendError(
                f"{program.target} works in its own memory alone: compile for cuda or cpu"
            )
        self.device = device
        self.entry = entry
        self._adopts: Adopts = device
        lists = lists_of(program)
        self._plan = lists.lists[entry]
        self._signature = lists.signatures[entry]
        self._source: Graph = program.entries[entry].source
        self._residents = {r.name: r for r in program.plan.residents}
        self._loaded = device.load(program.codes)
        here = {name: on_device(device, value, name) for name, value in weights.items()}
        arrays = bind_weights(lists.signatures, here, allow_nonfinite)
        self._shared = upload_shared(lists, device, arrays).buffers
        for buffer in list(self._shared.values())[:1]:
            device.copy_out(buffer, 0, 4)  # waits: runs are on other streams
        self.slots = tuple(self._slot(i) for i in _of(self._source, Slot))
        self.states = tuple(self._state(i) for i in _of(self._source, State))
        self.outputs = tuple(
            Operand(str(n), t, f"out:{n}", _result(p))
            for n, (t, p) in enumerate(self._plan.outputs)
        )
        self.is_fed = any(s.is_fed for s in self.slots)
        feed = self._plan.feed if self.is_fed else None
        self._launches = [
            *(() if feed is None else feed.launches),
            *self._plan.launches,
        ]
        if self._launches:  # what may overlap would overlap what the caller enqueued
            first = self._launches[0]
            plain = replace(first.attributes, overlap=False)
            self._launches[0] = replace(first, attributes=plain)
        self.work = self._work(dict(program.plan.spaces))
        self._ready: OrderedDict[tuple[tuple[str, int], ...], Executable] = OrderedDict()

    def _slot(self, i: Input) -> Operand:
        slot = i.storage
        assert isinstance(slot, Slot)
        if slot.kind == WRITE_MAP or (slot.range is not None and not can_be_fed(i)):
            raise BindError(
                f"slot {i.name!r} {i.var.type} of kind {slot.kind} is checked by the host alone: "
                "write the caller's memory by the caller's own means, and leave it out"
            )
        r = self._residents[slot_name(self.entry, i.name)]
        return Operand(i.name, i.var.type, f"slot:{i.name}", r.place, can_be_fed(i))

    def _state(self, i: Input) -> Operand:
        r = self._residents[i.name]
        if r.layout != Layout() or i.var.type.dtype == "bool":
            raise BindError(f"State {i.name!r} {i.var.type} lies in a layout of the device's own")
        return Operand(i.name, i.var.type, f"state:{i.name}", r.place)

    def _work(self, sizes: Mapping[str, int]) -> tuple[Work, ...]:
        used = {ref.space for x in self._launches for ref in _refs(x)} | {"results", "slots"}
        own = sorted(s for s in used if s in sizes and s.split(".")[0] not in _SHARED)
        return tuple(Work(s, sizes[s], s == REST) for s in own if not s.startswith("states"))

    @property
    def word(self) -> Place | None:
        """The u32 word that has to be 1 before a run: that slots from the device hold."""
        found: Resident | None = self._residents.get(slot_name(self.entry, OK))
        return None if found is None else found.place

    @property
    def records_nbytes(self) -> int:
        """How many bytes of "results" say afterwards how the run went; 0 where none can fail."""
        can_fail = bool(self._plan.records) or self.is_fed
        return self._plan.records_nbytes if can_fail else 0

    def failure(self, block: np.ndarray) -> Failure | None:
        """What failed in the run that left these bytes (u8) at the start of "results"."""
        return failure_in(self._plan, self._signature, self.is_fed, block)

    def run(self, memory: Mapping[str, tuple[int, int]], stream: int | None) -> None:
        """Runs over the (address, bytes) of each space in `memory`: of `work`, all; of States and
        outputs, all that have elements; of slots, those that aren't in "slots". On a device with
        streams it is enqueued on that one. Raises BindError on memory that nothing can be bound at,
        and what a launch raises."""
        for space, (address, nbytes) in memory.items():
            if not can_lie_at(address, nbytes):
                raise BindError(
                    f"{space} needs whole vectors of {BINDING_QUANTUM} bytes, at a multiple of "
                    f"them: got {nbytes} bytes at {address:#x}"
                )
        if not self._launches:
            return
        made = self._bound(memory)
        if stream is not None and isinstance(made, RunsOn):
            made.run_on(stream)
        else:
            made.run()

    def _bound(self, memory: Mapping[str, tuple[int, int]]) -> Executable:
        key = tuple((space, address) for space, (address, _) in memory.items())
        made = self._ready.get(key)
        if made is None:
            buffers: dict[str, Buffer] = dict(self._shared)
            for space, (address, nbytes) in memory.items():
                buffers[space] = self._adopts.adopt(address, nbytes, space)
            launches = self._placed(frozenset(memory))
            made = self.device.prepare(self._loaded, launches, buffers)
            self._ready[key] = made
            while len(self._ready) > MOST_BOUND:
                self._ready.popitem(last=False)
        self._ready.move_to_end(key)
        return made

    def _placed(self, spaces: frozenset[str]) -> list[Launch]:
        """The launches, over the caller's memory where a run was given it."""
        moved = [o for o in (*self.slots, *self.states, *self.outputs) if o.space in spaces]
        at = _Moves(moved)
        return [
            replace(
                x,
                buffers=tuple(map(at.of, x.buffers)),
                maps=tuple((at.of(ref), view) for ref, view in x.maps),
            )
            for x in self._launches
        ]


def _of(graph: Graph, storage: type[Slot] | type[State]) -> list[Input]:
    return [i for i in graph.inputs if isinstance(i.storage, storage)]


def _refs(launch: Launch) -> list[BufferRef]:
    return [*launch.buffers, *(ref for ref, _ in launch.maps)]


def _result(p: Place) -> Place:
    assert p.space == "results", "outputs lie together"
    return p


class _Moves:
    """References to values that lie elsewhere than the plan says."""

    def __init__(self, moved: Sequence[Operand]) -> None:
        self._by_space: dict[str, list[Operand]] = {}
        for o in moved:
            self._by_space.setdefault(o.place.space, []).append(o)

    def of(self, ref: BufferRef) -> BufferRef:
        """Where the value lies. Raises BindError where a reference holds more than one value."""
        end = ref.offset + ref.nbytes
        for o in self._by_space.get(ref.space, ()):
            first, last = o.place.offset, o.place.offset + max(o.place.nbytes, 4)
            if first <= ref.offset and end <= last:
                return BufferRef(o.space, ref.offset - first, ref.nbytes)
            if ref.offset < last and first < end:
                raise BindError(f"{o.name} shares a binding with others: it can't be moved")
        return ref
