"""Plans one entry point: stages in order, lives of values, State updates in place, guards before
writes."""

from __future__ import annotations

from dataclasses import dataclass, field

from poot.errors import CapabilityError, DonationError
from poot.ir.graph import Eqn, Graph, State, TensorType, Var, Weight
from poot.limits import DeviceLimits
from poot.planner.arena import Life
from poot.planner.fewer_operands import fewer_operands
from poot.planner.residents import resident_nbytes
from poot.planner.steps import IN_PLACE, Chooser, Stage, copy_body, regions_of, stage_of, updates_of


@dataclass(slots=True)
class Homes:
    """Where each value lives: a resident's name, or its own name in the arena. An update shares its
    State's home."""

    entry: str
    residents: dict[int, str]
    states: dict[str, Var]
    of: dict[int, str] = field(default_factory=dict[int, str])

    def home(self, v: Var) -> str:
        return self.of.get(v.id) or self.residents.get(v.id) or f"{self.entry}/{v}"


def _last_reads(graph: Graph, regions: list[Eqn]) -> dict[int, int]:
    """Var id -> index of the last region that reads it; outputs are read after all."""
    last: dict[int, int] = {}
    for n, region in enumerate(regions):
        for v in region.ins:
            last[v.id] = n
    for v in (*graph.outputs, *graph.validations):
        last[v.id] = len(regions)
    return last


def _chained(graph: Graph) -> set[int]:
    """Ids of values that may be written over: State inputs, and updates that follow from one by
    updates alone."""
    ok = {i.var.id for i in graph.inputs if isinstance(i.storage, State)}
    for eqn in graph.eqns:
        if eqn.op in IN_PLACE and eqn.ins[0].id in ok:
            ok.add(eqn.out.id)
    return ok


def updatable(graph: Graph) -> set[int]:
    """Ids of bare updates' outs that may be done in place: their x is a State (or its update) that
    nothing reads later."""
    chained = _chained(graph)
    last: dict[int, int] = {}
    for n, eqn in enumerate(graph.eqns):
        for v in eqn.ins:
            last[v.id] = n
    for v in (*graph.outputs, *graph.validations, *(out for _, out in graph.states)):
        last[v.id] = len(graph.eqns)
    found: set[int] = set()
    for n, eqn in enumerate(graph.eqns):
        x_once = eqn.op in IN_PLACE and eqn.ins.count(eqn.ins[0]) == 1
        if x_once and eqn.ins[0].id in chained and last[eqn.ins[0].id] == n:
            found.add(eqn.out.id)
    return found


def _guards_first(regions: list[Eqn], graph: Graph) -> list[Eqn]:
    """The witnesses' cones before everything else. Raises CapabilityError where a witness needs a
    State write."""
    makers = {v.id: n for n, region in enumerate(regions) for v in region.outs}
    cone: set[int] = set()
    stack = [makers[v.id] for v in graph.validations if v.id in makers]
    while stack:
        n = stack.pop()
        if n in cone:
            continue
        cone.add(n)
        if regions[n].attr("updates"):
            raise CapabilityError(
                "a guard depends on a State written in the same step, which can't be undone yet; "
                "guard the index before the write",
                regions[n].loc,
            )
        stack.extend(makers[v.id] for v in regions[n].ins if v.id in makers)
    return [r for n, r in enumerate(regions) if n in cone] + [
        r for n, r in enumerate(regions) if n not in cone
    ]


def _check_donation(graph: Graph, regions: list[Eqn], last: dict[int, int]) -> None:
    for n, region in enumerate(regions):
        for _, at in updates_of(region):
            x = region.ins[at]
            if last[x.id] > n or region.ins.count(x) > 1:
                late = regions[last[x.id]] if last[x.id] < len(regions) else None
                reader = f"the step at {late.loc or late.outs[0]}" if late else "the outputs"
                raise DonationError(
                    f"State {x} {x.type} is updated in place, but {reader} reads its old value "
                    f"later; "
                    "read it before the update, or keep a copy",
                    region.loc,
                )


def _copy_region(source: Var, out: Var) -> Eqn:
    attrs = (("anchor", "none"), ("body", copy_body(source)), ("updates", ()))
    return Eqn("region", (source,), (out,), attrs, "")


