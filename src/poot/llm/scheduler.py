"""Which tokens of which sequences the next engine step computes, and in which blocks they lie.

Sequences are served in order of arrival. A step has up to two parts: a decode of every sequence
with one token to go, and a prefill chunk of those with more. Blocks are taken on demand; where none
is free, cached ones that nobody holds are evicted, then the sequence that came last is preempted:
its blocks are freed, and it waits to be computed anew. The one that came first always goes on.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence as Many
from dataclasses import dataclass

from poot.errors import RequestError
from poot.llm.blocks import BLOCK_SIZE, BlockPool, BlockTable, blocks_for
from poot.llm.layout import Layout
from poot.llm.prefix import Identity, Mark, PrefixCache

FULL_ENOUGH = 0.75  # a chunk's bucket is used from this part of its tokens on


@dataclass(slots=True, eq=False)
class Sequence:
    """One request's tokens. `number` orders by arrival; `limit` is how many tokens it may come to
    have; the keys and values of the first `computed` lie in `table`, which is None while it waits;
    `mark` is how far they are in the prefix cache. `cached`: tokens that its first prefill found in
    the prefix cache."""

    number: int
    tokens: list[int]
    limit: int
    identity: Identity
    adapter: int = 0
    computed: int = 0
    table: BlockTable | None = None
    mark: Mark | None = None
    cached: int = 0
    preempted: int = 0

    @property
    def remaining(self) -> int:
        """Tokens whose keys and values are still to be computed."""
        return len(self.tokens) - self.computed

    def held(self) -> BlockTable:
        """The table of a sequence that runs."""
        assert self.table is not None
        return self.table


@dataclass(frozen=True, slots=True)
class Part:
    """`rows` are (sequence, how many of its tokens) for an entry point of `bucket` rows of `tokens`
    each."""

    rows: tuple[tuple[Sequence, int], ...]
    bucket: int
    tokens: int

    @property
    def used(self) -> int:
        return sum(count for _, count in self.rows)

    @property
    def padding(self) -> int:
        """Token rows that are computed for nobody."""
        return self.bucket * self.tokens - self.used


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One engine step. `copies` (from block, to block) come first."""

    copies: tuple[tuple[int, int], ...]
    decode: Part | None
    prefill: Part | None

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(p for p in (self.decode, self.prefill) if p is not None)


