"""Blocks of query rows against tiles of keys: which there are, in which order, and which tiles of
keys a block sees."""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.attention.grouped.team import quotient
from poot.codegen.gen.attention.parts import Parts
from poot.codegen.gen.index import Index
from poot.codegen.gen.job import Job
from poot.codegen.kir.build import I32, Val


@dataclass(frozen=True, slots=True)
class Tiling:
    """Blocks of `rows` query rows of one head, keys in tiles of `tile` (a power of two). `section`
    query heads run side by side, so that their keys and values stay in the cache."""

    parts: Parts
    rows: int
    tile: int
    section: int

    @property
    def row_tiles(self) -> int:
        return -(-self.parts.rows // self.rows)

    @property
    def groups(self) -> int:
        """Blocks of query rows in all."""
        return self.parts.batch * self.parts.heads * self.row_tiles

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


def block_of(job: Job, tiling: Tiling, number: Val) -> Block:
    """The block of that number: sections of heads in order, the longest tiles of queries first
    inside, heads innermost."""
    k, parts = job.k, tiling.parts
    per = tiling.section * tiling.row_tiles
    section = quotient(k, number, per)
    within = number - section * per
    turn = quotient(k, within, tiling.section)
    flat = section * tiling.section + (within - turn * tiling.section)
    row = quotient(k, flat, parts.heads)
    first = ((tiling.row_tiles - 1) - turn) * tiling.rows
    return _bounded(job, tiling, row, flat - row * parts.heads, first)


def _bounded(job: Job, tiling: Tiling, row: Val, head: Val, first: Val) -> Block:
    k, parts, tile = job.k, tiling.parts, tiling.tile
    length = k.lit(parts.keys, I32)
    if "len" in parts.at:
        at: Index = job.indexer.atom(row, parts.batch)
        found = job.pull.value(parts.at["len"], (at,))
        length = k.op("min", k.op("max", found, 0), parts.keys)
    low_end, high_end = length, length  # keys that the first and the last row see
    if parts.causal is not None:
        low_end = k.op("min", k.op("max", first + (parts.causal + 1), 0), length)
        high_end = k.op("min", k.op("max", first + (parts.causal + tiling.rows), 0), length)
    tiles = k.op("max", (high_end + (tile - 1)) >> _log2(tile), 1)
    last = tiles - 1
    masked = k.op("max", tiles - (low_end >> _log2(tile)), 1)
    if parts.window is None:
        return Block(row, head, first, last, tiles, k.op("min", masked, tiles), tiles, length)
    begin = first + ((parts.causal or 0) + 1 - parts.window)
    low = k.op("min", k.op("max", begin, 0) >> _log2(tile), last)
    late = k.op("max", begin + (tiling.rows - 1 + tile - 1), 0) >> _log2(tile)
    count = tiles - low
    masked = k.op("min", masked, count)
    tail = k.op("min", k.op("max", tiles - late, masked), count)
    return Block(row, head, first, last, count, masked, tail, length)


def _log2(n: int) -> int:
    return n.bit_length() - 1
