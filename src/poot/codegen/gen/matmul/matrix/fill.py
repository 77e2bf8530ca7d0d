"""What puts operands into workgroup memory: lanes that copy 16 bytes at a time, or compute.

Element (line, c) of a panel lies at line * PANEL + (c ^ (line & 7) * CHUNK): the swizzle of 128
bytes, as matrix loads, warpgroup products and tensor maps have it. Terms past the depth are zero
on both sides; rows and columns past the end repeat the last ones, and nothing of them is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from poot.codegen.gen.index import Coords, Index
from poot.codegen.gen.job import Job
from poot.codegen.gen.matmul.matrix.shape import CHUNKS, Place, Side, Tile
from poot.codegen.gen.matmul.parts import left_coords, right_coords, stretched_batch
from poot.codegen.kir.build import U32, KernelBuilder, Val
from poot.codegen.kir.nodes import Ty
from poot.planner.matrix import CHUNK, PANEL

_HIGH = 0xFFFF0000
# Chunks whose loads stand side by side.
_BESIDE = 4


@dataclass(frozen=True, slots=True)
class Filler:
    """Lanes 0 .. threads - 1 (`lane`) that fill tiles in the arrays of a dtype."""

    job: Job
    tile: Tile
    lane: Val
    threads: int
    dtype: str

    def copy(
        self, side: Side, place: Place, step: Index, array: str, to: Val, *, is_async: bool
    ) -> None:
        """A side's tile of a step, to element `to` of an array: copies begin behind the lanes'
        backs, or go by their registers."""
        assert side.source is not None, side
        k, name = self.job.k, side.source

        def one(chunk: _Chunk, n: int) -> None:
            at, slot = self._address(side, place, chunk, n), to + (n * side.elems) + chunk.slot
            is_sure = chunk.is_there.literal is True
            if is_async:
                there = () if is_sure else (chunk.is_there,)
                k.do("cp_async", slot, at, *there, dst=array, mem=name, nbytes=16,
                     bypass=True)  # fmt: skip
                return
            read = k.load(name, at, CHUNK)
            if not is_sure:
                words = k.bitcast(read, Ty("u32", 4))
                held = [k.select(chunk.is_there, k.extract(words, i), 0) for i in range(4)]
                read = k.bitcast(k.vec(*held), Ty(self.dtype, CHUNK))
            k.store(array, slot, read)

        def some(chunks: list[_Chunk]) -> None:
            for chunk in chunks:
                for n in range(side.parts):
                    one(chunk, n)

        self._each(side, place, step, some)

    def compute(self, side: Side, place: Place, step: Index, array: str, to: Val) -> None:
        """Computes a side's tile of a step, part by part."""
        k = self.job.k

        def some(chunks: list[_Chunk]) -> None:
            every = [self._values(side, place, chunk) for chunk in chunks]
            for chunk, values in zip(chunks, every, strict=True):
                for n, part in enumerate(split(k, values, side.parts, self.dtype)):
                    k.store(array, to + (n * side.elems) + chunk.slot, part)

        self._each(side, place, step, some)

    def _each(
        self, side: Side, place: Place, step: Index, body: Callable[[list[_Chunk]], object]
    ) -> None:
        """The body over the lane's chunks of a tile, a few at once."""
        k, ix = self.job.k, self.job.indexer
        total = side.extent * CHUNKS
        turns = -(-total // self.threads)
        beside = next(n for n in (_BESIDE, 2, 1) if turns % n == 0)

        def some(first: Index) -> None:
            body([self._chunk(side, place, step, first + n * self.threads) for n in range(beside)])

        if total < self.threads:
            with k.if_(self.lane < total):
                some(ix.atom(self.lane, total))
        elif turns == beside:
            some(ix.atom(self.lane, self.threads))
        else:
            with k.for_(0, turns // beside, unroll=1, name="f") as turn:
                own = ix.atom(self.lane, self.threads)
                some(ix.atom(turn, turns // beside) * (beside * self.threads) + own)

    def _chunk(self, side: Side, place: Place, step: Index, number: Index) -> _Chunk:
        ix, segment = self.job.indexer, self.tile.segment
        if side.is_turned:
            line, across = ix.divmod(number, side.extent // CHUNK)
            panel, chunk = ix.divmod(across, CHUNKS)
        else:
            line, chunk = ix.divmod(number, CHUNKS)
            across, panel = chunk, Index()
        turned = (ix.value(chunk) ^ (ix.value(line) & 7)) * CHUNK
        slot = ix.value(panel * (side.lines * PANEL) + line * PANEL) + turned
        if side.is_turned:
            term = step * PANEL + line
            there = ix.below(term, segment.depth)
            columns = self._run(place.col + across * CHUNK, segment.cols)
            return _Chunk(side, slot, [ix.bounded(term, segment.depth)] * CHUNK, columns,
                          [there] * CHUNK)  # fmt: skip
        extent = segment.rows if side.is_left else segment.cols
        start = place.row if side.is_left else place.col
        own = ix.bounded(start + line, extent)
        first_term = step * PANEL + chunk * CHUNK
        whole = side.source is not None or segment.depth % CHUNK == 0
        terms = self._run(first_term, segment.depth, is_whole=whole)
        there = [ix.below(first_term if whole else first_term + e, segment.depth)
                 for e in range(CHUNK)]  # fmt: skip
        return _Chunk(side, slot, terms, [own] * CHUNK, there)

    def _run(self, first: Index, extent: int, *, is_whole: bool = False) -> list[Index]:
        """CHUNK neighbours from a multiple of CHUNK on, held below extent, or with `is_whole` those
        of a chunk that begins below it."""
        ix = self.job.indexer
        if is_whole:
            extent = -(-extent // CHUNK) * CHUNK
        if extent % CHUNK:
            return [ix.bounded(first + e, extent) for e in range(CHUNK)]
        chunk, _ = ix.divmod(first, CHUNK)
        held = ix.bounded(chunk, extent // CHUNK) * CHUNK
        return [held + e for e in range(CHUNK)]

    def _values(self, side: Side, place: Place, chunk: _Chunk) -> list[Val]:
        """A chunk's elements, f32, zero past the depth."""
        job, segment = self.job, self.tile.segment
        out: list[Val] = []
        for e in range(CHUNK):
            line, term = chunk.lines(e)
            if side.is_left:
                own = segment.own(job, place.batch, line, Index())
                coords: Coords = left_coords(segment, own, term)
            else:
                own = segment.own(job, place.batch, Index(), line)
                coords = right_coords(side.product, own, term)
            value = job.pull.value(side.var, coords)
            out.append(job.k.select(chunk.there[e], value, job.k.lit(0.0)))
        return out

    def _address(self, side: Side, place: Place, chunk: _Chunk, part: int) -> Val:
        """The element of a side's memory where a chunk of one of its parts begins."""
        ix = self.job.indexer
        line, term = chunk.lines(0)
        batches, rows, pitch = side.memory
        batch = batch_of(self.job, self.tile, side, place)
        first, within = (term, line) if side.is_turned else (line, term)
        at = ((batch * rows + first) * pitch) + within
        return ix.value(at) + part * (batches * rows * pitch)


def batch_of(job: Job, tile: Tile, side: Side, place: Place) -> Index:
    """The number of a side's matrix among its batches."""
    shape, batch = side.var.type.shape, Index()
    own = tile.segment.own(job, place.batch, Index(), Index())
    for n, c in zip(shape[:-2], stretched_batch(shape, own), strict=True):
        batch = batch * n + c
    return batch


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Eight neighbours of a tile: where they lie in its panels, their terms and rows (columns), and
    which of them are there."""

    side: Side
    slot: Val
    terms: list[Index]
    across: list[Index]
    there: list[Val]

    def lines(self, e: int) -> tuple[Index, Index]:
        """(row or column, term) of an element."""
        return self.across[e], self.terms[e]

    @property
    def is_there(self) -> Val:
        return self.there[0]


def split(k: KernelBuilder, values: list[Val], parts: int, dtype: str) -> list[Val]:
    """Eight f32 numbers as `parts` vectors of eight of a dtype that add up to them. All but the
    last are cut, not rounded: none overflows, and rests are exact. An infinity is all in the first;
    a NaN is in the second too, whose first may be an infinity."""
    out: list[Val] = []
    rest = values
    for _ in range(parts - 1):
        bits = [k.bitcast(v, U32) for v in rest]
        pairs = zip(bits[::2], bits[1::2], strict=True)
        out.append(_together(k, [(a >> 16) | (b & _HIGH) for a, b in pairs], dtype))
        high = [k.bitcast(b & _HIGH, values[0].ty) for b in bits]
        rest = [k.select(v.eq(h), k.lit(0.0), v - h) for v, h in zip(rest, high, strict=True)]
    pairs = zip(rest[::2], rest[1::2], strict=True)
    words = [k.bitcast(k.cast(k.vec(a, b), dtype), U32) for a, b in pairs]
    return [*out, _together(k, words, dtype)]


def _together(k: KernelBuilder, words: list[Val], dtype: str) -> Val:
    return k.bitcast(k.vec(*words), Ty(dtype, CHUNK))
