"""Where results go: an output of its own, or the part of a State that an update replaces, in
place.

What a request's condition decides is stored only where the step's word `ok` is true; no lane
reads or writes such an output else."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from poot.codegen.gen.index import ZERO, Coords, Index, flat
from poot.codegen.gen.job import Job, maker_of
from poot.codegen.gen.memory import Memory
from poot.codegen.gen.pull_shape import start_coords
from poot.codegen.kir.build import U32, Val
from poot.errors import CapabilityError
from poot.ir.attrs import int_attr
from poot.ir.graph import Eqn, TensorType, Var
from poot.planner.request import Request
from poot.planner.spills import UPDATE_OPS, new_part, spilled, wide_dtype


@dataclass(frozen=True, slots=True)
class Sink:
    """One output. `source` is the value whose elements are stored: the output, or an update's new
    part. `update` is the eqn that says where a new part goes, None for a plain output. `ok` is the
    bool under which anything is stored, None for always."""

    source: Var
    memory: Memory
    update: Eqn | None = None
    ok: Val | None = None

    def place(self, job: Job, coords: Coords) -> tuple[Index, Val | None]:
        """(element number, condition or None) of the source's element at coords."""
        if self.update is None:
            return flat(coords, self.source.type.shape), self.ok
        if self.update.op == "dynamic_update_slice":
            return self._slice_place(job, coords), self.ok
        at, keep = self._row_place(job, coords)
        return at, keep if self.ok is None else keep & self.ok

    def _slice_place(self, job: Job, coords: Coords) -> Index:
        assert self.update is not None
        shape, axis = self.update.ins[0].type.shape, update_axis(self.update)
        first = slice_start(job, self.update, coords)
        return flat((*coords[:axis], first + coords[axis], *coords[axis + 1 :]), shape)

    def _row_place(self, job: Job, coords: Coords) -> tuple[Index, Val]:
        assert self.update is not None
        x, _, rows = self.update.ins
        extent = x.type.shape[0]
        row = job.pull.value(rows, coords[:1])
        at = job.indexer.clamp(row, extent)
        return flat((at, *coords[1:]), x.type.shape), job.k.bitcast(row, U32) < extent

    @contextmanager
    def when_ok(self, job: Job) -> Generator[None]:
        """Runs the body where the step's word allows a store."""
        if self.ok is None:
            yield
        else:
            with job.k.if_(self.ok):
                yield

    def store(self, job: Job, coords: Coords, value: Val) -> None:
        """Stores the source's element at coords; the memory takes single elements."""
        at, keep = self.place(job, coords)
        if keep is None:
            self.memory.store(at, value)
        else:
            with job.k.if_(keep):
                self.memory.store(at, value)


def update_axis(update: Eqn) -> int:
    return int_attr(update, "axis")


def slice_start(job: Job, update: Eqn, coords: Coords) -> Index:
    """Where a dynamic_update_slice begins along its axis, clamped so that the window fits."""
    x, new, start = update.ins
    axis = update_axis(update)
    found = job.pull.value(start, start_coords(start, coords))
    return job.indexer.clamp(found, x.type.shape[axis] - new.type.shape[axis] + 1)


def source_of(request: Request, n: int) -> Var:
    """What is stored for output n: the output, or the new part of the update that makes it."""
    return new_part(request.body, request.updates, n)


def _update_of(request: Request, n: int) -> Eqn:
    """The update eqn that makes output n in place. Raises CapabilityError where it is none."""
    body, at = request.body, dict(request.updates)[n]
    eqn, x = maker_of(body, body.outputs[n]), body.inputs[at].var
    if eqn is None or eqn.op not in UPDATE_OPS or eqn.ins[0].id != x.id:
        raise CapabilityError(
            f"output {n} is said to update input {at} in place, and no update makes it so"
        )
    if sum(v.id == x.id for e in body.eqns for v in e.ins) > 1:
        raise CapabilityError(
            f"{eqn.op} in place over an input that its own step reads; copy it first", eqn.loc
        )
    return eqn


def _ok_of(job: Job, n: int) -> Val | None:
    """The word that output n is stored under, loaded once a kernel; None where none decides."""
    condition = job.request.condition
    if condition is None or n not in condition.outs:
        return None
    if job.ok is None:
        memory = job.memory("ok", TensorType("bool", ()), "r", ("in", condition.ok))
        job.ok = memory.load(ZERO)
    return job.ok


def open_sinks(
    job: Job, only: tuple[int, ...] | None = None, *, packed: bool = False
) -> list[Sink]:
    """A parameter and a sink for each output with elements to store (with `only`, for those). A
    spilled output goes to its scratch, unless `packed`."""
    request = job.request
    body, updates = request.body, dict(request.updates)
    wide = spilled(body, request.anchor, request.updates, job.limits)
    sinks: list[Sink] = []
    for n, out in enumerate(body.outputs):
        source = source_of(request, n)
        if (only is not None and n not in only) or source.type.elems == 0:
            continue
        if n in wide and not packed:
            type = TensorType(wide_dtype(source.type.dtype), source.type.shape)
            memory = job.memory(f"wide{n}", type, "w", ("scratch", wide.index(n)))
            sinks.append(Sink(source, memory))
        elif n in updates:
            memory = job.memory(f"out{n}", out.type, "rw", ("out", n))
            sinks.append(Sink(source, memory, _update_of(request, n), _ok_of(job, n)))
        else:
            memory = job.memory(f"out{n}", out.type, "w", ("out", n))
            sinks.append(Sink(source, memory, None, _ok_of(job, n)))
    return sinks
