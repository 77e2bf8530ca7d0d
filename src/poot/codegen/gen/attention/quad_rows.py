"""Finished query rows in accumulator fragments of which four lanes share a row: sink, division,
outputs, log-sum-exp; a lane stores its own elements."""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.codegen.gen.attention.blocks import Block
from poot.codegen.gen.attention.parts import Parts
from poot.codegen.gen.epilogue import forward
from poot.codegen.gen.index import Index
from poot.codegen.gen.job import Job, needed_by
from poot.codegen.gen.math import log
from poot.codegen.gen.sinks import Sink
from poot.codegen.kir.build import U32, KernelBuilder, Val
from poot.codegen.kir.nodes import Ty

_LN2 = math.log(2.0)


@dataclass(frozen=True, slots=True)
class Rows:
    """A lane's part of a block's state. `first` is its first query row, `beyond` what its others
    add to it; `column` is the first of its two channels in each eight. `acc` is a fragment of 16x8
    tiles; `most` and `total` have an entry a row, of the lane's own channels alone. `is_plain`:
    maxima are of products, which the scale still multiplies."""

    job: Job
    parts: Parts
    block: Block
    first: Val
    beyond: tuple[int, ...]
    column: Val
    acc: Val
    most: tuple[Val, ...]
    total: tuple[Val, ...]
    is_plain: bool

    def pair(self, line: int, block: int) -> list[Val]:
        """The lane's two channels of the block-th eight, in its line-th row."""
        across = self.parts.value_width // 8
        at = 4 * ((line >> 1) * across + block) + 2 * (line & 1)
        return [self.job.k.extract(self.acc, at + e) for e in (0, 1)]

    def where(self, row: Val) -> tuple[Index, Index, Index]:
        ix, parts = self.job.indexer, self.parts
        return (
            ix.atom(self.block.row, parts.batch),
            ix.atom(self.block.head, parts.heads),
            ix.atom(row, parts.rows),
        )


