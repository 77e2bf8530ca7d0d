"""Replays a plan with names for contents: each read finds its value, whole. Shares only the plan
with the planner.

It knows nothing of lives, colouring or order: it holds, for each space, which bytes hold which
value now. A value updated in place is another value, so a read of the old one is found. Each entry
point is replayed as a step that holds and, where State is written under a word, as steps that
fail: before the first write, and after writes that are undone. A failed step has to end with every
State as it was.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace

from poot.errors import PlanError
from poot.ir.graph import Const, Graph, Input, Slot, State, Var
from poot.planner.plan import EntryPlan, Place, Plan, Step, Undo, const_name


class Memory:
    """Which value's bytes lie where. A write names bytes; whatever it touches is gone. A copy of a
    value is that value, under another name too."""

    def __init__(self) -> None:
        self.held: dict[str, dict[tuple[int, int], str]] = {}
        self.spans: dict[str, list[tuple[int, int]]] = {}  # the keys of `held`, ascending, apart
        self.same: dict[str, str] = {}

    def write(self, p: Place, value: str) -> None:
        start, stop = p.offset, p.offset + p.nbytes
        space = self.held.setdefault(p.space, {})
        spans = self.spans.setdefault(p.space, [])
        first = bisect_left(spans, (start, start))
        while first and spans[first - 1][1] > start:
            first -= 1
        last = first
        while last < len(spans) and spans[last][0] < stop:
            last += 1
        kept = [a for a in spans[first:last] if a[1] <= start]
        for at in spans[first:last]:
            if at[1] > start:
                del space[at]
        if (start, stop) not in space:
            spans[first:last] = [*kept, (start, stop)]
        space[start, stop] = value

    def read(self, p: Place) -> str | None:
        return self.held.get(p.space, {}).get((p.offset, p.offset + p.nbytes))

    def root(self, name: str) -> str:
        while name in self.same:
            name = self.same[name]
        return name

    def expect(self, p: Place, what: str) -> None:
        found = self.read(p)
        if p.nbytes and (found is None or self.root(found) != self.root(p.name)):
            raise PlanError(
                f"{what} reads {p.name} at {p.space}[{p.offset},{p.offset + p.nbytes}) and finds "
                f"{found or 'nothing whole'}"
            )


@dataclass(frozen=True, slots=True)
class Way:
    """One way that a step may go: the words that are true."""

    what: str
    true: frozenset[str]
    is_held: bool


def _ways(entry: EntryPlan) -> list[Way]:
    verdict = entry.verdict
    if verdict is None:
        return [Way("", frozenset(), True)]
    held = Way("", frozenset((verdict.early, verdict.final)), True)
    failed = frozenset((verdict.failed,)) if verdict.failed else frozenset[str]()
    ways = [held, Way(", where a guard fails at once,", failed, False)]
    if verdict.early != verdict.final:
        late = failed | {verdict.early}
        ways.append(Way(", where a guard fails after a write,", late, False))
    return ways


def _inside(p: Place, sizes: dict[str, int], align: int, what: str) -> None:
    if p.nbytes and not (p.offset >= 0 and p.offset + p.nbytes <= sizes.get(p.space, 0)):
        raise PlanError(
            f"{what}: {p.name} leaves its space {p.space} of {sizes.get(p.space, 0)} bytes"
        )
    if p.offset % align:
        raise PlanError(f"{what}: {p.name} at {p.offset} is not at a multiple of {align}")


def _check_writes(step: Step, what: str) -> None:
    """What a step writes lies apart from what it reads, but where it updates in place."""
    updated = {out: step.ins[i] for out, i in step.request.updates}
    for n, p in enumerate(step.outs):
        own = updated.get(n)
        if own is not None and (own.space, own.offset) != (p.space, p.offset):
            raise PlanError(f"{what} updates {p.name} in place, but not where it lies")
        for other in step.ins:
            overlap = (
                other.space == p.space
                and other.offset < p.offset + p.nbytes
                and p.offset < other.offset + other.nbytes
            )
            if overlap and p.nbytes and other.nbytes and other is not own:
                raise PlanError(f"{what} writes {p.name} over {other.name}, which it reads")


def _check_rest(step: Step, what: str) -> None:
    """Scratch that is at rest between launches, and nothing else, lies in the space for it."""
    for p, s in zip(step.scratch, step.request.scratch, strict=True):
        if (p.space == "rest") != s.at_rest:
            raise PlanError(f"{what}: scratch {p.name} lies in {p.space}, at rest: {s.at_rest}")
    for p in (*step.ins, *step.outs):
        if p.space == "rest":
            raise PlanError(f"{what}: {p.name} lies in the space of what is at rest")


def _is_copy(step: Step) -> bool:
    """Whether a step's out is its in, element for element."""
    eqns = step.request.body.eqns
    if len(eqns) != 1 or eqns[0].op != "reshape" or len(step.outs) != 1:
        return False
    return eqns[0].ins[0].type == eqns[0].out.type


