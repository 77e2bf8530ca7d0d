"""One block of slots after another: keys, dot products, one softmax step a row, weighted values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from poot.codegen.gen.attention.keys import Keys
from poot.codegen.gen.attention.score import score
from poot.codegen.gen.attention.softmax import NEG_INF, step, weight_of
from poot.codegen.gen.index import Index
from poot.codegen.gen.selection.tile import States, Tile
from poot.codegen.kir.build import I32, U32, Val

# The weight of a key that a row does not visit.
UNSEEN = -1.0


class Visited(Protocol):
    """The slots of a tile: how many, the key of each (-1 for none), and which of the tile's query
    rows list it."""

    @property
    def count(self) -> Val: ...

    def key(self, slot: Val) -> Val: ...

    def mark(self, slot: Val) -> Val: ...


def attend(tile: Tile, slots: Visited, states: States, split: Index, splits: int) -> None:
    """Every block of slots, or of the split's share of them. Control is uniform in the group."""
    k, block = tile.job.k, tile.block
    keys = Keys(tile.job, tile.parts, tile.b, tile.kv)
    first, end = k.lit(0, I32), slots.count
    if splits > 1:
        blocks = (end + (block - 1)) // block
        size = ((blocks + (splits - 1)) // splits) * block
        first = size * tile.job.indexer.value(split)
        end = k.op("min", first + size, end)
    with k.for_(first, end, block, name="t") as start:
        _place(tile, slots, start, end)
        k.barrier()
        for strip in range(0, tile.members, tile.strip):
            many = min(tile.strip, tile.members - strip)
            _products(tile, keys, strip, many)
            k.barrier()
            _scores(tile, strip, many)
            k.barrier()
        _softmax(tile)
        _values(tile, keys, states, k.op("min", end - start, block))
        k.barrier()


def _place(tile: Tile, slots: Visited, start: Val, end: Val) -> None:
    """keys[j], and marks[j] where rows have lists of their own."""
    k = tile.job.k
    with k.for_(k.lane(), tile.block, tile.lanes, name="j") as j:
        key, mark = k.var(k.lit(-1, I32), name="key"), k.var(k.lit(0, I32), name="mark")
        with k.if_(start + j < end):
            k.set(key, slots.key(start + j))
            if tile.rows > 1:
                k.set(mark, slots.mark(start + j))
        k.store("keys", j, key)
        if tile.rows > 1:
            k.store("marks", j, mark)


def _products(tile: Tile, keys: Keys, strip: int, many: int) -> None:
    """dots[n, lane]: the lane's share of the product of row strip + n and slot lane % block."""
    k, ix, parts = tile.job.k, tile.job.indexer, tile.parts
    slot, share = k.lane() % tile.block, k.lane() // tile.block
    sums = [k.var(k.lit(0.0), name="s") for _ in range(many)]
    key = k.load("keys", slot)
    own = parts.width - parts.shared

    def fours(offset: int, extent: int, element: Callable[[Index, Index], Val]) -> None:
        at = ix.atom(k.copy(key), parts.keys)
        if extent >= 4:
            with k.for_(share, extent // 4, tile.shares, name="d") as d:
                base = ix.atom(d, extent // 4) * 4
                four = [element(at, base + i) for i in range(4)]
                _add(tile, strip, sums, four, base + offset)
        if extent % 4:
            rest = [Index((), i) for i in range(extent // 4 * 4, extent)]
            with k.if_(share.eq(0)):
                for d in rest:
                    _add(tile, strip, sums, [element(at, d)], d + offset)

    with k.if_(key >= 0):
        fours(0, own, keys.key)
    if parts.shared:
        with k.if_(key >= 0):
            fours(own, parts.shared, keys.shared)
    for n, total in enumerate(sums):
        k.store("dots", k.lane() + n * tile.lanes, total)


def _add(tile: Tile, strip: int, sums: list[Val], elements: list[Val], first: Index) -> None:
    """Adds the products of neighbouring elements of a key with every query of the strip."""
    k, ix = tile.job.k, tile.job.indexer
    for n, total in enumerate(sums):
        base = first + (strip + n) * tile.stride
        if len(elements) == 4 and all(c % 4 == 0 for _, c in base.terms) and base.const % 4 == 0:
            four = k.load("queries", ix.value(base), 4)
            query = [k.extract(four, i) for i in range(4)]
        else:
            query = [k.load("queries", ix.value(base + i)) for i in range(len(elements))]
        part = query[0] * elements[0]
        for q, x in zip(query[1:], elements[1:], strict=True):
            part = k.fma(q, x, part)
        k.set(total, total + part)


def _is_seen(tile: Tile, n: Val, slot: Val) -> Val:
    """Whether row n visits the slot's key."""
    k = tile.job.k
    key = k.load("keys", slot)
    if tile.rows == 1:
        return key >= 0
    row = n // tile.heads
    mark = (k.bitcast(k.load("marks", slot), U32) >> k.bitcast(row, U32)) & 1
    return (key >= 0) & mark.ne(0) & (key < k.load("limits", row))


def _scores(tile: Tile, strip: int, many: int) -> None:
    """weights[n, slot] of the strip: scores, -inf where the row does not visit the slot."""
    k, ix = tile.job.k, tile.job.indexer
    with k.for_(k.lane(), many * tile.block, tile.lanes, name="e") as e:
        n, slot = e // tile.block, e % tile.block
        total = k.load("dots", n * tile.lanes + slot)
        for share in range(1, tile.shares):
            total = total + k.load("dots", n * tile.lanes + slot + share * tile.block)
        row = ix.atom(n + strip, tile.members)
        where, _ = tile.where(row)
        value = score(tile.job, tile.parts, total, where, Index())
        seen = _is_seen(tile, n + strip, slot)
        k.store("weights", e + strip * tile.block, k.select(seen, value, k.lit(NEG_INF)))


def _softmax(tile: Tile) -> None:
    """Scores become weights, in place, UNSEEN where a row does not visit; peaks, sums and shrinks
    follow."""
    k, block = tile.job.k, tile.block
    with k.for_(k.lane(), tile.members, tile.lanes, name="n") as n:
        most = k.var(k.lit(NEG_INF), name="most")
        with k.for_(0, block, name="j") as j:
            k.set(most, k.op("nanmax", most, k.load("weights", n * block + j)))
        got = step(k, k.load("peaks", n), k.copy(most))
        k.store("peaks", n, got.peak)
        k.store("shrinks", n, got.shrink)
    k.barrier()
    with k.for_(k.lane(), tile.members * block, tile.lanes, name="e") as e:
        n, slot = e // block, e % block
        weight = weight_of(k, k.load("weights", e), k.load("peaks", n))
        k.store("weights", e, k.select(_is_seen(tile, n, slot), weight, k.lit(UNSEEN)))
    k.barrier()
    with k.for_(k.lane(), tile.members, tile.lanes, name="n") as n:
        total = k.var(k.lit(0.0), name="sum")
        with k.for_(0, block, name="j") as j:
            weight = k.load("weights", n * block + j)
            k.set(total, total + k.select(weight < 0.0, k.lit(0.0), weight))
        k.store("sums", n, k.fma(k.load("sums", n), k.load("shrinks", n), total))


def _values(tile: Tile, keys: Keys, states: States, count: Val) -> None:
    """Every lane's channels of every row: sum * shrink + weights . values."""
    k, ix = tile.job.k, tile.job.indexer
    for n, sums in enumerate(states.sums):
        shrink = k.load("shrinks", n)
        for total in sums:
            k.set(total, total * shrink)
    with k.for_(0, count, name="j") as j:
        key = k.load("keys", j)
        with k.if_(key >= 0):
            at = ix.atom(k.copy(key), tile.parts.keys)
            weights = [k.load("weights", j + n * tile.block) for n in range(tile.members)]
            for m in range(len(states.sums[0])):
                channel, is_there = states.channel(m)
                with tile.job.when(is_there):
                    value = keys.value(at, channel)
                    for weight, sums in zip(weights, states.sums, strict=True):
                        total = k.fma(weight, value, sums[m])
                        if tile.rows > 1:
                            total = k.select(weight < 0.0, sums[m], total)
                        k.set(sums[m], total)
