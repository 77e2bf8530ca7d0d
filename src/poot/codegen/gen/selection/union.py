"""The union of the lists of a tile's query rows: its blocks, and which of the rows visit each.

One group a tile. It goes over the blocks window by window: every row of every list sets its bit in
a workgroup array, and what is set is written in order behind what was found before. The last
scratch but the partial states holds for each tile a count, then `room` ids, then `room` words of
bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.attention.parts import Parts
from poot.codegen.gen.grid import each_group
from poot.codegen.gen.index import Coords, Index
from poot.codegen.gen.job import Job, needed_by, open_job
from poot.codegen.gen.lowered import KernelCall
from poot.codegen.gen.memory import Memory
from poot.codegen.gen.selection.scan import scan
from poot.codegen.gen.selection.visits import always, candidates, limit_of
from poot.codegen.kir.build import I32, Val
from poot.ir.attrs import int_attr
from poot.ir.graph import TensorType
from poot.limits import DeviceLimits
from poot.planner.request import Request
from poot.planner.selected import WINDOW, union_room


@dataclass(frozen=True, slots=True)
class Union:
    """The scratch, and how it is laid out."""

    job: Job
    parts: Parts
    memory: Memory
    room: int

    @staticmethod
    def opened(job: Job, parts: Parts, access: str) -> Union:
        request = job.request
        at = len(request.scratch) - (1 if request.schedule.get("splits") == 1 else 2)
        type = TensorType("i32", (request.scratch[at].elems,))
        memory = job.memory("union", type, access, ("scratch", at))
        return Union(job, parts, memory, union_room(parts.eqn, request.schedule.get("rows")))

    def tile(self, b: Index, which: Index, row_tile: Index) -> Index:
        """Where the words of a tile of rows and a list head begin."""
        lists = self.parts.at["ids"].type.shape[1]
        tiles = -(-self.parts.rows // self.job.request.schedule.get("rows"))
        return ((b * lists + which) * tiles + row_tile) * (1 + 2 * self.room)

    def slots(self, b: Index, which: Index, row_tile: Index) -> UnionSlots:
        at = self.tile(b, which, row_tile)
        return UnionSlots(self, at + 1, self.memory.load(at))


@dataclass(frozen=True, slots=True)
class UnionSlots:
    """The slots of a tile's union."""

    union: Union
    base: Index
    blocks: Val

    @property
    def ratio(self) -> int:
        return int_attr(self.union.parts.eqn, "ratio")

    @property
    def count(self) -> Val:
        room = self.union.room * self.ratio
        return self.union.job.k.op("min", self.blocks * self.ratio, room)

    def _entry(self, slot: Val) -> Index:
        return self.base + self.union.job.indexer.clamp(slot // self.ratio, self.union.room)

    def key(self, slot: Val) -> Val:
        k = self.union.job.k
        first = self.union.memory.load(self._entry(slot)) * self.ratio
        key = first + slot % self.ratio
        return k.select(key < self.union.parts.keys, key, k.lit(-1, I32))

    def mark(self, slot: Val) -> Val:
        return self.union.memory.load(self._entry(slot) + self.union.room)


def lower_union(request: Request, limits: DeviceLimits, parts: Parts) -> KernelCall:
    """The launch that makes the union of each tile's lists."""
    lanes, rows = request.schedule.get("lanes"), request.schedule.get("rows")
    job = open_job(request, limits, "selected_union", lanes)
    operands = [parts.at[n] for n in ("ids", "positions", "len") if n in parts.at]
    job.bind_inputs(only=needed_by(request.body, operands))
    union = Union.opened(job, parts, "w")
    k, ix = job.k, job.indexer
    lists, most = parts.at["ids"].type.shape[1], parts.at["ids"].type.shape[3]
    tiles = -(-parts.rows // rows)
    blocks = -(-parts.keys // int_attr(parts.eqn, "ratio"))
    window = min(WINDOW, blocks)
    k.shared("window", "i32", window)
    k.shared("ends", "i32", rows)
    k.shared("owns", "i32", rows)
    k.shared("lasts", "i32", rows)
    with each_group(k, parts.batch * lists * tiles, limits) as group:
        flat = ix.atom(group, parts.batch * lists * tiles)
        b, which, row_tile = ix.split(flat, (parts.batch, lists, tiles))
        rows_of = _Rows(job, parts, (b, which), row_tile * rows, rows)
        _look(rows_of, lanes, most)
        total = k.var(k.lit(0, I32), name="total")
        with k.for_(0, blocks, window, name="w") as first:
            _mark(rows_of, lanes, most, first, window)
            found = _write(union, union.tile(b, which, row_tile), first, window, k.copy(total))
            k.set(total, total + found)
            k.barrier()
        with k.if_(k.lane().eq(0)):
            union.memory.store(union.tile(b, which, row_tile), k.copy(total))
    return job.call(parts.batch * lists * tiles)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The query rows of a tile and their lists."""

    job: Job
    parts: Parts
    lead: Coords
    first: Index
    many: int

    def row(self, r: Index) -> tuple[Index, Val]:
        """(a query row, clamped; whether it is there)."""
        at = self.first + r
        value = self.job.indexer.value(at)
        return self.job.indexer.bounded(at, self.parts.rows), value < self.parts.rows

    def id(self, r: Index, i: Index) -> Val:
        at, _ = self.row(r)
        return self.job.pull.value(self.parts.at["ids"], (*self.lead, at, i))


def _look(rows: _Rows, lanes: int, most: int) -> None:
    """ends[r]: how many blocks row r lists; owns[r]: the first block of what it always visits, and
    lasts[r] the last, before the first where it visits none."""
    job, k, ix = rows.job, rows.job.k, rows.job.indexer
    with k.for_(k.lane(), rows.many, lanes, name="r") as r:
        at, is_there = rows.row(ix.atom(r, rows.many))
        eqn, positions = rows.parts.eqn, rows.parts.at["positions"]
        own = candidates(job, eqn, positions, (rows.lead[0], at))
        limit = limit_of(job, rows.parts, rows.lead[0], at)
        ratio = int_attr(eqn, "ratio")
        own = k.op("min", own, -(-rows.parts.keys // ratio))
        k.store("owns", r, own)
        k.store("lasts", r, k.select(is_there, (limit + (ratio - 1)) // ratio - 1, own - 1))
        k.store("ends", r, k.select(is_there, k.lit(most, I32), k.lit(0, I32)))
    k.barrier()
    with k.for_(k.lane(), rows.many * most, lanes, name="e") as e:
        r, i = ix.divmod(ix.atom(e, rows.many * most), most)
        with k.if_(rows.id(r, i) < 0):
            k.op("atomic", ix.value(r), ix.value(i), type=I32, mem="ends", kind="min")
    k.barrier()


def _mark(rows: _Rows, lanes: int, most: int, first: Val, window: int) -> None:
    """window[block - first] has bit r where row r visits the block."""
    k, ix = rows.job.k, rows.job.indexer
    with k.for_(k.lane(), window, lanes, name="i") as i:
        k.store("window", i, 0)
    k.barrier()
    each = most + always(rows.parts.eqn).blocks(int_attr(rows.parts.eqn, "ratio"))
    many = rows.many * each
    with k.for_(k.lane(), many, lanes, name="e") as e:
        r, i = ix.divmod(ix.atom(e, many), each)
        slot, row = ix.value(i), ix.value(r)
        of_list = rows.id(r, ix.bounded(i, most))
        is_listed = slot < k.load("ends", row)
        own = k.load("owns", row) + (slot - most)
        is_own = (slot >= most) & (own <= k.load("lasts", row))
        place = k.select(is_listed, of_list, own) - first
        with k.if_((is_listed | is_own) & (place >= 0) & (place < window)):
            bit = k.lit(1, I32) << row
            k.op("atomic", place, bit, type=I32, mem="window", kind="or")
    k.barrier()


def _write(union: Union, tile: Index, first: Val, window: int, before: Val) -> Val:
    """Writes what is set behind the `before` entries there are, in order; how many that is."""
    job, k, lanes = union.job, union.job.k, union.job.k.threads
    size = -(-window // lanes)
    begin = k.lane() * size
    end = k.op("min", begin + size, window)
    mine = k.var(k.lit(0, I32), name="mine")
    with k.for_(begin, end, name="i") as i:
        k.set(mine, mine + k.cast(k.load("window", i).ne(0), "i32"))
    found = scan(job, "found", k.copy(mine), lanes)
    at = k.var(before + found.before, name="at")
    base = tile + 1
    with k.for_(begin, end, name="i") as i:
        bits = k.load("window", i)
        with k.if_(bits.ne(0) & (at < union.room)):
            entry = base + job.indexer.atom(k.copy(at), union.room)
            union.memory.store(entry, first + i)
            union.memory.store(entry + union.room, bits)
        k.set(at, at + k.cast(bits.ne(0), "i32"))
    return found.all
