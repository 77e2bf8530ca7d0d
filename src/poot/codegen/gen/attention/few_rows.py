"""Schedule "key_blocks" where few query rows share a key head: keys and values are read as they
lie, in the order of memory, which is what a decode waits for.

A pair is a query row of a key head of the group. For each key, the lanes run along its channels and
leave each pair's products in workgroup memory; as many sums as a vector has lanes are then added
up together. Scores lie as [key, pair], with pairs filled up to a power of two or to whole vectors,
so that a vector holds whole sets of pairs: the softmax step never leaves the lanes, but for one
join where several keys stand in a vector. A key's values are added to all rows of its head at once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from poot.codegen.gen.attention.key_group import (
    Group,
    each_head,
    fetch,
    key_parts,
    placed,
    tile_key,
    visited,
)
from poot.codegen.gen.attention.keys import key_range
from poot.codegen.gen.attention.score import score
from poot.codegen.gen.attention.softmax import NEG_INF, step, weight_under
from poot.codegen.gen.index import ZERO, Index
from poot.codegen.gen.lanes import across, part
from poot.codegen.kir.build import BOOL, I32, KernelBuilder, Val

# Vectors of scores whose maxima are found together, so that one need not wait for the other.
TOGETHER = 4
STREAMS = 4


@dataclass(frozen=True, slots=True)
class Pairs:
    """How a group's pairs lie in vectors: `filled` pairs a key; a vector of scores holds `keys` of
    them whole, or one of `vectors` parts of a key's."""

    count: int
    filled: int
    lanes: int

    @property
    def keys(self) -> int:
        return max(1, self.lanes // self.filled)

    @property
    def vectors(self) -> int:
        return max(1, self.filled // self.lanes)


def pairs_of(g: Group) -> Pairs:
    return Pairs(g.rows * g.heads, filled_pairs(g.rows * g.heads, g.lanes), g.lanes)


def filled_pairs(count: int, lanes: int) -> int:
    """Pairs, filled up to a power of two within a vector, else to whole vectors."""
    return -(-count // lanes) * lanes if count > lanes else 1 << (count - 1).bit_length()


def declare(g: Group) -> None:
    """The group's arrays: queries as they lie, scores, each pair's products, and the states."""
    k, pairs = g.job.k, pairs_of(g)
    held = max(pairs.filled, g.lanes)
    k.shared("queries", "f32", g.parts.width * pairs.count)
    k.shared("products", "f32", held * g.lanes)
    k.shared("scores", "f32", g.block * pairs.filled)
    k.shared("acc", "f32", g.channels * pairs.count)
    for name in ("peaks", "sums", "shrinks"):
        k.shared(name, "f32", held)


def empty_states(g: Group) -> None:
    """States before the first key. Pairs that are not there have no products."""
    k, pairs = g.job.k, pairs_of(g)
    for first in range(0, max(pairs.filled, g.lanes), g.lanes):
        k.store("peaks", k.lane() + first, NEG_INF)
        k.store("sums", k.lane() + first, 0.0)
    for key in range(pairs.keys):
        for pair in range(pairs.count, pairs.filled):
            k.store("products", k.lane() + (key * pairs.filled + pair) * g.lanes, 0.0)


def visit(g: Group, start: Val, end: Val, count: Val) -> None:
    """One block of keys, for all key heads of the group."""
    k = g.job.k
    score_keys(g, start, end)
    fold_scores(g, start, end)
    k.barrier()
    if g.has_streams:
        with k.if_(count >= g.block):
            add_streams(g)
        with k.if_(count < g.block), each_head(g) as one:
            add_values(one, start, count)
    else:
        with each_head(g) as one:
            add_values(one, start, count)
    k.barrier()


def score_keys(g: Group, start: Val, end: Val) -> None:
    """scores[key, pair] of a block: plain products, for all key heads of the group."""
    k, pairs = g.job.k, pairs_of(g)
    with k.for_(0, g.block // pairs.keys, name="t") as tile:
        with _each(g, pairs.keys) as j:
            within = _key_at(g, tile * pairs.keys + j)
            key = tile_key(g, start, end, within)
            here = placed(g, [key], [within])
            shared = _elements(here, key, range(g.parts.width - g.parts.shared, g.parts.width))
            with each_head(here) as one:
                fetch(one, "k", within)
                _products(one, key, j, shared)
        k.barrier()
        for n in range(pairs.vectors):
            first = n * g.lanes
            sums = [k.load("products", k.lane() + (first + i) * g.lanes) for i in range(g.lanes)]
            place = tile * pairs.vectors * g.lanes + k.lane() + first
            k.store("scores", place, across(k, sums, operator.add))
        k.barrier()


def _key_at(g: Group, place: Val) -> Val:
    """Which of a block's keys stands in a place of the scores. Pool slots are read in as many runs
    at once as `STREAMS`, so that memory finds the next of one while another is read."""
    if not g.has_streams:
        return place
    ix = g.job.indexer
    at, run = ix.divmod(ix.atom(place, g.block), STREAMS)
    return ix.value(run * (g.block // STREAMS) + at)


@contextmanager
def _each(g: Group, count: int) -> Generator[Val]:
    """The body for 0 .. count - 1; without a loop where there is one."""
    if count == 1:
        yield g.job.k.lit(0, I32)
        return
    with g.job.k.for_(0, count, name="j") as j:
        yield j


def _elements(g: Group, key: Index, channels: range) -> list[tuple[int, int, Val]]:
    """(first channel, how many, values) of each of a key's vectors that begins among `channels`."""
    k, ix = g.job.k, g.job.indexer
    out: list[tuple[int, int, Val]] = []
    for base, width, element in key_parts(g):
        if base in channels:
            lane = ix.atom(k.lane(), width)
            out.append((base, width, part(k, width, g.lanes, partial(element, key, lane))))
    return out


def _products(g: Group, key: Index, j: Val, shared: list[tuple[int, int, Val]]) -> None:
    """Each row's products with one key, summed over vectors of channels."""
    k, ix, pairs = g.job.k, g.job.indexer, pairs_of(g)
    own = _elements(g, key, range(g.parts.width - g.parts.shared))
    for r in range(g.rows):
        total: Val | None = None
        for base, width, x in (*own, *shared):
            at = ix.value(g.query(Index((), r), ix.atom(k.lane(), g.lanes) + base))
            query = part(k, width, g.lanes, partial(k.load, "queries", at))
            total = query * x if total is None else k.fma(query, x, total)
        assert total is not None
        pair = ix.value(g.member * g.rows + r) + j * pairs.filled
        k.store("products", pair * g.lanes + k.lane(), total)


def fold_scores(g: Group, start: Val, end: Val) -> None:
    """One softmax step of all pairs: scores become weights, in place; peaks, sums and shrinks
    follow. Where a vector holds several keys, each lane sums its own."""
    k, pairs = g.job.k, pairs_of(g)
    runs = g.block // pairs.keys // TOGETHER
    for n in range(pairs.vectors):
        state = k.lane() + n * g.lanes
        seen = _Seen.of(g, end, n)
        most = k.var(k.lit(NEG_INF), name="most")
        with k.for_(0, runs, name="t") as t:
            found: list[Val] = []
            for i in range(TOGETHER):
                place, value = _place(g, t * TOGETHER + i, n), seen.score(start, t * TOGETHER + i)
                k.store("scores", place, value)
                found.append(value)
            k.set(most, k.op("nanmax", most, _joined(k, found, partial(k.op, "nanmax"))))
        joined, apart = k.copy(most), pairs.filled
        while apart < g.lanes:
            joined = k.op("nanmax", joined, k.op("shuffle_xor", joined, mask=apart))
            apart *= 2
        got = step(k, k.load("peaks", state), joined)
        k.store("peaks", state, got.peak)
        k.store("shrinks", state, got.shrink)
        total = k.var(k.load("sums", state) * got.shrink, name="total")
        with k.for_(0, runs, name="t") as t:
            weights: list[Val] = []
            for i in range(TOGETHER):
                place = _place(g, t * TOGETHER + i, n)
                weight = weight_under(k, k.load("scores", place), got.peak)
                k.store("scores", place, weight)
                weights.append(weight)
            k.set(total, total + _joined(k, weights, operator.add))
        k.store("sums", state, total)


def _joined(k: KernelBuilder, values: list[Val], join: Callable[[Val, Val], Val]) -> Val:
    """All values joined, neighbours first."""
    while len(values) > 1:
        odd = values[len(values) & ~1 :]
        values = [join(x, y) for x, y in zip(values[::2], values[1::2], strict=False)] + odd
    return values[0]


def _place(g: Group, tile: Val, n: int) -> Val:
    """Where the n-th vector of a run of keys has its scores."""
    return (tile * pairs_of(g).vectors + n) * g.lanes + g.job.k.lane()


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the pairs of the n-th vector of a key see: each lane's row and place, and its bounds."""

    g: Group
    n: int
    where: tuple[Index, Index, Index]
    key: Index
    is_there: Val
    low: Val
    high: Val

    @classmethod
    def of(cls, g: Group, end: Val, n: int) -> _Seen:
        k, ix, pairs = g.job.k, g.job.indexer, pairs_of(g)
        key, pair = ix.divmod(ix.atom(k.lane(), g.lanes) + n * g.lanes, pairs.filled)
        is_there = k.lit(True, BOOL)
        if pairs.count < pairs.filled:
            is_there = ix.value(pair) < pairs.count
            pair = ix.atom(k.op("min", ix.value(pair), pairs.count - 1), pairs.count)
        member, row = ix.divmod(pair, g.rows)
        where = replace(g, member=member, head=g.head + member).where(row)
        low, high = key_range(g.job, g.parts, g.row, where[2])
        return cls(g, n, where, key, is_there, low, k.op("min", high, end))

    def score(self, start: Val, tile: Val) -> Val:
        """The scores of a run of keys with scale and mask, -inf where a pair doesn't see its key,
        or isn't there."""
        g, k, ix = self.g, self.g.job.k, self.g.job.indexer
        product = k.load("scores", _place(g, tile, self.n))
        within = _key_at(g, tile * pairs_of(g).keys + ix.value(self.key))
        if g.slots is not None:
            is_seen = (k.load("slot_keys", within) >= 0) & self.is_there
            made = score(g.job, g.parts, product, self.where, Index())
            return k.select(is_seen, made, k.lit(NEG_INF))
        at = start + within
        is_seen = (at < self.high) & self.is_there
        if g.parts.window is not None:
            is_seen = is_seen & (at >= self.low)
        key = ix.atom(at, g.parts.keys)
        if "bias" not in g.parts.at and "mask" not in g.parts.at:
            made = score(g.job, g.parts, product, self.where, key)
            return k.select(is_seen, made, k.lit(NEG_INF))
        value = k.var(k.lit(NEG_INF), name="s")
        with k.if_(is_seen):
            k.set(value, score(g.job, g.parts, product, self.where, key))
        return k.copy(value)


def add_values(g: Group, start: Val, count: Val) -> None:
    """acc[row, channel] = acc * shrink + weights . values, for one key head: all channels of as
    many rows as the registers hold."""
    k, ix, pairs = g.job.k, g.job.indexer, pairs_of(g)
    acc = ix.value(g.channel(ZERO, ZERO))
    first = ix.value(g.member * g.rows)
    vectors = g.channels // g.lanes
    wide = -(-vectors // -(-vectors // most_sums(g.lanes)))
    tall = strip_of(g.rows, most_sums(g.lanes) // wide)
    for top in range(0, g.rows, tall):
        rows = range(top, min(g.rows, top + tall))
        for left in range(0, vectors, wide):
            columns = range(left, min(vectors, left + wide))
            places = [
                [r * g.channels + v * g.lanes + k.lane() + acc for v in columns] for r in rows
            ]
            sums: list[list[Val]] = []
            for r, mine in zip(rows, places, strict=True):
                shrink = k.load("shrinks", first + r)
                sums.append([k.var(k.load("acc", p) * shrink, name="o") for p in mine])
            stop = k.lit(g.block, I32) if g.has_streams else count
            with k.for_(0, stop, name="j") as j:
                within = _key_at(g, j)
                with visited(g, start, within, count) as key:
                    here = placed(g, [key], [within])
                    values = [_values(here, key, v) for v in columns]
                    for r, mine in zip(rows, sums, strict=True):
                        weight = k.load("scores", j * pairs.filled + first + r)
                        for total, value in zip(mine, values, strict=True):
                            k.set(total, k.fma(weight, value, total))
            for mine, own in zip(places, sums, strict=True):
                for place, total in zip(mine, own, strict=True):
                    k.store("acc", place, total)


def add_streams(g: Group) -> None:
    """As `add_values` for all key heads and a whole block, one key of each run at a time, so that
    a pool slot is read whole; states stay in memory meanwhile."""
    k, ix, pairs = g.job.k, g.job.indexer, pairs_of(g)
    vectors, wide = g.channels // g.lanes, most_sums(g.lanes) // (STREAMS + 1)
    with each_head(g) as one:
        acc, first = ix.value(one.channel(ZERO, ZERO)), ix.value(one.member * g.rows)
        for r in range(g.rows):
            shrink = k.load("shrinks", first + r)
            for v in range(vectors):
                place = acc + (r * g.channels + v * g.lanes) + k.lane()
                k.store("acc", place, k.load("acc", place) * shrink)
    with k.for_(0, g.block // STREAMS, name="j") as j:
        within = [j + run * (g.block // STREAMS) for run in range(STREAMS)]
        keys = [ix.atom(place, g.parts.keys) for place in within]
        here = placed(g, keys, within)
        with each_head(here) as one:
            for place in within:
                fetch(one, "v", place)
            acc, first = ix.value(one.channel(ZERO, ZERO)), ix.value(one.member * g.rows)
            for left in range(0, vectors, wide):
                columns = range(left, min(vectors, left + wide))
                values = [[_values(one, key, v) for v in columns] for key in keys]
                for r in range(g.rows):
                    at = (j * STREAMS) * pairs.filled + first + r
                    weights = [k.load("scores", at + n * pairs.filled) for n in range(STREAMS)]
                    for n, v in enumerate(columns):
                        place = acc + (r * g.channels + v * g.lanes) + k.lane()
                        total = k.load("acc", place)
                        for weight, mine in zip(weights, values, strict=True):
                            total = k.fma(weight, mine[n], total)
                        k.store("acc", place, total)


def _values(g: Group, key: Index, vector: int) -> Val:
    """A vector of a key's values."""
    width = min(g.lanes, g.parts.value_width - vector * g.lanes)
    c = g.job.indexer.atom(g.job.k.lane(), width) + vector * g.lanes
    return part(g.job.k, width, g.lanes, partial(g.keys.value, key, c))


def most_sums(lanes: int) -> int:
    """Vectors of sums that stay in registers: of 32 where vectors hold 16 lanes (AVX-512), else of
    16, some left to what is added."""
    return 24 if lanes >= 16 else 10


def strip_of(rows: int, most: int) -> int:
    """Rows of a strip, at most `most`, evened out over the strips."""
    return -(-rows // -(-rows // max(1, most)))


def join_sums(g: Group) -> None:
    """Each pair's sum, whole, once no key is left."""
    k, pairs = g.job.k, pairs_of(g)
    total, apart = k.load("sums", k.lane()), pairs.filled
    while apart < g.lanes:
        total = total + k.op("shuffle_xor", total, mask=apart)
        apart *= 2
    if pairs.filled < g.lanes:
        k.store("sums", k.lane(), total)
        k.barrier()
