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

from poot.codegen.gen.attention.grouped.shape import WARP, Form
from poot.codegen.gen.attention.grouped.shares import Segment, Shares
from poot.codegen.gen.attention.grouped.team import Team, quotient, remainder
from poot.codegen.kir.build import TOKEN, U32, Val
from poot.planner.codes import Coded

_LINE_NBYTES = 128
RING, MARKS, SCALES = "ring", "marks", "scales"


@dataclass(frozen=True, slots=True)
class Hidden:
    """Keys of a tile that its rows must not see: whether there are any, whether a key of the tile
    is one, and what clears their values."""

    is_any: Val
    of: Callable[[Val], Val]
    clear: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a stage's tile of keys starts in the ring (the values follow), and its scales."""

    tile: Val
    scales: Val | None


@dataclass(frozen=True, slots=True)
class Turned:
    """In which order the chunks of a row lie, so that the lanes that load at once meet no bank of
    workgroup memory twice: "plain"; "rows", chunk c of row r at c ^ (r & 7), as loads of matrix
    fragments want it (frags.SWIZZLES, "row"); "codes", as rows of codes are read: c ^ turn(r) of a
    line of 128 bytes, which two short rows share."""

    kind: str

    def chunk(self, chunk: Val, row: Val | int) -> Val:
        """A chunk's place. Turns of rows that share no bit add up."""
        if self.kind == "plain":
            return chunk
        if self.kind == "rows":
            return chunk ^ (row & 7)
        if isinstance(row, int):
            return chunk ^ ((row & 6) ^ ((row & 1) << 2))
        return chunk ^ ((row & 6) ^ ((row & 1) << 2))

    def start(self, form: Form, row: Val) -> Val:
        """Where a row's line starts in a tile."""
        if self.kind == "codes" and form.line * 4 < _LINE_NBYTES:
            return (row >> 1) * (_LINE_NBYTES // 4)
        return row * form.line


class Ring:
    """The copies of one subgroup. `turned` says where a chunk of a row lies."""

    def __init__(self, team: Team, shares: Shares, *, turned: Turned) -> None:
        self.team, self.form, self.k, self.shares = team, team.form, team.k, shares
        self.turned = turned
        form = team.form
        self.k.shared(RING, form.dtype, form.warps * form.ring_elems, 1024)
        if form.is_listed:
            self.k.shared(MARKS, "u32", form.warps * form.stages)
        if form.codes is not None:
            self.k.shared(SCALES, "f32", form.warps * form.stages * 2 * form.tile)
        self.base = team.warp * form.ring_elems
        per_row = min(form.chunks, WARP)
        self.own_row = quotient(self.k, team.lane, per_row)
        self.own_chunk = remainder(self.k, team.lane, per_row)
        self.keys = team.name_of_input(form.keys_from)
        self.values = team.name_of_input(form.values_from)
        self.pool = form.keys_from.type.shape[0] if form.is_paged else 0
        self.token = self.k.op("async_commit", type=TOKEN)

    # Where copies go

    def _place(self, n: int) -> tuple[int, Val]:
        """Copy n of a lane: (row beyond the lane's own, chunk)."""
        per_row = self.form.chunks // WARP
        if per_row > 1:
            return n // per_row, self.own_chunk + WARP * (n % per_row)
        return n * (WARP // self.form.chunks), self.own_chunk

    def _offset(self, n: int) -> tuple[Val, int]:
        """Where copy n goes in a tile: a lane's part, and a number."""
        form = self.form
        beyond, chunk = self._place(n)
        chunk = self.turned.chunk(self.turned.chunk(chunk, self.own_row), beyond)
        lane_part = self.turned.start(form, self.own_row) + chunk * form.chunk
        return lane_part, beyond * form.line

    # Where they come from

    def start(self, segment: Segment) -> None:
        """The cursor of the copies at the first segment's first tile."""
        team = self.team
        self.cursor = segment.copied(team)
        self.tile, self.is_done = team.count(0), team.flag(False)
        self.origin = team.count(0)
        self.skip = team.count(0)
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
        if form.begins_late:
            k.set(self.skip, k.op("min", self.team.first(self.cursor.row), parts.keys - 1))
        head = quotient(k, self.cursor.head, form.cuts)
        if form.is_paged:
            k.set(self.origin, head * form.line + lane_part)
        else:
            row = (self.cursor.row * parts.kv_heads + head) * parts.keys
            row = row if form.is_listed else row + self.own_row
            row = row + self.skip if form.begins_late else row
            k.set(self.origin, row * form.line + lane_part)
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
        return self._pool_slot(self._key(at))

    def _key(self, at: Val) -> Val:
        """The key at a place of the unit; past its end the last there is."""
        inside = self.k.op("max", self.k.op("min", at, self.cursor.length - 1), 0)
        return inside + self.skip if self.form.begins_late else inside

    def _pool_slot(self, key: Val) -> Val:
        team, parts, ix = self.team, self.form.parts, self.team.job.indexer
        row = ix.atom(self.k.copy(self.cursor.row), parts.batch)
        assert self.form.read is not None
        found = team.job.pull.value(self.form.read, (row, ix.atom(self.k.copy(key), parts.keys)))
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
            if self.form.codes is not None:
                self._copy_scales(self.form.codes, self.scales_of(stage))
            if self.form.is_listed:
                self._mark(stage)
            self._advance()
        k.op("async_commit", type=TOKEN)

    def _copy(self, target: Val) -> None:
        k, form = self.k, self.form
        first = self.tile * form.tile
        left = self.cursor.length - first
        if form.is_listed:
            line = form.line * (form.parts.kv_heads if form.is_paged else 1)
            self._copy_slots(target, line)
            return
        if form.is_paged:
            line = form.parts.kv_heads * form.line
            with k.if_(self.is_run):
                slot = k.op("shuffle", self.slots, self.turn * form.tile)
                self._copy_whole(target, self.origin + (slot + self.own_row) * line, line)
            with k.else_():
                self._copy_slots(target, line)
            return
        source = self.origin + first * form.line
        if form.is_even:
            self._copy_whole(target, source, form.line)
            return
        with k.if_(left >= form.tile):
            self._copy_whole(target, source, form.line)
        with k.else_():
            self._copy_rest(target, source, left)

    def _one(self, target: Val, source: Val, *is_there: Val) -> None:
        """A chunk of a row of keys and of values; zeros where it is not there."""
        for name, beyond in ((self.keys, 0), (self.values, self.form.tile_elems)):
            self._cp(name, target + beyond, source, *is_there)

    def _cp(self, name: str, target: Val, source: Val, *is_there: Val) -> None:
        self.k.do("cp_async", target, source, *is_there, dst=RING, mem=name, nbytes=16, bypass=True)

    def scales_of(self, stage: Val) -> Val:
        """Where the scales of a stage start: those of its keys, then those of its values."""
        form = self.form
        return (self.team.warp * form.stages + stage) * (2 * form.tile)

    def at(self, stage: Val) -> Stage:
        """Where a stage's tile and scales lie."""
        scales = None if self.form.codes is None else self.scales_of(stage)
        return Stage(self.stage(stage), scales)

    def _copy_scales(self, codes: tuple[Coded, Coded], target: Val) -> None:
        """A scale a lane: of the tile's keys, then of its values."""
        k, team, form = self.k, self.team, self.form
        row = remainder(k, team.lane, form.tile)
        if form.is_paged:
            slot = k.op("shuffle", self.slots, self.turn * form.tile + row)
            line = slot * form.parts.kv_heads
            line = line + quotient(k, self.cursor.head, form.cuts)
        else:
            key = self._key(self.tile * form.tile + row)
            head = quotient(k, self.cursor.head, form.cuts)
            line = (self.cursor.row * form.parts.kv_heads + head) * form.parts.keys + key
        line = k.copy(line)
        names = [team.name_of_input(c.scales) for c in codes]
        with k.if_(team.lane < form.tile):
            k.do("cp_async", target + team.lane, line, dst=SCALES, mem=names[0], nbytes=4)
        with k.else_():
            k.do("cp_async", target + team.lane, line, dst=SCALES, mem=names[1], nbytes=4)

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
            chunk = self.turned.chunk(self.own_chunk + inside, row)
            to = target + self.turned.start(form, row) + chunk * form.chunk
            there = k.op("min", row, last) - self.own_row
            self._one(to, source + there * form.line + inside * form.chunk)

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
        if form.codes is not None:
            self._clean_words(values, left)
            return
        zeros = k.vec(*(k.lit(0.0) for _ in range(2)))
        if form.dtype != "f32":
            zeros = k.cast(zeros, form.dtype)
        with k.for_(k.op("max", left, 0), form.tile, unroll=1) as row:
            line = k.copy(values + row * form.line)
            for first in range(0, form.line // 2, WARP):
                k.store(RING, line + (self.team.lane + first) * 2, zeros)
        k.barrier("subgroup")

    def _clean_words(self, values: Val, left: Val) -> None:
        """The same, a chunk a lane."""
        k, form = self.k, self.form
        zero = k.lit(0, U32)
        with (
            k.for_(k.op("max", left, 0), form.tile, unroll=1) as row,
            k.if_(self.team.lane < form.chunks),
        ):
            chunk = self.turned.chunk(self.team.lane, row) * form.chunk
            at = values + self.turned.start(form, row) + chunk
            k.store(RING, at, k.vec(*(zero for _ in range(form.chunk))))
        k.barrier("subgroup")
