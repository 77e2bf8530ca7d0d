"""Where each pullable eqn is evaluated: the second, backward step of forming regions.

An eqn is placed in its group, whose launch computes and, if others read it, stores it; or it is
deferred: each launch that reads it computes it again at its loads. Deferred is what a single launch
reads at a bearable cost, what costs nothing (moves, casts, constants), and what is made of little
(a mask of positions). An eqn at the end of an anchor's group is taken out of it again where that
stores fewer bytes: a squared residual is not stored beside the residual.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.ir.graph import Eqn, Graph, Var
from poot.ir.walk import results
from poot.passes.regions.groups import SOURCE, Grouping
from poot.passes.regions.table import (
    NO_ROOM,
    OWN_ROOM,
    cost,
    is_mask,
    is_pullable,
    operand_rooms,
    reads_apart,
)

MANY = -2  # evaluated in several launches
_MOST_READS = 8  # times one element may be evaluated in a launch
_MOST_IN_LAUNCH = 160
_FEW_ELEMS = 64
_ROWS_ELEMS = 1 << 15


def source_place(position: int) -> int:
    """The launch of a stored eqn that only inputs decide. It runs before all groups."""
    return -10 - position


@dataclass(frozen=True, slots=True)
class Places:
    """By position: the launch of a placed eqn, or None; of a deferred one its launch, or MANY."""

    placed: list[int | None]
    dest: list[int]


class _Reading:
    """How the launches that read an eqn evaluate it: which, the cost they still bear, how often at
    its own index and at others."""

    def __init__(self) -> None:
        self.dest: int | None = None
        self.room = OWN_ROOM
        self.reads = 0
        self.apart_in: dict[object, int] = {}
        self.only_masks = True
        self.homes = set[int]()

    @property
    def times(self) -> int:
        """How often one launch evaluates an element at most."""
        return self.reads + max(self.apart_in.values(), default=0)

    def add_dest(self, dest: int) -> None:
        self.dest = dest if self.dest in (None, dest) else MANY


class Placer:
    """The backward walk."""

    def __init__(self, graph: Graph, grouping: Grouping) -> None:
        self.graph = graph
        self.grouping = grouping
        n = len(graph.eqns)
        self.out = Places([None] * n, [MANY] * n)
        self.room = [OWN_ROOM] * n
        self.reads = [1] * n
        self.masks = [False] * n
        self.results = {v.id for v in results(graph)}
        self.stored: set[int] = set()
        self.in_launch: dict[int, int] = {}
        self.at = {v.id: p for p, eqn in enumerate(graph.eqns) for v in eqn.outs}
        self.readers: dict[int, list[tuple[int, int]]] = {}
        for position, eqn in enumerate(graph.eqns):
            for operand, v in enumerate(eqn.ins):
                self.readers.setdefault(v.id, []).append((position, operand))
        self.footprint = _footprints(graph)

    def run(self) -> Places:
        """The place of every eqn."""
        for position in range(len(self.graph.eqns) - 1, -1, -1):
            eqn, home = self.graph.eqns[position], self.grouping.home[position]
            if not is_pullable(eqn) or position in self.grouping.in_place:
                self._place(position, home)
                continue
            reading = self._reading(eqn)
            if self._stays(position, eqn, home, reading):
                self._place(position, source_place(position) if home == SOURCE else home)
            else:
                self._defer(position, eqn, reading)
        return self.out

    def _place(self, position: int, launch: int) -> None:
        self.out.placed[position] = launch
        self.in_launch[launch] = self.in_launch.get(launch, 0) + 1
        self._mark_stored(position, launch)

    def _mark_stored(self, position: int, launch: int) -> None:
        """Books that operands of another launch are stored for this eqn to read."""
        for v in self.graph.eqns[position].ins:
            at = self.at.get(v.id)
            if at is not None and self.grouping.home[at] != launch:
                self.stored.add(v.id)

    def _defer(self, position: int, eqn: Eqn, reading: _Reading) -> None:
        dest = MANY if reading.dest is None else reading.dest
        self.out.dest[position] = dest
        self.room[position] = reading.room - cost(eqn)
        self.reads[position] = reading.times
        self.masks[position] = reading.only_masks
        if dest != MANY:
            self.in_launch[dest] = self.in_launch.get(dest, 0) + 1
        self._mark_stored(position, dest)

    def _reading(self, eqn: Eqn) -> _Reading:
        """What the readers of eqn, all decided, ask of it."""
        got = _Reading()
        for v in eqn.outs:
            for position, operand in self.readers.get(v.id, []):
                self._read(got, position, operand)
        return got

    def _read(self, got: _Reading, position: int, operand: int) -> None:
        reader, launch = self.graph.eqns[position], self.out.placed[position]
        dest = launch if launch is not None else self.out.dest[position]
        got.add_dest(dest)
        got.homes.add(dest)
        if is_pullable(reader) and position not in self.grouping.in_place:
            room = OWN_ROOM if launch is not None else self.room[position]
            times = 1 if launch is not None else self.reads[position]
            apart = reads_apart(reader)
            masks = launch is None and self.masks[position]
        else:
            room, times, apart = operand_rooms(reader)[operand], 1, 1
            masks = is_mask(reader, operand)
        got.room = min(got.room, room)
        got.only_masks = got.only_masks and masks
        if apart:
            key = dest if dest != MANY else ("many", position)
            got.apart_in[key] = got.apart_in.get(key, 0) + times * apart
        else:
            got.reads = max(got.reads, times)

    def _stays(self, position: int, eqn: Eqn, home: int, reading: _Reading) -> bool:
        """Whether eqn is placed in its group, not deferred to its readers."""
        if position in self.grouping.cut or any(v.id in self.results for v in eqn.outs):
            return True
        if home != SOURCE and self.grouping.groups[home].anchor != "none":
            if home in reading.homes:
                return True
            if not self._saves_bytes(eqn, home):
                return True
        return self._is_widened_once(eqn, home, reading) or not self._may_defer(eqn, reading)

    def _is_widened_once(self, eqn: Eqn, home: int, reading: _Reading) -> bool:
        """Whether eqn widens a few gathered rows for several launches: stored wide, they are to
        those launches what other launches get from the ones before them, and kernels are shared."""
        if eqn.op != "cast" or reading.dest != MANY:
            return False
        x, out = eqn.ins[0], eqn.outs[0]
        at = self.at.get(x.id)
        if at is None or self.graph.eqns[at].op != "gather" or self.grouping.home[at] != home:
            return False
        return out.type.nbytes > x.type.nbytes and out.type.elems <= _ROWS_ELEMS

    def _saves_bytes(self, eqn: Eqn, home: int) -> bool:
        """Whether storing eqn's operands in its place stores fewer bytes."""
        more = sum(
            v.type.nbytes
            for v in dict.fromkeys(eqn.ins)
            if v.id not in self.stored
            and v.id in self.at
            and self.grouping.home[self.at[v.id]] == home
        )
        return more < sum(v.type.nbytes for v in eqn.outs)

    def _may_defer(self, eqn: Eqn, reading: _Reading) -> bool:
        own = cost(eqn)
        if reading.room == NO_ROOM or own > reading.room:
            return False
        if reading.times > _MOST_READS and own > 0:
            return False
        for v in eqn.ins:  # an old State is read before the group that writes over it runs
            writer = self.grouping.updated.get(v.id)
            late = reading.dest == MANY or (
                reading.dest is not None and reading.dest >= (writer or 0)
            )
            if writer is not None and late:
                return False
        if reading.dest != MANY:
            return self.in_launch.get(reading.dest or 0, 0) < _MOST_IN_LAUNCH
        return own == 0 or reading.only_masks or self._is_made_of_little(eqn, own)

    def _is_made_of_little(self, eqn: Eqn, own: int) -> bool:
        """Whether a cheap eqn is few elements, or many computed from few."""
        elems = eqn.outs[0].type.elems
        return own <= 1 and (elems <= _FEW_ELEMS or 4 * self.footprint[eqn.outs[0].id] <= elems)


def _footprints(graph: Graph) -> dict[int, int]:
    """For each value, how many elements of inputs and of anchors' results it is made of at most."""
    found = {i.var.id: i.var.type.elems for i in graph.inputs}
    for eqn in graph.eqns:
        made_of = sum(found[v.id] for v in _unique(eqn.ins))
        for v in eqn.outs:
            found[v.id] = min(v.type.elems, made_of) if is_pullable(eqn) else v.type.elems
    return found


def _unique(ins: tuple[Var, ...]) -> tuple[Var, ...]:
    return tuple(dict.fromkeys(ins))