def store(rows: Rows, sinks: list[Sink]) -> None:
    """Divides and stores. A row without a visible key is 0/0, NaN; with a sink it is 0."""
    k, parts = rows.job.k, rows.parts
    whole = [s for s in sinks if _takes_rows(rows, s)]
    rest = [s for s in sinks if s not in whole]
    for line, more in enumerate(rows.beyond):
        total = k.copy(rows.total[line])
        for mask in (1, 2):
            total = total + k.op("shuffle_xor", total, mask=mask)
        row, most = rows.first + more, _natural(rows, k.copy(rows.most[line]))
        if whole:
            there = rows.where(k.op("min", row, parts.rows - 1))
            _store_rows(rows, whole, line, row, shrink_of(rows.job, parts, there, most, total))
        if not rest and parts.lse is None:
            continue
        with k.if_(row < parts.rows):
            where = rows.where(row)
            if parts.lse is not None:
                with k.if_(rows.column.eq(0)):
                    _store_lse(rows, sinks, where, log_sum(rows.job, most, total))
            shrink = shrink_of(rows.job, parts, where, most, total)
            for n in range(parts.value_width // 8):
                pair = [x * shrink for x in rows.pair(line, n)]
                _store_pair(rows, rest, where, 8 * n, pair)


def _takes_rows(rows: Rows, sink: Sink) -> bool:
    """Whether an output is the attention's own, in 16 bits: a lane then stores 16 bytes at once."""
    is_own = sink.source.id == rows.parts.out.id
    is_plain = is_own and sink.update is None and sink.ok is None and sink.memory.cell.per == 1
    is_short = sink.memory.cell.param in ("f16", "bf16")
    return is_plain and is_short and rows.parts.value_width % 32 == 0


def _store_rows(rows: Rows, sinks: list[Sink], line: int, row: Val, shrink: Val) -> None:
    """One of the lane's rows. Four lanes hold two channels each of four blocks of eight: they
    trade, so that each has eight neighbouring channels of one block."""
    k, parts = rows.job.k, rows.parts
    dtype = sinks[0].memory.cell.param
    number = rows.column >> 1
    is_odd, is_high = (number & 1).ne(0), (number & 2).ne(0)
    start = (
        (rows.block.row * parts.heads + rows.block.head) * parts.rows + row
    ) * parts.value_width
    for first in range(0, parts.value_width // 8, 4):
        words: list[Val] = []
        for n in range(first, first + 4):
            pair = [x * shrink for x in rows.pair(line, n)]
            words.append(k.bitcast(k.cast(k.vec(*pair), dtype), U32))
        words = _traded(k, words, is_odd, is_high)
        with k.if_(row < parts.rows):
            at = start + (number * 8 + first * 8)
            for sink in sinks:
                k.store(sink.memory.name, at, k.bitcast(k.vec(*words), Ty(dtype, 8)))


def _traded(k: KernelBuilder, words: list[Val], is_odd: Val, is_high: Val) -> list[Val]:
    """Word i of lane j becomes word j of lane i, among four lanes."""
    for mask, which in ((1, is_odd), (2, is_high)):
        out = list(words)
        for i in range(4):
            if i & mask:
                continue
            low, high = words[i], words[i | mask]
            got = k.op("shuffle_xor", k.select(which, low, high), mask=mask)
            out[i] = k.select(which, got, low)
            out[i | mask] = k.select(which, high, got)
        words = out
    return words


def _natural(rows: Rows, most: Val) -> Val:
    """A maximum as a score: where scale alone is asked, maxima are of products."""
    return most * rows.parts.scale if rows.is_plain else most


def log_sum(job: Job, most: Val, total: Val) -> Val:
    """The logarithm of a row's sum of e to its scores, `total` of them over e to `most`; -inf where
    no key is visible."""
    k = job.k
    return k.select(total.eq(0.0), k.lit(-math.inf), most + log(k, total))


def shrink_of(job: Job, parts: Parts, where: tuple[Index, ...], most: Val, total: Val) -> Val:
    """What a row's channels are multiplied by: 1 / total, a sink's weight in it."""
    k = job.k
    if "sink" not in parts.at:
        return k.op("rcp", total)
    logit = job.pull.value(parts.at["sink"], (where[1],))
    own = k.select(total.eq(0.0), k.lit(-math.inf), most)
    top = k.op("nanmax", own, logit)
    shrink = k.select(total.eq(0.0), k.lit(0.0), k.op("exp2", (own - top) * (1 / _LN2)))
    return shrink / k.fma(total, shrink, k.op("exp2", (logit - top) * (1 / _LN2)))


def _is_of_lse(rows: Rows, sink: Sink) -> bool:
    parts = rows.parts
    if parts.lse is None:
        return False
    return parts.out.id not in needed_by(rows.job.request.body, [sink.source])


def _store_lse(rows: Rows, sinks: list[Sink], where: tuple[Index, Index, Index], lse: Val) -> None:
    job, parts = rows.job, rows.parts
    assert parts.lse is not None
    job.pull.leaves[parts.lse.id] = lambda coords: lse
    for sink in sinks:
        if _is_of_lse(rows, sink):
            coords = forward(job, parts.lse, sink.source, where)
            sink.store(job, coords, job.pull.value(sink.source, coords))


def _store_pair(
    rows: Rows,
    sinks: list[Sink],
    where: tuple[Index, Index, Index],
    first: int,
    pair: list[Val],
) -> None:
    job, parts = rows.job, rows.parts
    half = job.indexer.atom(rows.column >> 1, 4)
    for sink in sinks:
        if _is_of_lse(rows, sink):
            continue
        for e, value in enumerate(pair):
            rounded = job.numbers.rounded(value, parts.out.type.dtype)
            job.pull.leaves[parts.out.id] = lambda coords, rounded=rounded: rounded
            coords = forward(job, parts.out, sink.source, (*where, half * 2 + (first + e)))
            sink.store(job, coords, job.pull.value(sink.source, coords))