def _publish(graph: Graph, regions: list[Eqn], homes: Homes) -> list[Eqn]:
    """Copies for States whose new value was not made in place. All sources are staged before any
    State is written."""
    states = {i.var.id: i for i in graph.inputs if isinstance(i.storage, State)}
    next_id = 1 + max(
        [v.id for r in regions for v in r.outs] + [i.var.id for i in graph.inputs], default=0
    )
    staged: list[Eqn] = []
    final: list[Eqn] = []
    for before, after in graph.states:
        target = states[before.id].name
        if homes.home(after) == target:
            continue
        source = after
        if after.id in homes.residents or homes.home(after) in homes.states:
            source = Var(next_id, after.type)
            next_id += 1
            staged.append(_copy_region(after, source))
        written = Var(next_id, after.type)
        next_id += 1
        homes.of[written.id] = target
        final.append(_copy_region(source, written))
    return staged + final


@dataclass(frozen=True, slots=True)
class EntryStages:
    """One entry point before places are given: stages, homes of values, lives in the arena, how
    many stages guard."""

    name: str
    graph: Graph
    stages: tuple[Stage, ...]
    homes: dict[int, str]
    lives: tuple[Life, ...]
    scratch_names: tuple[tuple[str, ...], ...]
    guards: int


def _is_empty(stage: Stage) -> bool:
    return all(v.type.elems == 0 for v in stage.outs)


def plan_entry(
    name: str, graph: Graph, residents: dict[int, str], choose: Chooser, limits: DeviceLimits
) -> EntryStages:
    """Stages of one entry point. `residents` gives each input var's resident name."""
    in_place = updatable(graph)
    regions = regions_of(graph, lambda e: e.out.id in in_place)
    made = [v.id for r in regions for v in r.outs] + [i.var.id for i in graph.inputs]
    regions = fewer_operands(regions, 1 + max(made, default=0), limits)
    if graph.validations:
        regions = _guards_first(regions, graph)
    last = _last_reads(graph, regions)
    _check_donation(graph, regions, last)
    states = {i.name: i.var for i in graph.inputs if isinstance(i.storage, State)}
    homes = Homes(name, residents, states)
    for region in regions:
        for out, at in updates_of(region):
            homes.of[region.outs[out].id] = homes.home(region.ins[at])
    regions += _publish(graph, regions, homes)
    weights = {i.var.id for i in graph.inputs if isinstance(i.storage, Weight)}
    stages = [stage_of(r, choose, limits, weights) for r in regions]
    witnesses = {v.id for v in graph.validations}
    guards = max(
        (n + 1 for n, r in enumerate(regions) if witnesses & {v.id for v in r.outs}), default=0
    )
    kept = [n for n, s in enumerate(stages) if not _is_empty(s)]
    guards = sum(1 for n in kept if n < guards)
    stages = [stages[n] for n in kept]
    lives, scratch_names = _lives(graph, stages, homes)
    ids = {v.id: homes.home(v) for s in stages for v in (*s.ins, *s.outs)}
    ids |= {v.id: homes.home(v) for v in (*graph.outputs, *graph.validations)}
    return EntryStages(name, graph, tuple(stages), ids, tuple(lives), scratch_names, guards)


def _lives(
    graph: Graph, stages: list[Stage], homes: Homes
) -> tuple[list[Life], tuple[tuple[str, ...], ...]]:
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    nbytes: dict[str, int] = {}
    resident = set(homes.residents.values())
    for n, stage in enumerate(stages):
        for v in (*stage.ins, *stage.outs):
            home = homes.home(v)
            if home in resident:
                continue
            first.setdefault(home, n)
            last[home] = n
            nbytes[home] = resident_nbytes(v.type)
    for v in (*graph.outputs, *graph.validations):
        home = homes.home(v)
        if home not in resident:
            first.setdefault(home, 0)
            last[home] = max(len(stages) - 1, 0)
            nbytes.setdefault(home, resident_nbytes(v.type))
    lives = [Life(h, nbytes[h], first[h], last[h]) for h in first]
    scratch_names: list[tuple[str, ...]] = []
    for n, stage in enumerate(stages):
        names: list[str] = []
        for i, s in enumerate(stage.request.scratch):
            names.append(f"{homes.entry}/scratch{n}.{i}")
            lives.append(Life(names[-1], resident_nbytes(TensorType(s.dtype, (s.elems,))), n, n))
        scratch_names.append(tuple(names))
    return lives, tuple(scratch_names)
