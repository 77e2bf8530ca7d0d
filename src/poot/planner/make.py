"""Makes the plan of a program: every entry point over one set of residents and one arena."""

from __future__ import annotations

import hashlib

from poot.errors import BindingLimit, CapabilityError, MemoryBudget, ScratchBytes
from poot.ir.graph import Const, Graph, Input, Slot, TensorType, Var, Weight
from poot.limits import DeviceLimits
from poot.planner.arena import place
from poot.planner.check import check_plan
from poot.planner.entry import EntryStages, plan_entry
from poot.planner.key import plan_key
from poot.planner.layouts import packed_nbytes
from poot.planner.plan import EntryPlan, Place, Plan, Resident, Step
from poot.planner.request import Layout
from poot.planner.residents import Spaces, match_inputs, place_resident, resident_nbytes, slot_name
from poot.planner.steps import Chooser, Stage

ROW_MAJOR = Layout()


def const_name(i: Input) -> str:
    """A Const's resident name: by content, so entry points share it."""
    assert isinstance(i.storage, Const)
    return "const:" + hashlib.sha256(f"{i.var.type}".encode() + i.storage.data).hexdigest()[:32]


def resident_name(entry: str, i: Input) -> str:
    if isinstance(i.storage, Const):
        return const_name(i)
    return slot_name(entry, i.name) if isinstance(i.storage, Slot) else i.name


def _layout_name(name: str, layout: Layout) -> str:
    return name if layout == ROW_MAJOR else f"{name}@{layout.kind}{list(layout.params)}"


def _wanted(entries: list[EntryStages]) -> dict[str, set[Layout]]:
    """Resident name -> the layouts that steps want it in; row-major where it is only an output."""
    wanted: dict[str, set[Layout]] = {}
    for entry in entries:
        for stage in entry.stages:
            for v, layout in zip(stage.ins, stage.request.layouts, strict=True):
                wanted.setdefault(entry.homes[v.id], set()).add(layout)
    return wanted


def _place_residents(
    graphs: dict[str, Graph], entries: list[EntryStages], limits: DeviceLimits
) -> tuple[list[Resident], Spaces]:
    wanted = _wanted(entries)
    spaces = Spaces(limits)
    placed: dict[str, Resident] = {}
    for entry, graph in graphs.items():
        for i in graph.inputs:
            name = resident_name(entry, i)
            layouts: set[Layout] = (
                wanted.get(name, set()) if isinstance(i.storage, Weight) else set()
            )
            for layout in sorted(layouts or {ROW_MAJOR}, key=str):
                full = _layout_name(name, layout)
                if full not in placed:
                    placed[full] = place_resident(
                        spaces, i, full, layout, packed_nbytes(i.var.type, layout)
                    )
    return list(placed.values()), spaces


def _step(
    entry: EntryStages, n: int, stage: Stage, at: dict[str, Place], offsets: dict[str, int]
) -> Step:
    def arena(name: str, nbytes: int) -> Place:
        return Place("arena", offsets[name], nbytes, name)

    def where(home: str, nbytes: int, layout: Layout = ROW_MAJOR) -> Place:
        return at.get(_layout_name(home, layout)) or arena(home, nbytes)

    ins = tuple(
        where(entry.homes[v.id], resident_nbytes(v.type), layout)
        for v, layout in zip(stage.ins, stage.request.layouts, strict=True)
    )
    outs = tuple(where(entry.homes[v.id], resident_nbytes(v.type)) for v in stage.outs)
    scratch = tuple(
        arena(name, resident_nbytes(TensorType(s.dtype, (s.elems,))))
        for name, s in zip(entry.scratch_names[n], stage.request.scratch, strict=True)
    )
    return Step(stage.request, ins, outs, scratch, stage.op, stage.loc, stage.reason)


def _check_bindings(entries: list[EntryPlan], limits: DeviceLimits) -> None:
    for entry in entries:
        for step in entry.steps:
            for p in (*step.ins, *step.outs):
                if p.nbytes > limits.binding_nbytes:
                    raise BindingLimit(
                        f"{step.op} needs {p.name} of {p.nbytes} bytes in one binding and "
                        f"{limits.name} binds at most "
                        f"{limits.binding_nbytes}; use a smaller chunk or capacity",
                        step.loc,
                    )
            for p in step.scratch:
                if p.nbytes > min(limits.binding_nbytes, limits.buffer_nbytes):
                    raise ScratchBytes(
                        f"{step.op} needs a scratch of {p.nbytes} bytes and {limits.name} allows "
                        f"{min(limits.binding_nbytes, limits.buffer_nbytes)}",
                        step.loc,
                    )


def make_plan(
    graphs: dict[str, Graph],
    choose: Chooser,
    limits: DeviceLimits,
    *,
    memory_budget: int | None = None,
    options: str = "",
) -> Plan:
    """Plans the entry points, checks the plan, and names it. Raises the typed capability errors
    with their numbers."""
    if not graphs:
        raise CapabilityError("a program needs at least one entry point")
    match_inputs(graphs)
    entries = [
        plan_entry(name, g, {i.var.id: resident_name(name, i) for i in g.inputs}, choose, limits)
        for name, g in graphs.items()
    ]
    residents, spaces = _place_residents(graphs, entries, limits)
    at = {r.name: r.place for r in residents}
    planned: list[EntryPlan] = []
    arena_nbytes = 0
    for entry in entries:
        offsets, size = place(list(entry.lives), limits.offset_align)
        arena_nbytes = max(arena_nbytes, size)
        steps = tuple(_step(entry, n, s, at, offsets) for n, s in enumerate(entry.stages))

        def out(v: Var, entry: EntryStages = entry, offsets: dict[str, int] = offsets) -> Place:
            home = entry.homes[v.id]
            found = at.get(home)
            return found or Place("arena", offsets[home], resident_nbytes(v.type), home)

        outputs = tuple((v.type, out(v)) for v in entry.graph.outputs)
        witnesses = tuple((v.type, out(v)) for v in entry.graph.validations)
        planned.append(EntryPlan(entry.name, steps, outputs, witnesses, entry.guards))
    if arena_nbytes:
        spaces.sizes["arena"] = arena_nbytes
    _check_bindings(planned, limits)
    _check_budget(spaces.sizes, limits, memory_budget)
    plan = Plan(
        tuple(planned),
        tuple(residents),
        tuple(sorted(spaces.sizes.items())),
        limits,
        plan_key(graphs, limits, planned, options),
    )
    check_plan(plan, graphs)
    return plan


def _check_budget(sizes: dict[str, int], limits: DeviceLimits, budget: int | None) -> None:
    need = sum(sizes.values())
    most = min(limits.memory_nbytes, budget if budget is not None else limits.memory_nbytes)
    if need > most:
        parts = ", ".join(f"{k} {v}" for k, v in sorted(sizes.items()))
        raise MemoryBudget(
            f"the program needs {need} bytes of device memory and may take {most} on "
            f"{limits.name} ({parts}); "
            "lower the capacity or the chunk, or use a smaller dtype"
        )
    if sizes.get("arena", 0) > limits.buffer_nbytes:
        raise BindingLimit(
            f"the arena needs {sizes['arena']} bytes in one buffer and {limits.name} allows "
            f"{limits.buffer_nbytes}; "
            "use a smaller chunk"
        )
