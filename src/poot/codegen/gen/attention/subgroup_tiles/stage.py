"""Queries, keys and values of a block in workgroup memory.

There is one buffer of keys and one of values: a tile's values come while its scores are computed,
the next tile's keys while its values are added. Where the device copies by itself, chunks of 16
bytes go straight to their places; else they wait in registers until the group has met. A row is PAD
elements longer than it needs, so that neighbouring rows lie in different banks.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.attention.blocks import Block
from poot.codegen.gen.attention.grouped.team import input_name, quotient, remainder
from poot.codegen.gen.attention.subgroup_tiles.shape import Form
from poot.codegen.gen.job import Job
from poot.codegen.kir.build import TOKEN, U32, Val
from poot.codegen.kir.nodes import Ty
from poot.planner.subgroup_tiles import CHUNK

QUERIES, KEYS, VALUES = "sq", "sk", "sv"
_WORDS = Ty("u32", 4)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One of a lane's copies of a tile: row `own` + `beyond`, chunk `chunk` of the row; `is_there`
    where not all lanes have one."""

    own: Val
    beyond: int
    chunk: Val
    is_there: Val | None


@dataclass(frozen=True, slots=True)
class Piece:
    """Channels of staged rows that come from one operand: `count` of them, from channel `first`."""

    operand: str
    first: int
    count: int


class Tile:
    """A staged array: where its pieces come from, and what is on its way to it."""

    def __init__(self, array: str, pitch: int, pieces: tuple[Piece, ...]) -> None:
        self.array, self.pitch, self.pieces = array, pitch, pieces
        self.held: list[Val] = []


