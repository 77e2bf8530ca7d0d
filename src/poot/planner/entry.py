"""Plans one entry point: stages in order, lives of values, State updates in place, and the words
under which State is written."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from poot.errors import DonationError, PlanError
from poot.ir.graph import Eqn, Graph, State, TensorType, Var, Weight
from poot.ir.transaction import is_conditional, is_record
from poot.ir.walk import next_id, producers
from poot.limits import DeviceLimits
from poot.planner.arena import Life
from poot.planner.fewer_operands import fewer_operands
from poot.planner.order import phases_of
from poot.planner.plan import Undo
from poot.planner.residents import resident_nbytes
from poot.planner.steps import IN_PLACE, Chooser, Stage, Stager, regions_of, updates_of
from poot.planner.transaction import Transaction, Words, Work
from poot.planner.words import Ids, copy_region


@dataclass(slots=True)
class Homes:
    """Where each value lives: a resident's name, or its own name. An update shares its x's home."""

    entry: str
    residents: dict[int, str]
    of: dict[int, str] = field(default_factory=dict[int, str])

    def home(self, v: Var) -> str:
        return self.of.get(v.id) or self.residents.get(v.id) or f"{self.entry}/{v}"


def _written(graph: Graph) -> dict[int, str]:
    """Var id -> name of the State inputs that a step gives a new value."""
    paired = {before.id for before, after in graph.states if before.id != after.id}
    return {
        i.var.id: i.name
        for i in graph.inputs
        if isinstance(i.storage, State) and i.var.id in paired
    }


def updatable(graph: Graph) -> set[int]:
    """Ids of bare updates' outs that may be done in place: their x is a State that the step gives a
    new value (or its update), and nothing reads that later."""
    chained = set(_written(graph))
    for eqn in graph.eqns:
        if eqn.op in IN_PLACE and eqn.ins[0].id in chained:
            chained.add(eqn.out.id)
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


def _lines(graph: Graph, regions: list[Eqn]) -> dict[int, Var]:
    """For each value of a State's line of updates in place, the State itself among them, the
    line's last."""
    states = _written(graph)
    first = {i.var.id: i.var for i in graph.inputs if i.var.id in states}
    last = dict(first)
    for region in regions:
        for out, at in updates_of(region):
            x = region.ins[at]
            if x.id in first:
                first[region.outs[out].id] = first[x.id]
                last[first[x.id].id] = region.outs[out]
    return {id: last[state.id] for id, state in first.items()}


def _refuse_copied(regions: list[Eqn], graph: Graph, homes: Homes, line: dict[int, Var]) -> None:
    """No State is copied silently: rows written into a copy of one, because its old value is needed
    later, are a DonationError naming who needs it. Of a scatter_update any copy is; of a
    dynamic_update_slice, one that is the State's new value."""
    makers = {v.id: r for r in regions for v in r.outs}
    for region in regions:
        for _, at in updates_of(region):
            copy = makers.get(region.ins[at].id)
            if copy is not None and len(copy.ins) == 1 and copy.ins[0].id in line:
                late = [r for r in regions if r is not copy and r is not region]
                raise _read_later(copy.ins[0], region.loc, late, graph)
    for before, after in graph.states:
        region = makers.get(after.id)
        if region is None or homes.home(after) == homes.residents.get(before.id):
            continue
        written = _copied_update(region, after)
        late = [r for r in regions if r is not region]
        if written is None or written[0].id not in line:
            continue
        state, eqn = written
        if any(state in r.ins for r in late) or any(v.id == state.id for v in graph.outputs):
            raise _read_later(state, eqn.loc or region.loc, late, graph)


def _copied_update(region: Eqn, out: Var) -> tuple[Var, Eqn] | None:
    """(what the region makes a copy of, the eqn that writes a part of the copy), where `out` is
    that and nothing else."""
    body = region.attr("body")
    assert isinstance(body, Graph)
    made = producers(body).get(body.outputs[region.outs.index(out)].id)
    if made is None or made.op not in IN_PLACE:
        return None
    places = [n for n, i in enumerate(body.inputs) if i.var.id == made.ins[0].id]
    return (region.ins[places[0]], made) if places else None


def _read_later(state: Var, loc: str, late: list[Eqn], graph: Graph) -> DonationError:
    readers = [r for r in late if state in r.ins]
    is_out = any(v.id == state.id for v in graph.outputs)
    who = "an output"
    if readers and not is_out:
        last = readers[-1]
        who = f"the step at {last.loc}" if last.loc else f"the step of {last.outs[0]}"
    return DonationError(
        f"State {state} {state.type} is updated in place, but {who} reads its old value later; "
        "read it before the update, or keep a copy",
        loc,
    )


def _publish(graph: Graph, regions: list[Eqn], homes: Homes, ids: Ids) -> tuple[list[Eqn], ...]:
    """(staged, final): copies for States whose new value was not made in place. All sources are
    staged before any State is written."""
    states = _written(graph)
    lines = {homes.residents[id] for id in states}
    staged: list[Eqn] = []
    final: list[Eqn] = []
    for before, after in graph.states:
        target = states.get(before.id)
        if target is None or homes.home(after) == homes.residents[before.id]:
            continue
        source = after
        if after.id in homes.residents or homes.home(after) in lines:
            source = ids.var(after.type)
            staged.append(copy_region(after, source))
        written = ids.var(after.type)
        homes.of[written.id] = homes.residents[before.id]
        final.append(copy_region(source, written))
    return staged, final


