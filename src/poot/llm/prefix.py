"""Blocks that are full and whose keys and values another request may use: the prefix cache.

An entry stands for one full block of tokens after all the blocks before it. It is found by a
chained digest of 128 bits: of the digest before it and its own tokens, beginning from the identity
of what computed the values (weights, adapter, salt). On a hit the tokens and the chain are compared
too, so a collision can't answer with another's values. The cache holds one reference to each
entry's block.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from poot.llm.blocks import BLOCK_SIZE, BlockPool

DIGEST_NBYTES = 16


@dataclass(frozen=True, slots=True)
class Identity:
    """What computed the values of a block. `weights`: the content digest of the checkpoint's
    tensors; `generation`: the number of the load, which no other load of the process has;
    `adapter`: the generation of the adapter's load, 0 for none; `salt`: the request's own (tenant,
    images)."""

    weights: str
    generation: int
    adapter: int = 0
    salt: str = ""

    def digest(self) -> bytes:
        """Where its chains begin."""
        parts = (self.weights, str(self.generation), str(self.adapter), self.salt)
        hashed = blake2b(digest_size=DIGEST_NBYTES)
        for part in parts:
            raw = part.encode()
            hashed.update(len(raw).to_bytes(8, "little") + raw)
        return hashed.digest()


def next_digest(before: bytes, tokens: Sequence[int]) -> bytes:
    """The digest of a block of tokens after the chain of digest `before`."""
    words = np.asarray(tokens, np.int64).tobytes()
    return blake2b(before + words, digest_size=DIGEST_NBYTES).digest()


@dataclass(slots=True, eq=False)
class Entry:
    """A cached block. `before` is the entry of the block before it, None for the first; `after`
    counts the entries behind it; `used` orders by last use."""

    identity: Identity
    before: Entry | None
    tokens: tuple[int, ...]
    digest: bytes
    block: int
    used: int
    after: set[bytes] = field(default_factory=set[bytes])


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a sequence's blocks are entered: so many, the last of them `entry` with its chain's
    digest."""

    digest: bytes
    entry: Entry | None
    blocks: int


class PrefixCache:
    """Entries over one pool. Used by one thread. `hits` and `asked` count tokens of lookups."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._entries: dict[bytes, Entry] = {}
        self._clock = 0
        self.hits = 0
        self.asked = 0
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._entries)

    def blocks(self) -> tuple[int, ...]:
        """The block of every entry."""
        return tuple(e.block for e in self._entries.values())

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def chain(self, identity: Identity, tokens: Sequence[int]) -> list[Entry]:
        """The entries of the longest cached prefix of `tokens`, whole blocks, first to last. Counts
        and touches nothing."""
        found: list[Entry] = []
        digest, before = identity.digest(), None
        for words in _full_blocks(tokens):
            digest = next_digest(digest, words)
            entry = self._entries.get(digest)
            is_hit = (
                entry is not None
                and entry.tokens == words
                and entry.before is before
                and entry.identity == identity
            )
            if entry is None or not is_hit:
                break
            found.append(entry)
            before = entry
        return found

    def lookup(self, identity: Identity, tokens: Sequence[int]) -> tuple[int, ...]:
        """The blocks of the longest cached prefix. The caller shares them at once, which pins
        them."""
        found = self.chain(identity, tokens)
        for entry in reversed(found):  # the head is used last, so it goes last
            entry.used = self._tick()
        return tuple(e.block for e in found)

    def count(self, asked: int, hits: int) -> None:
        """Notes a lookup that was used: of `asked` tokens `hits` need no prefill."""
        self.asked += asked
        self.hits += hits

    def add(
        self,
        identity: Identity,
        tokens: Sequence[int],
        blocks: Sequence[int],
        after: Mark | None = None,
    ) -> Mark:
        """Enters the full blocks of `tokens`, which lie in `blocks`, where they are not there yet.
        A block that is entered is never written again by who holds it. Begins `after` the mark that
        an earlier call for the same sequence gave, if what it names is still there."""
        if after is None or (after.entry is not None and not self._holds(after.entry)):
            after = Mark(identity.digest(), None, 0)
        digest, before, done = after.digest, after.entry, after.blocks
        for words in _full_blocks(tokens, done):
            digest = next_digest(digest, words)
            entry = self._entries.get(digest)
            if entry is None:
                self._pool.share(blocks[done])
                entry = Entry(identity, before, words, digest, blocks[done], self._tick())
                self._entries[digest] = entry
                if before is not None:
                    before.after.add(digest)
            elif entry.tokens != words or entry.before is not before:
                break  # a collision: what is there stays
            before, done = entry, done + 1
            after = Mark(digest, entry, done)
        return after

    def _holds(self, entry: Entry) -> bool:
        return self._entries.get(entry.digest) is entry

    def evictable(self) -> int:
        """Blocks that eviction can free: those that the cache alone holds, and behind which nobody
        holds one."""
        kept: set[bytes] = set()
        for entry in self._entries.values():
            at: Entry | None = entry if self._pool.refs(entry.block) > 1 else None
            while at is not None and at.digest not in kept:
                kept.add(at.digest)
                at = at.before
        return len(self._entries) - len(kept)

    def evict(self, count: int = 1) -> int:
        """Frees up to `count` blocks; how many. Each is of the entry that was used longest ago, of
        those that nobody else holds and that no entry stands behind."""
        free = [(e.used, e.digest) for e in self._entries.values() if self._is_free(e)]
        heapq.heapify(free)
        done = 0
        while free and done < count:
            entry = self._entries[heapq.heappop(free)[1]]
            self._remove(entry)
            done += 1
            if entry.before is not None and self._is_free(entry.before):
                heapq.heappush(free, (entry.before.used, entry.before.digest))
        self.evicted += done
        return done

    def _is_free(self, entry: Entry) -> bool:
        return not entry.after and self._pool.refs(entry.block) == 1

    def drop(self, identity: Identity) -> int:
        """Takes out every entry of an identity; how many. A block that a sequence holds stays
        that sequence's."""
        return self._drop([e for e in self._entries.values() if e.identity == identity])

    def drop_block(self, block: int) -> int:
        """Takes out the entry of a block and all behind it; how many."""
        return self._drop([e for e in self._entries.values() if block in _blocks_to(e)])

    def clear(self) -> int:
        """Takes out every entry; how many."""
        return self._drop(list(self._entries.values()))

    def _drop(self, entries: list[Entry]) -> int:
        for entry in entries:
            self._remove(entry)
        return len(entries)

    def _remove(self, entry: Entry) -> None:
        del self._entries[entry.digest]
        if entry.before is not None:
            entry.before.after.discard(entry.digest)
        self._pool.release(entry.block)


def _full_blocks(tokens: Sequence[int], first: int = 0) -> Iterator[tuple[int, ...]]:
    for start in range(first * BLOCK_SIZE, len(tokens) - BLOCK_SIZE + 1, BLOCK_SIZE):
        yield tuple(tokens[start : start + BLOCK_SIZE])


def _blocks_to(entry: Entry) -> set[int]:
    """The blocks of an entry's chain, up to its own."""
    found: set[int] = set()
    at: Entry | None = entry
    while at is not None:
        found.add(at.block)
        at = at.before
    return found
