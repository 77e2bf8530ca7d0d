"""Each subgroup's ring of tiles in workgroup memory, filled by asynchronous copies ahead of use.

A stage holds a tile of keys and a tile of values. The subgroup takes every `step`-th tile of its
group's share; its copies run `stages - 1` tiles ahead, from one unit on into the next. Nobody else
touches the ring, so no barrier of the group stands in the loop.

Of listed blocks, and of a paged cache, rows are found one by one: a lane a row, two tiles ahead. A
slot of a list that stands for no key is copied as zeros, and its tile's marks say so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from poot.codegen.gen.attention.grouped.shape import WARP
from poot.codegen.gen.attention.grouped.shares import Segment, Shares
from poot.codegen.gen.attention.grouped.team import Team, quotient, remainder
from poot.codegen.kir.build import TOKEN, U32, Val

RING, MARKS = "ring", "marks"
# Rows after which the order of a row's chunks repeats (frags.SWIZZLES, "row").
_TURN = 8


@dataclass(frozen=True, slots=True)
class Hidden:
    """Keys of a tile that its rows must not see: whether there are any, whether a key of the tile
    is one, and what clears their values."""

    is_any: Val
    of: Callable[[Val], Val]
    clear: Callable[[], None]


class Ring:
    """The copies of one subgroup. `is_turned` stores chunk c of row r at c ^ (r & 7), as loads of
    matrix fragments want it."""

    def __init__(self, team: Team, shares: Shares, *, is_turned: bool) -> None:
        self.team, self.form, self.k, self.shares = team, team.form, team.k, shares
        self.is_turned = is_turned
        form = team.form
        self.k.shared(RING, form.dtype, form.warps * form.ring_elems, 1024)
        if form.is_listed:
            self.k.shared(MARKS, "u32", form.warps * form.stages)
        self.base = team.warp * form.ring_elems
        per_row = min(form.chunks, WARP)
        self.own_row = quotient(self.k, team.lane, per_row)
        self.own_chunk = remainder(self.k, team.lane, per_row)
        self.keys, self.values = team.name_of("k"), team.name_of("v")
        self.pool = form.parts.at["k"].type.shape[0] if form.is_paged else 0
        self.token = self.k.op("async_commit", type=TOKEN)

    # Where copies go

    def _place(self, n: int) -> tuple[int, Val]:
        """Copy n of a lane: (row beyond the lane's own, chunk)."""
        per_row = self.form.chunks // WARP
        if per_row > 1:
            return n // per_row, self.own_chunk + WARP * (n % per_row)
        return n * (WARP // self.form.chunks), self.own_chunk

    def _turned(self, row: Val, chunk: Val) -> Val:
        return chunk ^ (row & (_TURN - 1)) if self.is_turned else chunk

    def _offset(self, n: int) -> tuple[Val, int]:
        """Where copy n goes in a tile: a lane's part, and a number."""
        form = self.form
        beyond, chunk = self._place(n)
        if self.is_turned:
            chunk = (chunk ^ (self.own_row & (_TURN - 1))) ^ (beyond & (_TURN - 1))
        lane_part = self.own_row * form.width + chunk * form.chunk
        return lane_part, beyond * form.width

    # Where they come from

    def start(self, segment: Segment) -> None:
        """The cursor of the copies at the first segment's first tile."""
        team = self.team
        self.cursor = segment.copied(team)
        self.tile, self.is_done = team.count(0), team.flag(False)
        self.origin = team.count(0)
        if self.form.is_mapped:
            self.slots, self.later, self.turn = team.count(0), team.count(0), team.count(0)
            self.is_run = team.flag(False)
            self.marks = self.k.var(self.k.lit(0, U32), U32)
        self._unit()
        self._settle()

    def _unit(self) -> None:
        """The lane's part of the unit's first row, and the subgroup's first tile."""
        k, parts, form = self.k, self.form.parts, self.form
        lane_part = self.own_chunk * form.chunk
        head = quotient(k, self.cursor.head, form.cuts)
        if form.is_paged:
            k.set(self.origin, head * form.width + lane_part)
        else:
            row = (self.cursor.row * parts.kv_heads + head) * parts.keys
            row = row if form.is_listed else row + self.own_row
            k.set(self.origin, row * form.width + lane_part)
        k.set(self.tile, self.cursor.first + self.team.warp)
        if form.is_listed:
            k.set(self.cursor.end, self.shares.end_of(self.cursor))

    def _settle(self) -> None:
        """On to the next unit that has a tile for this subgroup."""
        k = self.k
        if not self.shares.may_go_on:
            k.set(self.is_done, self.tile >= self.cursor.end)
        else:
            with k.block_() as head:
                is_past = (self.tile >= self.cursor.end) & ~self.is_done
            with k.while_(head, is_past):
                found = self.shares.next(self.cursor)
                with k.if_(found):
                    self._unit()
                with k.else_():
                    k.set(self.is_done, True)
        if self.form.is_mapped:
            with k.if_(~self.is_done):
                self._read_slots()

    # Rows found one by one: two tiles' a read, a lane each, and the next two on their way. Tiles
    # whose rows follow one another (whole pages do) are copied as rows of a dense cache are.

    def _slot_of(self, first_tile: Val) -> Val:
        """The row of the pool, or of the unit's keys; -1 where a list's slot stands for no key."""
        team, form = self.team, self.form
        half = quotient(self.k, team.lane, form.tile)
        place = remainder(self.k, team.lane, form.tile)
        at = (first_tile + half * self.shares.step) * form.tile + place
        if form.is_listed:
            assert self.cursor.visit is not None
            key = self.cursor.visit.key(team, self.cursor.row, self.cursor.head, at)
            if not form.is_paged:
                return key
            pool = self._pool_slot(self.k.op("max", key, 0))
            return self.k.select(key < 0, key, pool)
        return self._pool_slot(self.k.op("max", self.k.op("min", at, self.cursor.length - 1), 0))

    def _pool_slot(self, key: Val) -> Val:
        team, parts, ix = self.team, self.form.parts, self.team.job.indexer
        row = ix.atom(self.k.copy(self.cursor.row), parts.batch)
        found = team.job.pull.value(parts.at["read"], (row, ix.atom(self.k.copy(key), parts.keys)))
        return team.clamped(found, 0, self.pool - 1)

    @property
    def _tiles_a_read(self) -> int:
        return WARP // self.form.tile

    def _read_slots(self) -> None:
        ahead = self.tile + self.shares.step * self._tiles_a_read
        self.k.set(self.slots, self._slot_of(self.tile))
        self.k.set(self.later, self._slot_of(ahead))
        self.k.set(self.turn, 0)
        self._look()

    def _look(self) -> None:
        """Whether the slots of each tile read follow one another."""
        k, place = self.k, remainder(self.k, self.team.lane, self.form.tile)
        if self.form.is_listed:
            k.set(self.marks, k.op("ballot", self.slots >= 0, type=U32))
            return
        first = k.op("shuffle", self.slots, self.team.lane - place)
        k.set(self.is_run, k.op("vote_all", (first + place).eq(self.slots)))

    def _next_slots(self) -> None:
        k = self.k
        k.set(self.turn, self.turn + 1)
        with k.if_(self.turn.eq(self._tiles_a_read)):
            k.set(self.slots, self.later)
            ahead = self.tile + self.shares.step * self._tiles_a_read
            k.set(self.later, self._slot_of(ahead))
            k.set(self.turn, 0)
            self._look()

    # Issue, wait, clean

    def stage(self, number: Val) -> Val:
        """Where a stage of the ring starts."""
        return self.base + number * self.form.stage_elems

    def issue(self, stage: Val) -> None:
        """Starts the copies of the next tile into a stage, and closes their group: one group a
        call, so that `wait` counts tiles."""
        k = self.k
        with k.if_(~self.is_done):
            self._copy(self.stage(stage))
            if self.form.is_listed:
                self._mark(stage)
            self._advance()
        k.op("async_commit", type=TOKEN)

    def _copy(self, target: Val) -> None:
        k, form = self.k, self.form
        first = self.tile * form.tile
        left = self.cursor.length - first
        if form.is_listed:
            line = form.width * (form.parts.kv_heads if form.is_paged else 1)
            self._copy_slots(target, line)
            return
        if form.is_paged:
            line = form.parts.kv_heads * form.width
            with k.if_(self.is_run):
                slot = k.op("shuffle", self.slots, self.turn * form.tile)
                self._copy_whole(target, self.origin + (slot + self.own_row) * line, line)
            with k.else_():
                self._copy_slots(target, line)
            return
        source = self.origin + first * form.width
        if form.is_even:
            self._copy_whole(target, source, form.width)
            return
        with k.if_(left >= form.tile):
            self._copy_whole(target, source, form.width)
        with k.else_():
            self._copy_rest(target, source, left)

    def _one(self, target: Val, source: Val, *is_there: Val) -> None:
        """A chunk of a row of keys and of values; zeros where it is not there."""
        for name, beyond in ((self.keys, 0), (self.values, self.form.tile_elems)):
            self._cp(name, target + beyond, source, *is_there)

    def _cp(self, name: str, target: Val, source: Val, *is_there: Val) -> None:
        self.k.do("cp_async", target, source, *is_there, dst=RING, mem=name, nbytes=16, bypass=True)

    def _mark(self, stage: Val) -> None:
        """Which keys of the tile that was copied to a stage are there, a bit each."""
        k, form = self.k, self.form
        with k.if_(self.team.lane.eq(0)):
            own = k.copy(self.marks) >> k.bitcast(self.turn * form.tile, U32)
            k.store(MARKS, self.team.warp * form.stages + stage, own)

    def hidden(self, stage: Val, left: Val) -> Hidden:
        """What is hidden of the tile at a stage, of which `left` keys are of the unit."""
        k, form = self.k, self.form
        if not form.is_listed:
            keys = self.stage(stage)
            return Hidden(left < form.tile, lambda n: n >= left, lambda: self.clean(keys, left))
        every = (1 << form.tile) - 1
        own = k.load(MARKS, self.team.warp * form.stages + stage) & every
        return Hidden(own.ne(every), lambda n: ((own >> k.bitcast(n, U32)) & 1).eq(0), lambda: None)

    def _copy_whole(self, target: Val, source: Val, line: int) -> None:
        """Rows that lie `line` elements apart."""
        form = self.form
        for name, beyond in ((self.keys, 0), (self.values, form.tile_elems)):
            for n in range(form.copies):
                lane_part, far = self._offset(n)
                ahead, _ = self._place(n)
                inside = (n % max(form.chunks // WARP, 1)) * WARP * form.chunk
                to = (target + lane_part) + (far + beyond)
                self._cp(name, to, source + (ahead * line + inside))

    def _copy_rest(self, target: Val, source: Val, left: Val) -> None:
        """The last tile of a unit: rows past the end repeat the last one there is."""
        k, form = self.k, self.form
        last = k.op("max", left - 1, 0)
        per_row = max(form.chunks // WARP, 1)
        with k.for_(0, form.copies, unroll=1) as n:
            row = self.own_row + quotient(k, n, per_row) * max(WARP // form.chunks, 1)
            inside = remainder(k, n, per_row) * WARP
            chunk = self._turned(row, self.own_chunk + inside)
            to = target + row * form.width + chunk * form.chunk
            there = k.op("min", row, last) - self.own_row
            self._one(to, source + there * form.width + inside * form.chunk)

    def _copy_slots(self, target: Val, line: int) -> None:
        form, k = self.form, self.k
        first = self.turn * form.tile
        origin = k.copy(self.origin)
        for n in range(form.copies):
            lane_part, far = self._offset(n)
            ahead, _ = self._place(n)
            inside = (n % max(form.chunks // WARP, 1)) * WARP * form.chunk
            slot = k.op("shuffle", self.slots, first + (self.own_row + ahead))
            to = (target + lane_part) + far
            if form.is_listed:
                is_there = slot >= 0
                slot = k.op("max", slot, 0)
                self._one(to, origin + slot * line + inside, is_there)
            else:
                self._one(to, origin + slot * line + inside)

    def _advance(self) -> None:
        k = self.k
        k.set(self.tile, self.tile + self.shares.step)
        if not self.shares.may_go_on and not self.form.is_mapped:
            k.set(self.is_done, self.tile >= self.cursor.end)
            return
        if self.form.is_mapped:
            with k.if_(self.tile < self.cursor.end):
                self._next_slots()
        with k.if_(self.tile >= self.cursor.end):
            self._settle()

    def wait(self) -> None:
        """The oldest tile in flight has landed, for every lane of the subgroup."""
        self.k.do("wait", self.token, pending=self.form.stages - 2)
        self.k.barrier("subgroup")

    def drain(self) -> None:
        """Nothing is in flight."""
        self.k.do("wait", self.token, pending=0)

    def clean(self, keys: Val, left: Val) -> None:
        """Zeros in the value rows past the unit's end, of the tile at `keys`: what lies there must
        not matter."""
        k, form = self.k, self.form
        values = keys + form.tile_elems
        zeros = k.vec(*(k.lit(0.0) for _ in range(2)))
        if form.dtype != "f32":
            zeros = k.cast(zeros, form.dtype)
        with k.for_(k.op("max", left, 0), form.tile, unroll=1) as row:
            line = k.copy(values + row * form.width)
            for first in range(0, form.width // 2, WARP):
                k.store(RING, line + (self.team.lane + first) * 2, zeros)
        k.barrier("subgroup")
