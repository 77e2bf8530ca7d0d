"""A group of schedule "key_blocks": its place among rows and heads, where its states lie, and the
keys of the block at hand, as they lie or turned."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from poot.codegen.gen.attention.keys import Keys
from poot.codegen.gen.attention.parts import Parts
from poot.codegen.gen.index import ZERO, Index
from poot.codegen.gen.job import Job
from poot.codegen.gen.lanes import part, turned
from poot.codegen.gen.selection.visits import Slots
from poot.codegen.kir.build import I32, Val

Element = Callable[[Index, Index], Val]


@dataclass(frozen=True, slots=True)
class Group:
    """One group's kernel in the making: its place, and how many of its rows there are. `head` and
    `keys` are those of key head `member` of the group's `heads`."""

    job: Job
    parts: Parts
    lanes: int
    block: int
    rows: int
    strip: int
    is_few: bool
    heads: int
    row: Index
    head: Index
    tile: Index
    count: Val
    keys: Keys
    slots: Slots | None
    member: Index = ZERO

    @property
    def has_streams(self) -> bool:
        """Whether a block's keys are read in several runs at once, and fetched a block ahead: pool
        slots lie in no order that the machine would find by itself."""
        return self.is_few and "read" in self.parts.at and self.slots is None

    @property
    def total(self) -> int:
        """Query rows of one key head."""
        return self.parts.repeat * self.parts.rows

    @property
    def filled(self) -> int:
        """Rows, filled up to whole vectors."""
        return -(-self.rows // self.lanes) * self.lanes

    @property
    def channels(self) -> int:
        """Value channels, filled up to whole vectors."""
        return -(-self.parts.value_width // self.lanes) * self.lanes

    def state(self, row: Val) -> Val:
        """Where a row's maximum and sum lie, or a vector's first row's."""
        stride = self.rows if self.is_few else self.filled
        return row + self.job.indexer.value(self.member * stride)

    def channel(self, row: Index, c: Index) -> Index:
        """Where a row's weighted values lie."""
        return (self.member * self.rows + row) * self.channels + c

    def query(self, row: Index, d: Index) -> Index:
        """Where a row's query lies: [d, row], or [row, d] where there are few."""
        place = row * self.parts.width + d if self.is_few else d * self.rows + row
        return self.member * (self.parts.width * self.rows) + place

    def where(self, within: Index) -> tuple[Index, Index, Index]:
        """(batch row, query head, query row) of a row of the tile."""
        ix = self.job.indexer
        flat = self.tile * self.rows + within
        if flat.high >= self.total:
            flat = ix.atom(ix.value(flat), self.total)
        query, member = ix.divmod(flat, self.parts.repeat)
        return self.row, self.head * self.parts.repeat + member, query


@contextmanager
def each_head(g: Group) -> Generator[Group]:
    """The body for each key head of the group."""
    if g.heads == 1:
        yield g
        return
    with g.job.k.for_(0, g.heads, name="h") as h:
        member = g.job.indexer.atom(h, g.heads)
        head = g.head + member
        yield replace(g, member=member, head=head, keys=replace(g.keys, head=head))


def stage_slots(g: Group, start: Val, end: Val) -> None:
    """slot_keys[j] of the block where blocks are selected: the key, or -1. pool_slots[j] of a paged
    key: where it lies, inside the pool; those past the end repeat the last one, or key 0. Where
    slots are fetched, those of the next block follow."""
    k, ix, firsts = g.job.k, g.job.indexer, range(0, g.block, g.lanes)
    if g.slots is not None:
        for first in firsts:
            slot = start + first + k.lane()
            key = g.slots.key(k.op("min", slot, end - 1))
            k.store("slot_keys", k.lane() + first, k.select(slot < end, key, k.lit(-1, I32)))
        k.barrier()
    if "read" not in g.parts.at:
        return
    for first in range(0, g.block * (2 if g.has_streams else 1), g.lanes):
        at = k.op("min", start + first + k.lane(), end - 1)
        if g.slots is not None:
            at = k.op("max", k.load("slot_keys", k.lane() + first), 0)
        found = g.keys.slot(ix.atom(at, g.parts.keys))
        k.store("pool_slots", k.lane() + first, ix.value(found))
    k.barrier()


def placed(g: Group, keys: list[Index], within: list[Val]) -> Group:
    """The group with the pool slots of keys at these places of the block at hand."""
    if "read" not in g.parts.at:
        return g
    k, ix, pool = g.job.k, g.job.indexer, g.parts.at["k"].type.shape[0]
    found = [ix.atom(k.load("pool_slots", at), pool) for at in within]
    return replace(g, keys=replace(g.keys, slots=dict(zip(keys, found, strict=True))))


def fetch(g: Group, name: str, within: Val) -> None:
    """Hints that the key ("k") or value ("v") of the group's key head at a place of the next block
    will be read soon. A head's lines at a time, between its products: more at once would stand
    before the reads of the block at hand (5 to 10 % of a decode on Zen 4)."""
    if g.has_streams:
        var, slot = g.parts.at[name], _pool_slot(g, within + g.block)
        g.job.pull.fetch(var, (slot, g.head, ZERO), var.type.shape[-1])


def _pool_slot(g: Group, within: Val) -> Index:
    return g.job.indexer.atom(g.job.k.load("pool_slots", within), g.parts.at["k"].type.shape[0])


def tile_key(g: Group, start: Val, end: Val, within: Val) -> Index:
    """One of a block's keys. Those past the end repeat the last one; their scores are hidden."""
    k, ix = g.job.k, g.job.indexer
    if g.slots is not None:
        return ix.atom(k.op("max", k.load("slot_keys", within), 0), g.parts.keys)
    return ix.atom(k.op("min", start + within, end - 1), g.parts.keys)


@contextmanager
def visited(g: Group, start: Val, within: Val, count: Val) -> Generator[Index]:
    """The body for one of a block's keys before the end, where it is visited."""
    k, ix = g.job.k, g.job.indexer
    if g.has_streams:
        with k.if_(within < count):
            yield ix.atom(start + within, g.parts.keys)
        return
    if g.slots is None:
        yield ix.atom(start + within, g.parts.keys)
        return
    key = k.load("slot_keys", within)
    with k.if_(key >= 0):
        yield ix.atom(k.copy(key), g.parts.keys)


def key_parts(g: Group) -> Iterator[tuple[int, int, Element]]:
    """(first channel, how many, element of a key) of each vector of channels."""
    own, base = g.parts.width - g.parts.shared, 0
    for extent, element in ((own, g.keys.key), (g.parts.shared, g.keys.shared)):
        for first in range(0, extent, g.lanes):
            width = min(g.lanes, extent - first)

            def make(key: Index, lane: Index, at: int = first, of: Element = element) -> Val:
                return of(key, lane + at)

            yield base + first, width, make
        base += extent


def turn_keys(g: Group, start: Val, end: Val, channels: range, tiles: Val) -> None:
    """turned[d, key] of the block's first vectors of keys, square tile by square tile, for d among
    these channels."""
    k, ix, lanes = g.job.k, g.job.indexer, g.lanes
    with k.for_(0, tiles, name="g") as tile:
        places = [tile * lanes + j for j in range(lanes)]
        keys = [tile_key(g, start, end, place) for place in places]
        g = placed(g, keys, places)
        for base, width, element in key_parts(g):
            if base not in channels:
                continue
            lane = ix.atom(k.lane(), width)
            read = [
                part(k, width, lanes, lambda key=key, of=element, c=lane: of(key, c))
                for key in keys
            ]
            for i, column in enumerate(turned(k, read)[:width]):
                place = tile * lanes + k.lane() + (base + i) * g.block
                k.store("turned", place, column)