class Scheduler:
    """Sequences that wait and that run, over one pool. Used by one thread."""

    def __init__(self, layout: Layout, *, caching: bool = True) -> None:
        self.layout = layout
        self.pool = BlockPool(layout.blocks)
        self.prefix = PrefixCache(self.pool)
        self.preemptions = 0
        self._caching = caching
        self._waiting: list[tuple[int, Sequence]] = []
        self._running: list[Sequence] = []
        self._copies: list[tuple[int, int]] = []

    @property
    def waiting(self) -> tuple[Sequence, ...]:
        return tuple(s for _, s in self._waiting)

    @property
    def running(self) -> tuple[Sequence, ...]:
        return tuple(self._running)

    def check(self, prompt: int, limit: int) -> None:
        """Raises RequestError where a sequence of `prompt` tokens that may grow to `limit` can
        never run: an empty prompt, more than the capacity, or more than the whole pool."""
        if prompt < 1:
            raise RequestError("the prompt is empty; needs one token or more")
        if limit > self.layout.capacity:
            raise RequestError(
                f"a prompt of {prompt} tokens and {limit - prompt} new ones pass the cache's "
                f"capacity of {self.layout.capacity}; ask for fewer tokens or a larger capacity"
            )
        if blocks_for(limit) > self.pool.usable:
            raise RequestError(
                f"{limit} tokens need {blocks_for(limit)} blocks, and the pool has "
                f"{self.pool.usable}"
            )

    def add(self, sequence: Sequence) -> None:
        """Puts a sequence in line, by its number. Raises RequestError as `check`."""
        self.check(len(sequence.tokens), sequence.limit)
        insort(self._waiting, (sequence.number, sequence))

    def remove(self, sequence: Sequence) -> None:
        """Takes a sequence out, wherever it is, and releases its blocks. Twice is once."""
        self._waiting = [row for row in self._waiting if row[1] is not sequence]
        self._running = [s for s in self._running if s is not sequence]
        self._release(sequence)

    def _release(self, sequence: Sequence) -> None:
        if sequence.table is not None:
            sequence.table.close()
        sequence.table = None
        sequence.mark = None
        sequence.computed = 0

    def preempt(self, sequence: Sequence) -> None:
        """Back in line, to be computed anew."""
        self._running = [s for s in self._running if s is not sequence]
        self._release(sequence)
        sequence.preempted += 1
        self.preemptions += 1
        insort(self._waiting, (sequence.number, sequence))

    def restart(self) -> None:
        """After the pools were lost: every sequence waits again, and nothing is cached."""
        for sequence in self.running:
            self.preempt(sequence)
        self._copies = []
        self.prefix.clear()

    def plan(self) -> StepPlan | None:
        """The next step, with its blocks taken; None where there is nothing to do. The caller runs
        it and reports each row by `done`, or calls `restart`."""
        self._copies = []
        self._admit()
        decode = [s for s in self._running if s.remaining == 1]
        rows = tuple((s, 1) for s in decode if self._fits(s, 1))
        rows = tuple(row for row in rows if row[0].table is not None)
        prefill = self._prefill()
        rows = tuple(row for row in rows if row[0].table is not None)
        part = Part(rows, self.layout.decode_bucket(len(rows)), 1) if rows else None
        if part is None and prefill is None:
            return None
        return StepPlan(tuple(self._copies), part, prefill)

    def done(self, sequence: Sequence, count: int) -> None:
        """`count` more tokens of a sequence have their keys and values in its blocks."""
        before = sequence.computed // BLOCK_SIZE
        sequence.computed += count
        if self._caching and sequence.computed // BLOCK_SIZE > before:
            tokens, blocks = sequence.tokens[: sequence.computed], sequence.held().blocks
            sequence.mark = self.prefix.add(sequence.identity, tokens, blocks, sequence.mark)

    def forget(self, sequence: Sequence) -> None:
        """Takes what a sequence entered, or used, out of the prefix cache."""
        chain = self.prefix.chain(sequence.identity, sequence.tokens)
        if chain:
            self.prefix.drop_block(chain[0].block)

    def _admit(self) -> None:
        most = self.layout.decode_rows[-1]
        while self._waiting and len(self._running) < most:
            sequence = self._waiting[0][1]
            if not self._place(sequence):
                return
            self._waiting.pop(0)
            insort(self._running, sequence, key=lambda s: s.number)

    def _place(self, sequence: Sequence) -> bool:
        """Gives a sequence a table with the cached part of its prefix, if the rest can be had
        besides what those that run still need for the tokens they have."""
        table = BlockTable(self.pool, self.layout.capacity)
        tokens = sequence.tokens
        hits: Many[int] = ()
        if self._caching:
            hits = self.prefix.lookup(sequence.identity, tokens)
        for block in hits:
            table.adopt(block)
        is_whole = len(hits) * BLOCK_SIZE == len(tokens)
        if is_whole and not self._spare(1):  # no room for the copy that the last token needs
            table.close()
            table = BlockTable(self.pool, self.layout.capacity)
            hits, is_whole = hits[:-1], False
            for block in hits:
                table.adopt(block)
        owed = sum(s.held().missing(len(s.tokens)) for s in self._running)
        if not self._spare(owed + table.missing(len(tokens)) + is_whole):
            table.close()
            return False
        sequence.table = table
        sequence.computed = len(hits) * BLOCK_SIZE - is_whole
        if sequence.preempted == 0:
            sequence.cached = sequence.computed
        self.prefix.count(len(tokens), sequence.computed)
        return True

    def _spare(self, blocks: int) -> bool:
        """Whether so many blocks are free or can be evicted."""
        free = self.pool.free
        return free >= blocks or free + self.prefix.evictable() >= blocks

    def _free(self, blocks: int) -> bool:
        """Evicts until so many blocks are free; whether they are."""
        lacking = blocks - self.pool.free
        return lacking <= 0 or self.prefix.evict(lacking) == lacking

    def _fits(self, sequence: Sequence, count: int) -> bool:
        """Takes what blocks the next `count` tokens need, preempting those that came later; False
        where the sequence itself had to be preempted."""
        if sequence.table is None:
            return False
        table, stop = sequence.table, sequence.computed + count
        first = sequence.computed
        while True:
            is_shared = first < table.held and table.is_shared(first)
            if self._free(table.missing(stop) + is_shared):
                break
            last = self._running[-1]
            self.preempt(last)
            if last is sequence:
                return False
        if is_shared:
            moved = table.own(first)
            assert moved is not None
            self._copies.append(moved)
        table.grow(stop)
        return True

    def _prefill(self) -> Part | None:
        """A chunk of the sequence that came first of those with more than one token to go, and of
        others that fill the same bucket."""
        todo = [s for s in self._running if s.remaining > 1]
        if not todo:
            return None
        tokens = self._chunk(todo[0].remaining)
        least = FULL_ENOUGH * tokens
        mates = [s for s in todo[1:] if s.remaining >= least]
        sizes = sorted(r for r, t in self.layout.prefill if t == tokens)
        most = max([r for r in sizes if r <= 1 + len(mates)], default=sizes[0])
        chosen: list[Sequence] = []
        for sequence in (todo[0], *mates):
            count = min(tokens, sequence.remaining)
            if len(chosen) < most and self._fits(sequence, count):
                chosen.append(sequence)
        rows = tuple((s, min(tokens, s.remaining)) for s in chosen if s.table is not None)
        if not rows:
            return None
        return Part(rows, min(r for r in sizes if r >= len(rows)), tokens)

    def _chunk(self, remaining: int) -> int:
        """The largest chunk that so many tokens fill well, or the smallest there is."""
        sizes = sorted({t for _, t in self.layout.prefill})
        return max([t for t in sizes if remaining >= FULL_ENOUGH * t], default=sizes[0])
