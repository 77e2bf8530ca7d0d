"""Which tiles a workgroup takes: every subgroup computes its group's share, with no barrier.

Tiles cost one each, and starting and ending a unit costs `start_cost` more. Where all rows are as
long, `spread` groups take each unit and deal its tiles in turn. Else each group takes an equal
share of the total cost, a run of tiles: the unit that it only begins first, so that its partial is
out early, then whole units, then the unit that it ends. A group writes one partial at most and
merges one unit at most; the group that ends a unit merges it, and waits for groups of lower number
alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.attention.grouped.listed import Visit
from poot.codegen.gen.attention.grouped.shape import WARP
from poot.codegen.gen.attention.grouped.team import Team, quotient, remainder
from poot.codegen.kir.build import Val

_BEGIN, _WHOLE, _LAST = 0, 1, 2
_FAR = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of tiles of one unit, in mutable registers: batch row, key head, first tile, end, tiles
    of the unit, keys of the row, the unit's cost coordinate, and where in its order the group is.
    Of listed blocks, `visit` says what the unit's slots stand for.
    """

    row: Val
    head: Val
    first: Val
    end: Val
    tiles: Val
    length: Val
    cost: Val
    phase: Val
    visit: Visit | None = None

    @staticmethod
    def fresh(team: Team) -> Segment:
        return Segment(
            team.count(0), team.count(0), team.count(0), team.count(0), team.count(0),
            team.count(0), team.count(0), team.count(0),
            Visit.fresh(team) if team.form.is_listed else None,
        )  # fmt: skip

    def fields(self) -> tuple[Val, ...]:
        of_list = self.visit.fields() if self.visit is not None else ()
        return (self.row, self.head, self.first, self.end, self.tiles, self.length, self.cost,
                self.phase, *of_list)  # fmt: skip

    def copied(self, team: Team) -> Segment:
        made = Segment.fresh(team)
        made.take(team, self)
        return made

    def take(self, team: Team, other: Segment) -> None:
        for mine, its in zip(self.fields(), other.fields(), strict=True):
            team.k.set(mine, its)


@dataclass(frozen=True, slots=True)
class Share:
    """A group's share, in mutable registers until it is dealt: `parts` groups a unit, 0 for shares
    of `quota` (+ 1 for the first `extra` groups) that end at cost coordinate `stop`; the unit that
    it ends (row, head, first tile, coordinate); the step between a subgroup's tiles."""

    parts: Val
    quota: Val
    extra: Val
    stop: Val
    row: Val
    head: Val
    first: Val
    cost: Val
    step: Val

    @staticmethod
    def fresh(team: Team) -> Share:
        return Share(
            team.count(0), team.count(0), team.count(0), team.count(0), team.count(0),
            team.count(0), team.count(0), team.count(0), team.count(team.form.warps),
        )  # fmt: skip


