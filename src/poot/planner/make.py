"""Makes the plan of a program: every entry point over one set of residents and one arena."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from poot.errors import CapabilityError
from poot.ir.graph import Const, Graph, Input, Slot, TensorType, Var, Weight
from poot.ir.transaction import fed_inputs, is_conditional
from poot.ir.walk import next_id
from poot.limits import DeviceLimits
from poot.planner.arena import place
from poot.planner.budget import check_bindings, check_budget
from poot.planner.check import check_plan
from poot.planner.entry import EntryStages, plan_entry
from poot.planner.feed import FEED, OK
from poot.planner.key import plan_key
from poot.planner.layouts import packed_nbytes
from poot.planner.plan import (
    EntryPlan,
    Place,
    Plan,
    Resident,
    Step,
    Verdict,
    const_name,
)
from poot.planner.request import Layout
from poot.planner.residents import Spaces, match_inputs, place_resident, resident_nbytes, slot_name
from poot.planner.steps import Chooser, Stage
from poot.planner.words import WORD

ROW_MAJOR = Layout()


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
    graphs: Mapping[str, Graph], entries: list[EntryStages], limits: DeviceLimits
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


@dataclass(frozen=True, slots=True)
class Where:
    """Where an entry point's values lie. `at` holds the places of residents and results by home,
    `offsets` those in the arena."""

    entry: EntryStages
    at: dict[str, Place]
    offsets: dict[str, int]
    inputs: frozenset[int]
    align: int

    def of(self, v: Var, layout: Layout = ROW_MAJOR) -> Place:
        """The value's place, under the value's own name."""
        home = _layout_name(self.entry.homes[v.id], layout)
        found = self.at.get(home)
        if found is None:
            return Place("arena", self.offsets[home], resident_nbytes(v.type), self.name(v))
        return found if v.id in self.inputs else replace(found, name=self.name(v))

    def name(self, v: Var) -> str:
        is_input = v.id in self.inputs
        return self.entry.homes[v.id] if is_input else f"{self.entry.name}/{v}"

    def step(self, n: int, stage: Stage) -> Step:
        ins = tuple(
            self.of(v, layout) for v, layout in zip(stage.ins, stage.request.layouts, strict=True)
        )
        outs = tuple(map(self.of, stage.outs))
        scratch = self._scratch(n, stage)
        return Step(stage.request, ins, outs, scratch, stage.op, stage.loc, stage.reason)

    def _scratch(self, n: int, stage: Stage) -> tuple[Place, ...]:
        """Places of a step's scratch. What is at rest between launches is shared by all steps."""
        places: list[Place] = []
        at = 0
        for name, s in zip(self.entry.scratch_names[n], stage.request.scratch, strict=True):
            nbytes = _scratch_nbytes(s.dtype, s.elems)
            if s.at_rest:
                places.append(Place("rest", at, nbytes, name))
                at += -(-nbytes // self.align) * self.align
            else:
                places.append(Place("arena", self.offsets[name], nbytes, name))
        return tuple(places)


def _scratch_nbytes(dtype: str, elems: int) -> int:
    return resident_nbytes(TensorType(dtype, (elems,)))


class Results:
    """Hands out places in the space "results" for one entry point and its feed: records first."""

    def __init__(self, align: int) -> None:
        self.align = align
        self.nbytes = 0

    def take(self, entry: EntryStages, values: tuple[Var, ...], at: dict[str, Place]) -> None:
        """A place for each value that has none yet, added to `at`."""
        for v in values:
            home = entry.homes[v.id]
            if home not in at:
                nbytes = resident_nbytes(v.type)
                at[home] = Place("results", self.nbytes, nbytes, home)
                self.nbytes += -(-nbytes // self.align) * self.align


def _verdict(entry: EntryStages, where: Where) -> Verdict | None:
    if entry.words is None:
        return None
    early, final, failed = entry.words
    return Verdict(
        where.name(early), where.name(final), where.name(failed) if failed else "", entry.undo
    )


class Planner:
    """The entry points' stages become plans, one arena for all of them."""

    def __init__(self, limits: DeviceLimits, residents: dict[str, Place]) -> None:
        self.limits = limits
        self.residents = residents
        self.arena_nbytes = 0
        self.rest_nbytes = 0

    def plan(self, entry: EntryStages, feed: EntryStages | None, fed: tuple[str, ...]) -> EntryPlan:
        """An entry point with its feed."""
        results = Results(self.limits.offset_align)
        at, feed_at = dict(self.residents), dict(self.residents)
        results.take(entry, entry.graph.validations, at)
        if feed is not None:
            results.take(feed, feed.outputs, feed_at)
        records_nbytes = results.nbytes
        results.take(entry, entry.outputs, at)
        plan = self._entry(entry, at)
        return replace(
            plan,
            results_nbytes=results.nbytes,
            records_nbytes=records_nbytes,
            feed=None if feed is None else self._entry(feed, feed_at),
            fed=fed,
        )

    def _entry(self, entry: EntryStages, at: dict[str, Place]) -> EntryPlan:
        offsets, size = place(list(entry.lives), self.limits.offset_align)
        self.arena_nbytes = max(self.arena_nbytes, size)
        inputs = frozenset(i.var.id for i in entry.graph.inputs)
        where = Where(entry, at, offsets, inputs, self.limits.offset_align)
        steps = tuple(where.step(n, s) for n, s in enumerate(entry.stages))
        resting = (p for s in steps for p in s.scratch if p.space == "rest")
        self.rest_nbytes = max([self.rest_nbytes, *(p.offset + p.nbytes for p in resting)])
        return EntryPlan(
            entry.name,
            steps,
            tuple((v.type, where.of(v)) for v in entry.outputs),
            tuple(where.of(v) for v in entry.graph.validations),
            tuple(v.id in entry.late for v in entry.graph.validations),
            _verdict(entry, where),
        )


def _with_word(graph: Graph) -> tuple[Graph, Var]:
    """The graph with the input that tells whether slots from the device held."""
    word = Input(Var(next_id(graph), WORD), OK, Slot())
    return replace(graph, inputs=(*graph.inputs, word)), word.var


def make_plan(
    graphs: Mapping[str, Graph],
    choose: Chooser,
    limits: DeviceLimits,
    *,
    feeds: Mapping[str, Graph] | None = None,
    memory_budget: int | None = None,
    options: str = "",
) -> Plan:
    """Plans the entry points, checks the plan, and names it. `feeds` holds, by entry point, what
    checks slots that come from the device (`feed.feed_of`, after the passes). Raises the typed
    capability errors with their numbers."""
    if not graphs:
        raise CapabilityError("a program needs at least one entry point")
    match_inputs(dict(graphs))
    whole: dict[str, Graph] = {}
    mains: list[EntryStages] = []
    checks: dict[str, EntryStages] = {}
    for name, graph in graphs.items():
        fed = None
        if feeds and name in feeds and is_conditional(graph):
            graph, fed = _with_word(graph)
        whole[name] = graph
        names = {i.var.id: resident_name(name, i) for i in graph.inputs}
        mains.append(plan_entry(name, graph, names, choose, limits, fed=fed))
    for name, feed in (feeds or {}).items():
        names = {i.var.id: slot_name(name, i.name) for i in feed.inputs}
        checks[name] = plan_entry(f"{name}{FEED}", feed, names, choose, limits)
    residents, spaces = _place_residents(whole, [*mains, *checks.values()], limits)
    planner = Planner(limits, {r.name: r.place for r in residents})
    planned = [
        planner.plan(
            e, checks.get(e.name), tuple(i.name for i in fed_inputs(e.graph) if e.name in checks)
        )
        for e in mains
    ]
    if planner.arena_nbytes:
        spaces.sizes["arena"] = planner.arena_nbytes
    if planner.rest_nbytes:
        spaces.sizes["rest"] = planner.rest_nbytes
    results = max(e.results_nbytes for e in planned)
    if results:
        spaces.sizes["results"] = results
    key = plan_key(dict(graphs), limits, planned, options)
    plan = Plan(tuple(planned), tuple(residents), tuple(sorted(spaces.sizes.items())), limits, key)
    check_bindings(plan)
    check_budget(spaces.sizes, limits, memory_budget)
    check_plan(plan, graphs, feeds or {})
    return plan
