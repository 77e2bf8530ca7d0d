"""The numbers of a tiled attention: its tiles, its rings, which keys a tile of queries sees."""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.attention.grouped.team import quotient
from poot.codegen.gen.attention.parts import Parts, attention_eqn, parts_of
from poot.codegen.gen.index import Index
from poot.codegen.gen.job import Job
from poot.codegen.kir.build import I32, Val
from poot.planner.request import Request

WARP, WARPGROUP = 32, 128
# Rows of queries of one consumer, and columns of a panel of 128 bytes.
ROWS, PANEL = 64, 64
STAGES = 2


@dataclass(frozen=True, slots=True)
class Form:
    """`consumers` warpgroups of 64 query rows each share tiles of `tile` keys. `section` query
    heads run side by side, so that their keys and values stay in the cache. `launched` groups take
    the blocks in turn."""

    parts: Parts
    consumers: int
    tile: int
    section: int
    registers: tuple[int, int]
    launched: int

    @staticmethod
    def of(request: Request) -> Form:
        """The form that a request's schedule names."""
        parts, get = parts_of(attention_eqn(request.body)), request.schedule.get
        budget = (get("producer_registers"), get("consumer_registers"))
        return Form(parts, get("consumers"), get("tile"), get("section"), budget, get("groups"))

    @property
    def width(self) -> int:
        return self.parts.width

    @property
    def dtype(self) -> str:
        return self.parts.at["k"].type.dtype

    @property
    def panels(self) -> int:
        return self.width // PANEL

    @property
    def threads(self) -> int:
        return WARPGROUP * (self.consumers + 1)

    @property
    def rows(self) -> int:
        """Query rows of a group."""
        return ROWS * self.consumers

    @property
    def buffers(self) -> int:
        """Blocks whose queries have a place at once."""
        return 1 if self.width > 128 else 2

    @property
    def row_tiles(self) -> int:
        return -(-self.parts.rows // self.rows)

    @property
    def groups(self) -> int:
        """Blocks of query rows in all."""
        return self.parts.batch * self.parts.heads * self.row_tiles

    @property
    def key_elems(self) -> int:
        """A tile of keys, or of values."""
        return self.tile * self.width

    @property
    def query_elems(self) -> int:
        """One consumer's queries."""
        return ROWS * self.width

    @property
    def is_paged(self) -> bool:
        return "read" in self.parts.at

    @property
    def is_even(self) -> bool:
        """Whether every row sees every key, in whole tiles."""
        parts = self.parts
        bounded = parts.causal is not None or parts.window is not None or "len" in parts.at
        return not bounded and parts.keys % self.tile == 0


@dataclass(frozen=True, slots=True)
class Block:
    """One block of work: a batch row, a query head, its first query row; how many tiles of keys,
    from tile `last` down; of those, the first `head` and the ones from `tail` on need a look at
    which keys are hidden. `length` is how many keys there are."""

    row: Val
    head: Val
    first_query: Val
    last: Val
    count: Val
    masked: Val
    tail: Val
    length: Val


def block_of(job: Job, form: Form, number: Val) -> Block:
    """The block of that number: sections of heads in order, the longest tiles of queries first
    inside, heads innermost."""
    k, parts = job.k, form.parts
    per = form.section * form.row_tiles
    section = quotient(k, number, per)
    within = number - section * per
    turn = quotient(k, within, form.section)
    flat = section * form.section + (within - turn * form.section)
    row = quotient(k, flat, parts.heads)
    first = ((form.row_tiles - 1) - turn) * form.rows
    return _bounded(job, form, row, flat - row * parts.heads, first)


def _bounded(job: Job, form: Form, row: Val, head: Val, first: Val) -> Block:
    k, parts, tile = job.k, form.parts, form.tile
    length = k.lit(parts.keys, I32)
    if "len" in parts.at:
        at: Index = job.indexer.atom(row, parts.batch)
        found = job.pull.value(parts.at["len"], (at,))
        length = k.op("min", k.op("max", found, 0), parts.keys)
    low_end, high_end = length, length  # keys that the first and the last row see
    if parts.causal is not None:
        low_end = k.op("min", k.op("max", first + (parts.causal + 1), 0), length)
        high_end = k.op("min", k.op("max", first + (parts.causal + form.rows), 0), length)
    tiles = k.op("max", (high_end + (tile - 1)) >> _log2(tile), 1)
    last = tiles - 1
    masked = k.op("max", tiles - (low_end >> _log2(tile)), 1)
    if parts.window is None:
        return Block(row, head, first, last, tiles, k.op("min", masked, tiles), tiles, length)
    begin = first + ((parts.causal or 0) + 1 - parts.window)
    low = k.op("min", k.op("max", begin, 0) >> _log2(tile), last)
    late = k.op("max", begin + (form.rows - 1 + tile - 1), 0) >> _log2(tile)
    count = tiles - low
    masked = k.op("min", masked, count)
    tail = k.op("min", k.op("max", tiles - late, masked), count)
    return Block(row, head, first, last, count, masked, tail, length)


def _log2(n: int) -> int:
    return n.bit_length() - 1