class Shares:
    """Deals shares, and leads a segment from unit to unit."""

    def __init__(self, team: Team) -> None:
        self.team, self.form, self.k = team, team.form, team.k
        self.share = Share.fresh(team)

    @property
    def step(self) -> Val:
        """From a subgroup's tile to its next."""
        form = self.form
        if form.is_single or not form.spread:
            return self.team.number(max(form.spread, 1) * form.warps)
        return self.share.step

    @property
    def may_go_on(self) -> bool:
        """Whether a group may have another unit after its first."""
        return not self.form.is_single

    def deal(self, segment: Segment) -> Val:
        """The group's first segment, and whether it has one; the same in all its subgroups. Of one
        batch row, the length is not read yet, and taken for the most that it can be."""
        if self.form.is_single:
            found = self._place(segment, self.team.number(self.form.most))
            return self.k.op("agree", found) if self.form.is_listed else found
        k, form, go = self.k, self.form, self.team.flag(False)
        if not form.spread:
            k.set(go, self._cut(segment, *self._totals()))
            return k.op("agree", go)
        # Where rows are equal, this is the group's: its length is on its way with the others.
        length = self.team.length(quotient(k, quotient(k, self.team.group, form.spread), form.sets))
        least, most, total = self._totals()
        with k.if_(least.eq(most)):
            k.set(go, self._place(segment, length))
        with k.else_():
            k.set(go, self._cut(segment, least, most, total))
        return k.op("agree", go)

    def _split(self, x: Val, d: int) -> tuple[Val, Val]:
        return quotient(self.k, x, d), remainder(self.k, x, d)

    # Equal rows, few units

    def _place(self, segment: Segment, length: Val) -> Val:
        """The part of a unit that the group's number names."""
        k, form, share = self.k, self.form, self.share
        unit, part = self._split(self.team.group, form.spread)
        row, head = self._split(unit, form.sets)
        k.set(segment.row, row)
        k.set(segment.head, head)
        k.set(segment.first, part * form.warps)
        k.set(share.step, form.spread * form.warps)
        if segment.visit is not None:
            length = segment.visit.find(self.team, row, head)
        return self.spread(segment, length)

    def spread(self, segment: Segment, length: Val) -> Val:
        """The part's end, from the row's length; false where all its tiles lie past the end."""
        k, form = self.k, self.form
        tiles = self.team.tiles(length)
        for register, value in (
            (segment.length, length), (segment.tiles, tiles), (segment.end, tiles),
        ):  # fmt: skip
            k.set(register, value)
        parts = k.op("min", quotient(k, tiles + (form.warps - 1), form.warps), form.spread)
        if form.mergers:  # every group leaves a part, of nothing too: nobody else knows the list
            parts = self.team.number(form.spread)
        k.set(self.share.parts, parts)
        return self._split(self.team.group, form.spread)[1] < parts

    # Shares of equal cost

    def _row_tiles(self, first: int | Val) -> tuple[Val, Val]:
        """(row, tiles) of this lane's row of a block of rows; no tiles past the last row."""
        team, batch = self.team, self.form.parts.batch
        row = team.lane + first
        tiles = team.count(0)
        with self.k.if_(row < batch):
            self.k.set(tiles, team.tiles(team.length(row)))
        return row, self.k.copy(tiles)

    def _reduced(self, value: Val, kind: str) -> Val:
        return self.k.op("subgroup_reduce", value, kind=kind, width=WARP)

    def _totals(self) -> tuple[Val, Val, Val]:
        """(fewest, most, all) tiles of a row; all with the cost of the units, for one head."""
        team, k, form = self.team, self.k, self.form
        if form.lengths == "fixed":
            tiles = team.tiles(team.number(form.most))
            return tiles, tiles, (tiles + form.start_cost) * form.parts.batch
        least, most, total = team.count(_FAR), team.count(0), team.count(0)
        with k.for_(0, form.parts.batch, WARP, unroll=1) as first:
            _, tiles = self._row_tiles(first)
            is_row = tiles > 0
            k.set(least, k.op("min", least, k.select(is_row, tiles, team.number(_FAR))))
            k.set(most, k.op("max", most, tiles))
            k.set(total, total + k.select(is_row, tiles + form.start_cost, team.number(0)))
        return (
            self._reduced(k.copy(least), "min"),
            self._reduced(k.copy(most), "max"),
            self._reduced(k.copy(total), "add"),
        )

    def _cut(self, segment: Segment, least: Val, most: Val, total: Val) -> Val:
        team, k, form, share = self.team, self.k, self.form, self.share
        go = team.flag(False)
        whole = total * form.sets
        groups = k.op("min", whole, form.groups)
        near = quotient(k, whole, form.groups)
        quota = k.select(near * form.groups > whole, near - 1, near)
        k.set(share.quota, k.op("max", quota, 1))
        k.set(share.extra, whole - share.quota * groups)
        with k.if_(team.group < groups):
            start = k.copy(self.start_of(team.group))
            stop = k.copy(self.start_of(team.group + 1))
            begin, finish = self._find(start, stop, least, most, total)
            k.set(go, self._order(segment, start, stop, begin, finish))
        return k.copy(go)

    def start_of(self, group: Val) -> Val:
        """The cost coordinate where a group's share starts."""
        return group * self.share.quota + self.k.op("min", group, self.share.extra)

    def group_of(self, cost: Val) -> Val:
        """The group whose share holds a cost coordinate."""
        k, share = self.k, self.share
        long = k.copy(share.quota + 1)
        edge = k.copy(share.extra * long)
        is_long = cost < edge
        inside = k.select(is_long, cost, cost - edge)
        found = quotient(k, inside, k.select(is_long, long, k.copy(share.quota)))
        return k.select(is_long, found, found + share.extra)

    def _find(
        self, start: Val, stop: Val, least: Val, most: Val, total: Val
    ) -> tuple[tuple[Val, ...], tuple[Val, ...]]:
        """(row, head, tiles, coordinate) of the units that hold the share's start and its end."""
        if self.form.lengths == "fixed":
            return self._equal(start, least), self._equal(stop - 1, least)
        begin = tuple(self.team.count(0) for _ in range(4))
        finish = tuple(self.team.count(0) for _ in range(4))
        with self.k.if_(least.eq(most)):
            for registers, found in (
                (begin, self._equal(start, least)), (finish, self._equal(stop - 1, least)),
            ):  # fmt: skip
                self._assign(registers, found)
        with self.k.else_():
            if self.form.is_by_heads:
                self._search_by_heads(start, stop, total, begin, finish)
            else:
                self._search(start, stop, begin, finish)
        return begin, finish

    def _search_by_heads(
        self, start: Val, stop: Val, total: Val, begin: tuple[Val, ...], finish: tuple[Val, ...]
    ) -> None:
        """As `_search`, where a head's rows follow one another and cost `total` together."""
        k = self.k
        found: list[Val] = []
        for cost in (start, stop - 1):
            head = k.copy(quotient(k, cost, total))
            found += [head, k.copy(cost - head * total)]
        self._scan(found[1], found[3] + 1, 1, begin, finish)
        for registers, head in ((begin, found[0]), (finish, found[2])):
            k.set(registers[1], head)
            k.set(registers[3], registers[3] + head * total)

    def _assign(self, registers: tuple[Val, ...], values: tuple[Val, ...]) -> None:
        for register, value in zip(registers, values, strict=True):
            self.k.set(register, value)

    def _equal(self, cost: Val, tiles: Val) -> tuple[Val, ...]:
        """The unit at a cost coordinate, where all units have as many tiles."""
        heads, each = self.form.sets, tiles + self.form.start_cost
        literal = each.literal
        unit = quotient(self.k, cost, each if literal is None else int(literal))
        if self.form.is_by_heads:
            head, row = self._split(unit, self.form.parts.batch)
        else:
            row, head = self._split(unit, heads)
        return row, head, tiles, unit * each

    def _search(
        self, start: Val, stop: Val, begin: tuple[Val, ...], finish: tuple[Val, ...]
    ) -> None:
        """The units of a row follow one another."""
        k = self.k
        self._scan(start, stop, self.form.sets, begin, finish)
        for registers, cost in ((begin, start), (finish, stop - 1)):
            _, head, tiles, low = registers
            each = k.copy(tiles + self.form.start_cost)
            k.set(head, quotient(k, cost - low, each))
            k.set(low, low + head * each)

    def _scan(
        self,
        start: Val,
        stop: Val,
        heads: int,
        begin: tuple[Val, ...],
        finish: tuple[Val, ...],
    ) -> None:
        """A scan over the rows, a lane a row, each `heads` times its cost; the one row that holds a
        coordinate tells all."""
        team, k, form = self.team, self.k, self.form
        carry = team.count(0)
        for register in (*begin, *finish):
            k.set(register, 0)
        with k.for_(0, form.parts.batch, WARP, unroll=1) as first:
            row, tiles = self._row_tiles(first)
            own = k.select(tiles > 0, tiles + form.start_cost, team.number(0))
            sum_ = own
            for d in (1, 2, 4, 8, 16):
                below = k.op("shuffle", sum_, k.op("max", team.lane - d, 0))
                sum_ = sum_ + k.select(team.lane >= d, below, team.number(0))
            low, high = (carry + sum_ - own) * heads, (carry + sum_) * heads
            holds = (start >= low) & (start < high)
            self._tell(begin, holds, row, tiles, low)
            holds = (stop > low) & (stop <= high)
            self._tell(finish, holds, row, tiles, low)
            last = k.op("subgroup_broadcast", sum_, lane=WARP - 1)
            k.set(carry, carry + last)

    def _tell(self, registers: tuple[Val, ...], holds: Val, row: Val, tiles: Val, low: Val) -> None:
        k, none = self.k, self.team.number(0)
        for register, value in (
            (registers[0], row), (registers[2], tiles), (registers[3], low),
        ):  # fmt: skip
            found = self._reduced(k.select(holds, value, none), "max")
            k.set(register, k.op("max", register, found))

    def _order(
        self,
        segment: Segment,
        start: Val,
        stop: Val,
        begin: tuple[Val, ...],
        finish: tuple[Val, ...],
    ) -> Val:
        """The first segment of a share, and what `next` needs for the others."""
        team, k, share, go = self.team, self.k, self.share, self.team.flag(False)
        row0, head0, tiles0, cost0 = (k.copy(v) for v in begin)
        row1, head1, tiles1, cost1 = (k.copy(v) for v in finish)
        skipped = self.form.start_cost
        first = k.op("max", start - cost0 - skipped, 0)
        end = k.op("max", stop - cost1 - skipped, 0)
        with k.if_(cost0.eq(cost1)), k.if_(first < end):
            self._set(segment, row0, head0, first, end, tiles0, cost0, _LAST)
            k.set(go, team.truth(True))
        with k.else_():
            for register, value in (
                (share.row, row0), (share.head, head0), (share.first, first), (share.cost, cost0),
                (share.stop, k.select(end.eq(tiles1), stop, cost1)),
            ):  # fmt: skip
                k.set(register, value)
            with k.if_((end > 0) & (end < tiles1)):
                self._set(segment, row1, head1, team.number(0), end, tiles1, cost1, _BEGIN)
                k.set(go, team.truth(True))
            with k.else_():
                k.set(segment.phase, _BEGIN)
                k.set(go, self.next(segment))
        return k.copy(go)

    def _set(
        self, s: Segment, row: Val, head: Val, first: Val, end: Val, tiles: Val, cost: Val,
        phase: int,
    ) -> None:  # fmt: skip
        k = self.k
        for register, value in (
            (s.row, row), (s.head, head), (s.first, first), (s.end, end), (s.tiles, tiles),
            (s.cost, cost), (s.length, self._keys(s, row, head)),
        ):  # fmt: skip
            k.set(register, value)
        k.set(s.phase, phase)

    def next(self, s: Segment) -> Val:
        """Leads the segment to the group's next; false where there is none. Uniform in a
        subgroup."""
        team, k, share = self.team, self.k, self.share
        found = team.flag(False)
        with k.if_(share.parts.eq(0) & s.phase.ne(_LAST)):
            leave = team.flag(s.phase.eq(_WHOLE))
            with k.if_(s.phase.eq(_BEGIN)):
                k.set(s.phase, _WHOLE)
                self._enter(s, share.row, share.head, share.cost)
                k.set(leave, share.first > 0)
            with k.if_(leave):
                k.set(s.cost, s.cost + s.tiles + self.form.start_cost)
                if self.form.is_by_heads:
                    self._next_row(s)
                else:
                    self._next_head(s)
            with k.if_(s.cost < share.stop):
                k.set(s.first, 0)
                k.set(s.end, s.tiles)
                k.set(found, team.truth(True))
            with k.else_():
                k.set(s.phase, _LAST)
                with k.if_(share.first > 0):
                    self._enter(s, share.row, share.head, share.cost)
                    k.set(s.first, share.first)
                    k.set(s.end, s.tiles)
                    k.set(found, team.truth(True))
        return k.copy(found)

    def _next_head(self, s: Segment) -> None:
        """The next head of the row, or the first of the next."""
        k = self.k
        k.set(s.head, s.head + 1)
        with k.if_(s.head.eq(self.form.sets)):
            k.set(s.head, 0)
            k.set(s.row, s.row + 1)
            if s.visit is None:
                self._measure_inside(s)
        if s.visit is not None:
            self._measure_inside(s)

    def _next_row(self, s: Segment) -> None:
        """The next row of the head, or the first of the next."""
        k = self.k
        k.set(s.row, s.row + 1)
        with k.if_(s.row.eq(self.form.parts.batch)):
            k.set(s.row, 0)
            k.set(s.head, s.head + 1)
        self._measure_inside(s)

    def _measure_inside(self, s: Segment) -> None:
        with self.k.if_((s.row < self.form.parts.batch) & (s.cost < self.share.stop)):
            self._measure(s)

    def _enter(self, s: Segment, row: Val, head: Val, cost: Val) -> None:
        k = self.k
        k.set(s.row, row)
        k.set(s.head, head)
        k.set(s.cost, cost)
        self._measure(s)

    def _keys(self, s: Segment, row: Val, head: Val) -> Val:
        """The keys of a unit; of a list, what its slots stand for is found too."""
        return self.team.length(row) if s.visit is None else s.visit.find(self.team, row, head)

    def _measure(self, s: Segment) -> None:
        """The unit's keys and tiles. Of lists, shares count as many tiles as there may be, and
        `end_of` alone knows better."""
        length = self._keys(s, s.row, s.head)
        self.k.set(s.length, length)
        most = self.team.number(self.form.most)
        self.k.set(s.tiles, self.team.tiles(length if s.visit is None else most))

    def end_of(self, s: Segment) -> Val:
        """Where a segment's tiles end: with the unit's list, where that is before its own end."""
        if s.visit is None:
            return self.k.copy(s.end)
        return self.k.op("min", s.end, self.team.tiles(s.length))

    def owners(self, s: Segment) -> tuple[Val, Val]:
        """(first, last) group of those that share the segment's unit; the last merges."""
        team, k, form = self.team, self.k, self.form
        spread = max(form.spread, 1)
        unit = s.row * form.sets + s.head
        if form.is_single:
            low = k.copy(unit * spread)
            return low, k.copy(low + self.share.parts - 1)
        low, high = team.count(team.group), team.count(team.group)
        with k.if_(self.share.parts > 0):
            k.set(low, unit * spread)
            k.set(high, low + self.share.parts - 1)
        with k.else_():
            is_part = s.first.ne(0) | s.end.ne(s.tiles)
            with k.if_(is_part):
                cost = k.copy(s.cost + form.start_cost)
                k.set(low, self.group_of(cost))
                k.set(high, self.group_of(cost + s.tiles - 1))
        return k.copy(low), k.copy(high)
