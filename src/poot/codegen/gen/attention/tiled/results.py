"""What a consumer's state comes to: sink, division, outputs, log-sum-exp; a lane's own elements."""

from __future__ import annotations

import math

from poot.codegen.gen.attention.tiled.consumer import Consumer
from poot.codegen.gen.epilogue import forward
from poot.codegen.gen.index import Index
from poot.codegen.gen.job import needed_by
from poot.codegen.gen.math import log
from poot.codegen.gen.sinks import Sink
from poot.codegen.kir.build import U32, KernelBuilder, Val
from poot.codegen.kir.nodes import Ty

_LN2 = math.log(2.0)


def store(consumer: Consumer, sinks: list[Sink]) -> None:
    """Divides and stores the lane's elements of two rows. A row without a visible key is 0/0, NaN;
    with a sink it is 0."""
    k, parts, place = consumer.k, consumer.form.parts, consumer.place
    totals: list[Val] = []
    for total in consumer.total:
        value = k.copy(total)
        for mask in (1, 2):
            value = value + k.op("shuffle_xor", value, mask=mask)
        totals.append(value)
    acc = k.copy(consumer.acc)
    whole = [s for s in sinks if _takes_rows(consumer, s)]
    rest = [s for s in sinks if s not in whole]
    for r in (0, 1):
        row, most = place.row + 8 * r, k.copy(consumer.most[r])
        if whole:
            there = _where(consumer, k.op("min", row, parts.rows - 1))
            _store_rows(consumer, whole, acc, r, _shrink(consumer, there, most, totals[r]))
        if not rest and parts.lse is None:
            continue
        with k.if_(row < parts.rows):
            where = _where(consumer, row)
            if parts.lse is not None:
                with k.if_(place.column.eq(0)):
                    _store_lse(consumer, sinks, where, _log_sum(consumer, most, totals[r]))
            shrink = _shrink(consumer, where, most, totals[r])
            for n in range(consumer.form.width // 8):
                pair = [k.extract(acc, 4 * n + 2 * r + e) * shrink for e in (0, 1)]
                _store_pair(consumer, rest, where, 8 * n, pair)


def _takes_rows(consumer: Consumer, sink: Sink) -> bool:
    """Whether an output is the attention's own, in 16 bits: a lane then stores 16 bytes at once."""
    is_own = sink.source.id == consumer.form.parts.out.id
    is_plain = is_own and sink.update is None and sink.ok is None and sink.memory.cell.per == 1
    return is_plain and sink.memory.cell.param in ("f16", "bf16")


def _store_rows(consumer: Consumer, sinks: list[Sink], acc: Val, r: int, shrink: Val) -> None:
    """Row r of the lane's two. Four lanes hold two channels each of four blocks of eight: they
    trade, so that each has eight neighbouring channels of one block."""
    k, parts, place = consumer.k, consumer.form.parts, consumer.place
    dtype = sinks[0].memory.cell.param
    number = place.column >> 1
    is_odd, is_high = (number & 1).ne(0), (number & 2).ne(0)
    row = place.row + 8 * r
    b, h = consumer.block.row, consumer.block.head
    line = ((b * parts.heads + h) * parts.rows + row) * parts.width
    for first in range(0, parts.width // 8, 4):
        words: list[Val] = []
        for n in range(first, first + 4):
            pair = [k.extract(acc, 4 * n + 2 * r + e) * shrink for e in (0, 1)]
            words.append(k.bitcast(k.cast(k.vec(*pair), dtype), U32))
        words = _traded(k, words, is_odd, is_high)
        with k.if_(row < parts.rows):
            at = line + (number * 8 + first * 8)
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


def _where(consumer: Consumer, row: Val) -> tuple[Index, Index, Index]:
    ix, parts, block = consumer.job.indexer, consumer.form.parts, consumer.block
    return (
        ix.atom(block.row, parts.batch),
        ix.atom(block.head, parts.heads),
        ix.atom(row, parts.rows),
    )


def _natural(consumer: Consumer, most: Val) -> Val:
    """A maximum as a score: where scale alone is asked, maxima are of products."""
    return most * consumer.form.parts.scale if consumer.is_plain else most


def _log_sum(consumer: Consumer, most: Val, total: Val) -> Val:
    k = consumer.k
    found = _natural(consumer, most) + log(k, total)
    return k.select(total.eq(0.0), k.lit(-math.inf), found)


def _shrink(consumer: Consumer, where: tuple[Index, ...], most: Val, total: Val) -> Val:
    k, parts = consumer.k, consumer.form.parts
    if "sink" not in parts.at:
        return k.op("rcp", total)
    logit = consumer.job.pull.value(parts.at["sink"], (where[1],))
    own = k.select(total.eq(0.0), k.lit(-math.inf), _natural(consumer, most))
    top = k.op("nanmax", own, logit)
    shrink = k.select(total.eq(0.0), k.lit(0.0), k.op("exp2", (own - top) * (1 / _LN2)))
    return shrink / k.fma(total, shrink, k.op("exp2", (logit - top) * (1 / _LN2)))


def _is_of_lse(consumer: Consumer, sink: Sink) -> bool:
    parts = consumer.form.parts
    if parts.lse is None:
        return False
    return parts.out.id not in needed_by(consumer.job.request.body, [sink.source])


def _store_lse(
    consumer: Consumer, sinks: list[Sink], where: tuple[Index, Index, Index], lse: Val
) -> None:
    job, parts = consumer.job, consumer.form.parts
    assert parts.lse is not None
    job.pull.leaves[parts.lse.id] = lambda coords: lse
    for sink in sinks:
        if _is_of_lse(consumer, sink):
            coords = forward(job, parts.lse, sink.source, where)
            sink.store(job, coords, job.pull.value(sink.source, coords))


def _store_pair(
    consumer: Consumer,
    sinks: list[Sink],
    where: tuple[Index, Index, Index],
    first: int,
    pair: list[Val],
) -> None:
    job, parts = consumer.job, consumer.form.parts
    half = job.indexer.atom(consumer.place.column >> 1, 4)
    for sink in sinks:
        if _is_of_lse(consumer, sink):
            continue
        for e, value in enumerate(pair):
            rounded = job.numbers.rounded(value, parts.out.type.dtype)
            job.pull.leaves[parts.out.id] = lambda coords, rounded=rounded: rounded
            coords = forward(job, parts.out, sink.source, (*where, half * 2 + (first + e)))
            sink.store(job, coords, job.pull.value(sink.source, coords))
