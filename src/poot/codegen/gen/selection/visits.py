"""Which keys a row visits: its candidates, its list, and the slots that stand for both in a row.

Slots count what a row visits without gaps: slot j * ratio + i is key i of the j-th listed block;
behind the list come the keys that are always visited.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.attention.parts import Parts
from poot.codegen.gen.index import Coords, Index
from poot.codegen.gen.job import Job
from poot.codegen.gen.row_reduce import Team, across_lanes
from poot.codegen.kir.build import I32, Val
from poot.ir.attrs import int_attr
from poot.ir.graph import Eqn, Var
from poot.ir.rules.selected import Always, always_of

_MOST = (1 << 31) - 2


def always(eqn: Eqn) -> Always:
    """What a row visits besides its list."""
    return always_of(eqn.attr("always"))


def candidates(job: Job, eqn: Eqn, positions: Var, row: Coords) -> Val:
    """C of the row at (b, r), i32, not negative."""
    k, before = job.k, 1 - always(eqn).last
    place = job.pull.value(positions, row)
    if before > 0:
        seen = k.op("min", place, _MOST) + before
    else:  # no position is too small for the difference
        seen = k.op("max", place, 0) + before if before else place
    return k.op("max", seen, 0) // int_attr(eqn, "ratio")


def limit_of(job: Job, parts: Parts, b: Index, r: Index) -> Val:
    """Keys that a row may visit come before this: its position's next, the length, Lk."""
    k = job.k
    place = job.pull.value(parts.at["positions"], (b, r))
    limit = k.op("min", k.op("max", place, -1), parts.keys - 1) + 1
    if "len" in parts.at:
        limit = k.op("min", limit, k.op("max", job.pull.value(parts.at["len"], (b,)), 0))
    return limit


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of one list of blocks at one query row. What decides them lies in workgroup memory
    ("visits": blocks listed, where the keys that are always visited begin, the row's limit), so
    that no register holds it all along."""

    job: Job
    parts: Parts
    list: Coords

    @property
    def listed(self) -> Val:
        return self.job.k.load("visits", 0)

    @property
    def start(self) -> Val:
        return self.job.k.load("visits", 1)

    @property
    def limit(self) -> Val:
        return self.job.k.load("visits", 2)

    @property
    def ratio(self) -> int:
        return int_attr(self.parts.eqn, "ratio")

    @property
    def reach(self) -> int:
        """Keys besides the list's."""
        return always(self.parts.eqn).reach(self.ratio)

    @property
    def most(self) -> int:
        """How many slots there are at the most."""
        return self.parts.at["ids"].type.shape[3] * self.ratio + self.reach

    @property
    def count(self) -> Val:
        k = self.job.k
        rest = k.op("min", k.op("max", self.limit - self.start, 0), self.reach)
        return k.op("min", self.listed * self.ratio + rest, self.most)

    def mark(self, slot: Val) -> Val:
        """One list, one row."""
        return self.job.k.lit(1, I32)

    def key(self, slot: Val) -> Val:
        """The key of a slot below `count`, or -1 where the row does not visit it."""
        k, ids = self.job.k, self.parts.at["ids"]
        of_list, start, limit = self.listed * self.ratio, self.start, self.limit
        place = slot // self.ratio
        at = self.job.indexer.clamp(place, ids.type.shape[3])
        first = self.job.pull.value(ids, (*self.list, at)) * self.ratio
        own = first + (slot - place * self.ratio)
        key = k.select(slot < of_list, own, start + (slot - of_list))
        return k.select((key >= 0) & (key < limit), key, k.lit(-1, I32))


def list_head(parts: Parts, kv: Index, head: Index) -> Index:
    """Which of the Hs lists is that of a query head, and of its key head."""
    lists = parts.at["ids"].type.shape[1]
    if lists == 1:
        return Index()
    return head if lists == parts.heads else kv


def slots_of(job: Job, parts: Parts, b: Index, head: Index, r: Index, lanes: int) -> Slots:
    """The slots of a row's list; `head` is the list's own. All lanes of the group look for the
    list's end together: control is uniform."""
    k, ids = job.k, parts.at["ids"]
    most = ids.type.shape[3]
    end = k.var(k.lit(most, I32), name="end")
    with k.for_(k.lane(), most, lanes, name="i") as i:
        id_ = job.pull.value(ids, (b, head, r, job.indexer.atom(i, most)))
        k.set(end, k.op("min", end, k.select(id_ < 0, i, k.lit(most, I32))))
    team = Team.of(k.lane(), lanes, 1, True)
    (listed,) = across_lanes(job, team, "ends", [k.copy(end)], lambda x, y: k.op("min", x, y))
    ratio = int_attr(parts.eqn, "ratio")
    own = candidates(job, parts.eqn, parts.at["positions"], (b, r))
    start = k.op("min", own, -(-parts.keys // ratio)) * ratio
    limit = limit_of(job, parts, b, r)
    k.shared("visits", "i32", 3)
    with k.if_(k.lane().eq(0)):
        for n, value in enumerate((listed, start, limit)):
            k.store("visits", n, value)
    k.barrier()
    return Slots(job, parts, (b, head, r))