class Stage:
    """The copies of one group, for one block."""

    def __init__(self, job: Job, form: Form) -> None:
        self.job, self.form, self.k = job, form, job.k
        parts = form.parts
        own, shared = form.own_width, parts.shared
        split = (Piece("k", 0, own), Piece("k_shared", own, shared))
        self.queries = Tile(QUERIES, form.key_pitch, (Piece("q", 0, parts.width),))
        self.keys = Tile(KEYS, form.key_pitch, split if shared else split[:1])
        self.values = Tile(VALUES, form.value_pitch, (Piece("v", 0, parts.value_width),))
        if form.keeps_queries:
            self._declare(self.queries, form.rows)
        self._declare(self.keys, form.tile)
        self._declare(self.values, form.tile)
        if form.is_async:
            self.token = self.k.op("async_commit", type=TOKEN)
        else:
            for tile in (self.keys, self.values):
                count = sum(len(self._chunks(p.count, form.tile)) for p in tile.pieces)
                tile.held = [self.k.register(_WORDS) for _ in range(count)]

    def _declare(self, tile: Tile, rows: int) -> None:
        elems = rows * tile.pitch
        if self.form.is_async:
            self.k.shared(tile.array, self.form.dtype, elems)
        else:
            self.k.shared(tile.array, "u32", elems // 2)

    def _chunks(self, width: int, rows: int) -> list[Chunk]:
        """The lane's copies of a tile of so many rows."""
        k, threads, lane = self.k, self.form.threads, self.k.lane()
        across = width // CHUNK
        out: list[Chunk] = []
        for n in range(-(-rows * across // threads)):
            is_whole = (n + 1) * threads <= rows * across
            if threads % across == 0:
                own, beyond = quotient(k, lane, across), n * (threads // across)
                chunk = remainder(k, lane, across)
            else:
                number = lane + n * threads
                own, beyond, chunk = quotient(k, number, across), 0, remainder(k, number, across)
            there = None if is_whole else own + beyond < rows
            out.append(Chunk(own, beyond, chunk, there))
        return out

    # A block

    def open(self, block: Block) -> None:
        """Starts a block. Queries that stay are copied, and asked for with the first keys."""
        self.block = block
        self.key_head = quotient(self.k, block.head, self.form.parts.repeat)
        if self.form.keeps_queries:
            self._copy_queries(self.queries, block.first_query, self.form.rows)

    def pass_queries(self, number: int) -> None:
        """The number-th `tile` queries of the block, where keys will lie."""
        first = self.block.first_query + number * self.form.tile
        self._copy_queries(self.keys, first, self.form.tile)

    def _copy_queries(self, tile: Tile, first: Val, rows: int) -> None:
        k, parts, block = self.k, self.form.parts, self.block
        lead = block.row * parts.heads + block.head
        for chunk in self._chunks(parts.width, rows):
            with self.job.when(self._truth() if chunk.is_there is None else chunk.is_there):
                row = first + (chunk.own + chunk.beyond)
                self._query(tile, chunk, lead, k.op("min", row, parts.rows - 1))

    def _query(self, tile: Tile, chunk: Chunk, lead: Val, row: Val) -> None:
        k, parts = self.k, self.form.parts
        name = input_name(self.job, parts.at["q"])
        to = self._to(tile, self.queries.pieces[0], chunk)
        source = (lead * parts.rows + row) * parts.width + chunk.chunk * CHUNK
        if name is None:
            self._put(tile.array, to, self._computed(row, chunk))
        elif self.form.is_async:
            k.do("cp_async", to, source, dst=tile.array, mem=name, nbytes=16, bypass=True)
        else:
            k.store(tile.array, to >> 1, k.load(name, source >> 1, 4))

    def _computed(self, row: Val, chunk: Chunk) -> list[Val]:
        """Eight channels of a query that is made here."""
        ix, parts, k = self.job.indexer, self.form.parts, self.k
        where = (
            ix.atom(self.block.row, parts.batch), ix.atom(self.block.head, parts.heads),
            ix.atom(row, parts.rows),
        )  # fmt: skip
        first = ix.atom(chunk.chunk, parts.width // CHUNK) * CHUNK
        q = parts.at["q"]
        return [k.cast(self.job.pull.value(q, (*where, first + n)), "f32") for n in range(CHUNK)]

    def _put(self, array: str, to: Val, values: list[Val]) -> None:
        k = self.k
        short = k.cast(k.vec(*values), self.form.dtype)
        if self.form.is_async:
            k.store(array, to, short)
        else:
            k.store(array, to >> 1, k.bitcast(short, _WORDS))

    def _truth(self) -> Val:
        return self.k.lit(True, Ty("bool"))

    def _to(self, tile: Tile, piece: Piece, chunk: Chunk) -> Val:
        """Where a chunk goes."""
        lane_part = chunk.own * tile.pitch + chunk.chunk * CHUNK
        return lane_part + (chunk.beyond * tile.pitch + piece.first)

    # Tiles of keys and values

    def fetch(self, tile: Tile, first: Val) -> None:
        """Begins the copies of the keys, or values, from key `first` on. Values of keys past the
        end are zeros: what lies there must not matter."""
        k, number = self.k, 0
        for piece in tile.pieces:
            name = input_name(self.job, self.form.parts.at[piece.operand])
            assert name is not None, piece
            for chunk in self._chunks(piece.count, self.form.tile):
                key = (first + chunk.own) + chunk.beyond
                with self.job.when(self._truth() if chunk.is_there is None else chunk.is_there):
                    if self.form.is_async:
                        self._copy(tile, piece, chunk, name, key)
                    else:
                        self._hold(tile, piece, chunk, name, key, tile.held[number])
                number += 1
        if self.form.is_async:
            k.op("async_commit", type=TOKEN)

    def _copy(self, tile: Tile, piece: Piece, chunk: Chunk, name: str, key: Val) -> None:
        there = () if self.form.tiling.is_even else (key < self.block.length,)
        source = self._source(piece, chunk, key)
        self.k.do("cp_async", self._to(tile, piece, chunk), source, *there, dst=tile.array,
                  mem=name, nbytes=16, bypass=True)  # fmt: skip

    def _hold(self, tile: Tile, piece: Piece, chunk: Chunk, name: str, key: Val, held: Val) -> None:
        k = self.k
        words = k.load(name, self._source(piece, chunk, key) >> 1, 4)
        if tile is self.values and not self.form.tiling.is_even:
            none = k.vec(*(k.lit(0, U32) for _ in range(_WORDS.lanes)))
            words = k.select(key < self.block.length, words, none)
        k.set(held, words)

    def _source(self, piece: Piece, chunk: Chunk, key: Val) -> Val:
        """The element of the operand at which a chunk begins; a key past the end stands for the
        last."""
        k, parts, block = self.k, self.form.parts, self.block
        inside = chunk.chunk * CHUNK
        if not self.form.tiling.is_even:
            key = k.op("max", k.op("min", key, block.length - 1), 0)
        if piece.operand == "k_shared":
            return (block.row * parts.keys + key) * piece.count + inside
        if not self.form.is_paged:
            line = (block.row * parts.kv_heads + self.key_head) * parts.keys + key
            return line * piece.count + inside
        ix = self.job.indexer
        where = (ix.atom(block.row, parts.batch), ix.atom(key, parts.keys))
        found = self.job.pull.value(parts.at["read"], where)
        slot = ix.value(ix.clamp(found, parts.at["k"].type.shape[0]))
        return (slot * parts.kv_heads + self.key_head) * piece.count + inside

    def land(self, tile: Tile) -> None:
        """What was asked for of the tile is there, for every lane of the group; so are the
        queries."""
        k, number = self.k, 0
        if self.form.is_async:
            k.do("wait", self.token, pending=0)
        else:
            for piece in tile.pieces:
                for chunk in self._chunks(piece.count, self.form.tile):
                    with self.job.when(self._truth() if chunk.is_there is None else chunk.is_there):
                        to = self._to(tile, piece, chunk) >> 1
                        k.store(tile.array, to, k.copy(tile.held[number]))
                    number += 1
        k.barrier()
