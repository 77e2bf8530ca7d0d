"""Region eqns: the last step of forming regions. Each launch's eqns become a body of its own.

A body holds the placed eqns of a launch and every deferred one that they need.
Its eqns and inputs stand in an order that only the body decides, so that equal layers have equal
bodies. A launch of more buffers than the device binds falls apart into one region for each placed
eqn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from poot.ir.graph import Eqn, Graph, Input, Slot, Var
from poot.ir.transaction import is_conditional
from poot.ir.walk import results
from poot.passes.cse import key_of
from poot.passes.regions.groups import SOURCE, Grouping
from poot.passes.regions.places import MANY, Places
from poot.passes.regions.table import UPDATES

ANCHORS = ("matmul", "attention", "reduce")
CHIEF = frozenset((*ANCHORS, "selected_attention", *UPDATES))


@dataclass(frozen=True, slots=True)
class _Launch:
    """Positions of the placed eqns that run together."""

    roots: list[int]


class Assembler:
    """Makes the graph of regions. `buffers` is how many operands and results a launch may have."""

    def __init__(self, graph: Graph, grouping: Grouping, places: Places, buffers: int) -> None:
        self.graph = graph
        self.grouping = grouping
        self.places = places
        self.buffers = buffers
        self.at = {v.id: p for p, eqn in enumerate(graph.eqns) for v in eqn.outs}
        self.slots = {
            i.var.id: Slot("user", i.storage.range)
            for i in graph.inputs
            if isinstance(i.storage, Slot) and i.storage.range
        }
        self.launch_of: dict[int, int] = {}  # position of a placed eqn -> index of its launch
        self.next_id = 1 + max(
            [v.id for e in graph.eqns for v in e.outs] + [i.var.id for i in graph.inputs], default=0
        )
        self.words = int(is_conditional(graph))  # a launch that writes State reads the step's word
        self.read_outside: set[int] = set()
        self.exploded = 0
        self.bodies: dict[object, Graph] = {}
        self.to_cut: set[int] = set()

    def run(self) -> tuple[Eqn, ...]:
        """The region eqns, in an order in which each value is made before it is read."""
        launches = self._launches()
        self._find_outputs()
        regions: list[Eqn] = []
        for launch in launches:
            regions.extend(self._regions(launch))
        return tuple(regions)

    def _launches(self) -> list[_Launch]:
        """Launches in order: of eqns that only inputs decide, then the groups by number."""
        sources = self._source_launches()
        groups: dict[int, _Launch] = {}
        for position, number in enumerate(self.places.placed):
            if number is not None and number >= 0:
                groups.setdefault(number, _Launch([])).roots.append(position)
        launches = sources + [groups[n] for n in sorted(groups)]
        for index, launch in enumerate(launches):
            for position in launch.roots:
                self.launch_of[position] = index
        return launches

    def _source_launches(self) -> list[_Launch]:
        """Stored eqns that only inputs decide: those of as many elements share a launch where none
        of them waits for it, or for a later one."""
        launches: list[_Launch] = []
        after: dict[int, int] = {}  # value id -> index of the last of these launches it needs
        open_for: dict[int, int] = {}  # elements -> the newest launch of so many
        for position, eqn in enumerate(self.graph.eqns):
            if self.grouping.home[position] != SOURCE:
                continue
            need = max((after.get(v.id, -1) for v in eqn.ins), default=-1)
            if self.places.placed[position] is not None:
                elems = eqn.outs[0].type.elems
                index = open_for.get(elems, -1)
                if index <= need or len(launches[index].roots) >= self.buffers // 2:
                    index = open_for[elems] = len(launches)
                    launches.append(_Launch([]))
                launches[index].roots.append(position)
                need = index
            after.update((v.id, need) for v in eqn.outs)
        return launches

    def _find_outputs(self) -> None:
        """Which values a launch other than their own reads, through deferred eqns or not."""
        homes: dict[int, int] = {}  # deferred position -> the one launch that evaluates it, or MANY
        self.read_outside |= {v.id for v in results(self.graph)}
        for position in range(len(self.graph.eqns) - 1, -1, -1):
            launch = self.launch_of.get(position, homes.get(position, MANY))
            for v in self.graph.eqns[position].ins:
                maker = self.at.get(v.id)
                if maker is None:
                    continue
                if maker in self.launch_of:
                    if self.launch_of[maker] != launch:
                        self.read_outside.add(v.id)
                else:
                    homes[maker] = launch if homes.get(maker, launch) == launch else MANY

    def _cone(self, roots: list[int]) -> list[int]:
        """The roots and the deferred eqns that they need, each after what it reads: an order that
        depends on how they hang together, and not on where else in the program they are read."""
        inside = set(roots)
        done: dict[int, None] = {}
        stack = [(position, False) for position in reversed(roots)]
        while stack:
            position, is_ready = stack.pop()
            if position in done:
                continue
            if is_ready:
                done[position] = None
                continue
            stack.append((position, True))
            for v in reversed(self.graph.eqns[position].ins):
                maker = self.at.get(v.id)
                if maker is not None and (maker in inside or maker not in self.launch_of):
                    stack.append((maker, False))
        return list(done)

    def _regions(self, launch: _Launch) -> list[Eqn]:
        """One region, or one for each root where its buffers are too many."""
        first = self.graph.eqns[launch.roots[0]]
        if first.op == "scatter_update" and launch.roots[0] not in self.grouping.in_place:
            return self._copy_and_scatter(launch.roots[0], first)
        region = self._region(launch.roots, self._outs(launch.roots, self.read_outside))
        if self._fits(region, launch.roots):
            return [region]
        inside = {v.id for p in self._cone(launch.roots) for v in self.graph.eqns[p].ins}
        self.exploded += len(launch.roots) > 1
        regions: list[Eqn] = []
        for root in launch.roots:
            region = self._region([root], self._outs([root], self.read_outside | inside))
            regions.append(region)
            if not self._fits(region, [root]):
                self._cut(root)
        return regions

    def _fits(self, region: Eqn, roots: list[int]) -> bool:
        updates = sum(p in self.grouping.in_place for p in roots)
        words = self.words if updates else 0
        return len(region.ins) + len(region.outs) - updates + words <= self.buffers

    def _cut(self, root: int) -> None:
        """Books the deferred eqn that stands for most buffers of root's launch, to be stored."""
        reads: dict[int, frozenset[int]] = {}
        for position in self._cone([root])[:-1]:
            eqn = self.graph.eqns[position]
            found = [reads.get(self.at.get(v.id, -1), frozenset((v.id,))) for v in eqn.ins]
            reads[position] = frozenset[int]().union(*found)
        widest = max(reads, key=lambda p: len(reads[p]), default=None)
        if widest is not None and len(reads[widest]) > 1:
            self.to_cut.add(widest)

    def _copy_and_scatter(self, position: int, eqn: Eqn) -> list[Eqn]:
        """A scatter_update of a value that must stay: a copy, and the update of the copy in
        place."""
        x = eqn.ins[0]
        copied = Var(self.next_id, x.type)
        self.next_id += 1
        body = Graph(
            (Input(Var(0, x.type), "i0", Slot()),),
            (Eqn("reshape", (Var(0, x.type),), (Var(1, x.type),), (("shape", x.type.shape),)),),
            (Var(1, x.type),),
        )
        attrs = (("anchor", "none"), ("body", body), ("updates", ()))
        copy = Eqn("region", (x,), (copied,), attrs, eqn.loc)
        region = self._region([position], list(eqn.outs), {x.id: copied})
        at = region.ins.index(copied)
        attrs = (*((k, v) for k, v in region.attrs if k != "updates"), ("updates", ((0, at),)))
        return [copy, replace(region, attrs=attrs)]

    def _outs(self, roots: list[int], wanted: set[int]) -> list[Var]:
        return [v for p in roots for v in self.graph.eqns[p].outs if v.id in wanted]

    def _region(
        self, roots: list[int], outs: list[Var], renamed: dict[int, Var] | None = None
    ) -> Eqn:
        """The region of those roots; `renamed` gives other values for what the roots update, and
        for that operand alone: what they write may be made of the same value."""
        eqns = [self.graph.eqns[p] for p in self._cone(roots)]
        if renamed:
            eqns = [
                replace(e, ins=(renamed.get(e.ins[0].id, e.ins[0]), *e.ins[1:]))
                if n in roots
                else e
                for n, e in zip(self._cone(roots), eqns, strict=True)
            ]
        if len(eqns) == 1 and eqns[0].op == "region":
            return eqns[0]
        bound = {v.id for e in eqns for v in e.outs}
        reads = list({v.id: v for e in eqns for v in e.ins if v.id not in bound}.values())
        attrs = (
            ("anchor", _anchor(eqns)),
            ("body", self._body(eqns, reads, outs)),
            ("updates", self._updates(roots, outs, reads)),
        )
        return Eqn("region", tuple(reads), tuple(outs), attrs, _loc(eqns))

    def _body(self, eqns: list[Eqn], reads: list[Var], outs: list[Var]) -> Graph:
        """The eqns over inputs of their own. Equal bodies of equal lines are one Graph, so that
        what later steps find out of it they find out once for all layers."""
        numbers = {v.id: n for n, v in enumerate(reads)}
        made = [v.id for e in eqns for v in e.outs]
        numbers.update(zip(made, range(len(reads), len(reads) + len(made)), strict=True))
        inputs = [(v.type.dtype, v.type.shape, self.slots.get(v.id)) for v in reads]
        lines = [(e.op, tuple([numbers[v.id] for v in e.ins]), key_of(e)[2], e.loc) for e in eqns]
        key = (tuple(inputs), tuple(lines), tuple([numbers[v.id] for v in outs]))
        known = self.bodies.get(key)
        if known is None:
            known = self.bodies[key] = self._new_body(eqns, reads, outs)
        return known

    def _new_body(self, eqns: list[Eqn], reads: list[Var], outs: list[Var]) -> Graph:
        ids = {v.id: Var(n, v.type) for n, v in enumerate(reads)}
        inputs = tuple(
            Input(ids[v.id], f"i{n}", self.slots.get(v.id, Slot())) for n, v in enumerate(reads)
        )
        inner: list[Eqn] = []
        for e in eqns:
            fresh = tuple([Var(len(ids) + n, v.type) for n, v in enumerate(e.outs)])
            ins = tuple([ids[v.id] for v in e.ins])
            ids.update([(v.id, f) for v, f in zip(e.outs, fresh, strict=True)])
            inner.append(Eqn(e.op, ins, fresh, e.attrs, e.loc))
        return Graph(inputs, tuple(inner), tuple(ids[v.id] for v in outs))

    def _updates(
        self, roots: list[int], outs: list[Var], reads: list[Var]
    ) -> tuple[tuple[int, int], ...]:
        pairs: list[tuple[int, int]] = []
        for position in roots:
            eqn = self.graph.eqns[position]
            if position in self.grouping.in_place and eqn.out in outs:
                pairs.append((outs.index(eqn.out), reads.index(eqn.ins[0])))
        return tuple(sorted(pairs))


def _anchor(eqns: list[Eqn]) -> str:
    """The anchor of a body: a reduction counts only where nothing weightier stands there."""
    ops = {"attention" if e.op == "selected_attention" else e.op for e in eqns}
    return next((a for a in ANCHORS if a in ops), "none")


def _loc(eqns: list[Eqn]) -> str:
    """The line of the anchor, or of an update, or of the last eqn that has one."""
    chief = [e.loc for e in eqns if e.loc and e.op in CHIEF]
    return (chief or [e.loc for e in reversed(eqns) if e.loc] or [""])[0]