@dataclass(frozen=True, slots=True)
class EntryStages:
    """One entry point before places are given: stages, homes of values, lives in the arena. Outputs
    and witnesses lie in "results"; `late` holds the ids of witnesses that wait for a State
    write."""

    name: str
    graph: Graph
    stages: tuple[Stage, ...]
    homes: dict[int, str]
    lives: tuple[Life, ...]
    scratch_names: tuple[tuple[str, ...], ...]
    outputs: tuple[Var, ...]
    late: frozenset[int]
    words: tuple[Var, Var, Var | None] | None
    undo: tuple[Undo, ...]


def _is_empty(stage: Stage) -> bool:
    return all(v.type.elems == 0 for v in stage.outs)


def _export(
    graph: Graph, regions: list[Eqn], homes: Homes, ids: Ids
) -> tuple[list[Eqn], tuple[Var, ...]]:
    """The regions with a copy for each output that is an input or lies in a State, and the outputs:
    each lies by itself, once."""
    resident = set(homes.residents.values())
    made: dict[int, Var] = {}
    copies: list[Eqn] = []
    for v in graph.outputs:
        if v.id in made:
            continue
        made[v.id] = v
        if homes.home(v) in resident:
            made[v.id] = ids.var(v.type)
            copies.append(copy_region(v, made[v.id]))
    return [*regions, *copies], tuple(made[v.id] for v in graph.outputs)


def _first_free(graph: Graph, regions: list[Eqn]) -> int:
    return max([next_id(graph), *(v.id + 1 for r in regions for v in r.outs)])


def plan_entry(
    name: str,
    graph: Graph,
    residents: dict[int, str],
    choose: Chooser,
    limits: DeviceLimits,
    *,
    fed: Var | None = None,
) -> EntryStages:
    """Stages of one entry point. `residents` gives each input var's resident name; `fed` is the
    input that says whether slots from the device held, where that decides about State.

    Raises DonationError where a State can't be updated in place, PlanError where a witness is no
    record."""
    for v in graph.validations:
        if not is_record(v):
            raise PlanError(f"validation {v} is {v.type}: a plan needs records of it (passes)")
    in_place = updatable(graph)
    regions = regions_of(graph, lambda e: e.out.id in in_place)
    words = int(is_conditional(graph))
    regions = fewer_operands(regions, _first_free(graph, regions), limits, words)
    ids, homes = Ids(_first_free(graph, regions)), Homes(name, residents)
    for region in regions:
        for out, at in updates_of(region):
            homes.of[region.outs[out].id] = homes.home(region.ins[at])
    weights = {i.var.id for i in graph.inputs if isinstance(i.storage, Weight)}
    line = _lines(graph, regions)
    _refuse_copied(regions, graph, homes, line)
    regions, outputs = _export(graph, regions, homes, ids)
    staged, final = _publish(graph, regions, homes, ids)
    writers = set(line) - set(residents)
    phases = phases_of([*regions, *staged], graph.validations, writers)
    transaction = Transaction(phases, writers, graph.validations, fed, ids)
    works, words = transaction.run(final, line)
    for work in works:
        for out, at in updates_of(work.region):
            homes.of[work.region.outs[out].id] = homes.home(work.region.ins[at])
    stager = Stager(choose, limits, weights)
    made = [(w, stager.stage(w.region, w.ok, w.outs)) for w in works]
    kept = [(w, s) for w, s in made if not _is_empty(s)]
    stages = [s for _, s in kept]
    results = {homes.home(v) for v in (*outputs, *graph.validations)}
    lives, scratch_names = _lives(stages, homes, results)
    ids_of = {v.id: homes.home(v) for s in stages for v in (*s.ins, *s.outs)}
    # A word that no step reads, since every State written under it is empty, has a name too.
    named = () if words is None else (words.early, words.final)
    ids_of |= {v.id: homes.home(v) for v in (*outputs, *graph.validations, *named)}
    return EntryStages(
        name,
        replace(graph, outputs=outputs),
        tuple(stages),
        ids_of,
        tuple(lives),
        scratch_names,
        outputs,
        phases.late_witnesses,
        None if words is None else (words.early, words.final, words.failed),
        _undo_steps([w for w, _ in kept], words),
    )


def _undo_steps(works: list[Work], words: Words | None) -> tuple[Undo, ...]:
    if words is None:
        return ()
    at = {id(work): n for n, work in enumerate(works)}
    return tuple(
        Undo(at[id(save)], at[id(write)], out, at[id(back)])
        for save, write, out, back in words.undo
    )


def _lives(
    stages: list[Stage], homes: Homes, results: set[str]
) -> tuple[list[Life], tuple[tuple[str, ...], ...]]:
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    nbytes: dict[str, int] = {}
    elsewhere = set(homes.residents.values()) | results
    for n, stage in enumerate(stages):
        for v in (*stage.ins, *stage.outs):
            home = homes.home(v)
            if home in elsewhere:
                continue
            first.setdefault(home, n)
            last[home] = n
            nbytes[home] = resident_nbytes(v.type)
    lives = [Life(h, nbytes[h], first[h], last[h]) for h in first]
    scratch_names: list[tuple[str, ...]] = []
    for n, stage in enumerate(stages):
        names: list[str] = []
        for i, s in enumerate(stage.request.scratch):
            names.append(f"{homes.entry}/scratch{n}.{i}")
            if not s.at_rest:
                lives.append(
                    Life(names[-1], resident_nbytes(TensorType(s.dtype, (s.elems,))), n, n)
                )
        scratch_names.append(tuple(names))
    return lives, tuple(scratch_names)