class Replay:
    """One entry point replayed one way."""

    def __init__(self, plan: Plan, entry: EntryPlan, way: Way) -> None:
        self.plan, self.entry, self.way = plan, entry, way
        self.sizes = dict(plan.spaces)
        self.memory = Memory()
        self.before: dict[tuple[int, int], str] = {}  # (step, out) -> the value written over
        for r in plan.residents:
            self.memory.write(r.place, r.name)
        for r in plan.residents:
            self.memory.expect(r.place, "the bind")

    def run(self) -> None:
        undo = self.entry.verdict.undo if self.entry.verdict is not None else ()
        back = {u.restore: u for u in undo}
        for n, step in enumerate(self.entry.steps):
            what = f"step {n} ({step.op}){self.way.what}"
            for p in (*step.ins, *step.outs, *step.scratch):
                _inside(p, self.sizes, self.plan.limits.offset_align, what)
            _check_writes(step, what)
            _check_rest(step, what)
            self._run(step, n, what, back.get(n))

    def _run(self, step: Step, n: int, what: str, undo: Undo | None) -> None:
        condition = step.request.condition
        word = step.ins[condition.ok].name if condition is not None else ""
        if condition is not None:
            self._need_word(word, what)
        is_done = condition is None or word in self.way.true
        if undo is not None and not is_done:
            return
        skipped = condition.outs if condition is not None and not is_done else ()
        for p in step.ins:
            self._expect(p, what)
        for p in step.scratch:
            self.memory.write(p, p.name)
        for out, p in enumerate(step.outs):
            if out not in skipped:
                self._write(step, n, out, p, undo, what)

    def _expect(self, p: Place, what: str) -> None:
        """A read finds its value; of a State on a failed way, what the word left of it."""
        is_state = p.space.split(".")[0] == "states"
        if self.way.is_held or not is_state:
            self.memory.expect(p, what)

    def _need_word(self, word: str, what: str) -> None:
        verdict = self.entry.verdict
        known = () if verdict is None else (verdict.early, verdict.final, verdict.failed)
        if word not in known:
            raise PlanError(f"{what} stands under {word}, which is no verdict of its entry point")

    def _write(self, step: Step, n: int, out: int, p: Place, undo: Undo | None, what: str) -> None:
        held = self.memory.read(p)
        if undo is not None:
            self.memory.write(p, self._restored(step, undo, held, what))
            return
        if held is not None:
            self.before[n, out] = held
        self.memory.write(p, p.name)
        if _is_copy(step):
            self.memory.same[p.name] = step.ins[0].name

    def _restored(self, step: Step, undo: Undo, held: str | None, what: str) -> str:
        """The value that putting rows back gives: what the write found."""
        steps = self.entry.steps
        save, write = steps[undo.save], steps[undo.write]
        at = dict((o, i) for o, i in write.request.updates)[undo.out]
        state = write.ins[at]
        if not undo.save < undo.write < undo.restore or state not in save.ins:
            raise PlanError(f"{what} puts back rows of {state.name} that were not kept before it")
        if [p.name for p in save.outs] != [p.name for p in step.ins[1:3]]:
            raise PlanError(f"{what} puts back other rows than step {undo.save} kept")
        if not {p.name for p in save.ins} <= {p.name for p in write.ins}:
            raise PlanError(f"step {undo.save} keeps other rows than step {undo.write} writes")
        found = self.before.get((undo.write, undo.out))
        is_written = found is not None and held == write.outs[undo.out].name
        if not is_written and found is not None:
            raise PlanError(f"{what} puts back rows of {state.name} and finds {held}")
        return found if found is not None else held or ""

    def end(self, graph: Graph, name: str) -> None:
        """Outputs and records are there; State is what the graph says, or what it was."""
        what = f"entry point {name!r}, at its end{self.way.what or ','}"
        after = {before.id: new for before, new in graph.states}
        inputs = {i.var.id: i for i in graph.inputs}
        given = (*(p for _, p in self.entry.outputs), *self.entry.records)
        for v, p in zip((*graph.outputs, *graph.validations), given, strict=True):
            self.memory.expect(p, what)
            if self.way.is_held:
                self.memory.expect(replace(p, name=_name(self.entry, v, inputs)), what)
        places = {r.name: r.place for r in self.plan.residents}
        for i in graph.inputs:
            if not isinstance(i.storage, State):
                continue
            resident = _resident(self.entry, i)
            value = after.get(i.var.id, i.var) if self.way.is_held else i.var
            if value.type.elems:
                wanted = _name(self.entry, value, inputs)
                self.memory.expect(replace(places[resident], name=wanted), what)


def _resident(entry: EntryPlan, i: Input) -> str:
    """An input's resident name, a Const's by its content; a feed's States are its entry point's
    slots."""
    if isinstance(i.storage, Const):
        return const_name(i)
    main, is_feed, _ = entry.name.partition("$feed")
    is_slot = isinstance(i.storage, Slot) or bool(is_feed)
    return f"{main}:{i.name}" if is_slot else i.name


def _name(entry: EntryPlan, v: Var, inputs: dict[int, Input]) -> str:
    found = inputs.get(v.id)
    return f"{entry.name}/{v}" if found is None else _resident(entry, found)


def check_plan(plan: Plan, graphs: Mapping[str, Graph], feeds: Mapping[str, Graph]) -> None:
    """Raises PlanError where a step reads what isn't there, writes over what it reads, leaves its
    space, or where a failed step leaves a State changed."""
    for entry in plan.entries:
        want = graphs[entry.name]
        if len(entry.outputs) != len(want.outputs):
            raise PlanError(
                f"entry point {entry.name!r} plans {len(entry.outputs)} of {len(want.outputs)} "
                "outputs"
            )
        _check_entry(plan, entry, want)
        if entry.feed is not None:
            _check_entry(plan, entry.feed, feeds[entry.name])


def _check_entry(plan: Plan, entry: EntryPlan, graph: Graph) -> None:
    for way in _ways(entry):
        replay = Replay(plan, entry, way)
        replay.run()
        replay.end(graph, entry.name)
