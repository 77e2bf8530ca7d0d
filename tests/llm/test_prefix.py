"""The prefix cache: chains, identities, pins, eviction."""

from __future__ import annotations

import numpy as np
import pytest

from poot.llm import prefix
from poot.llm.blocks import BlockPool, BlockTable
from poot.llm.prefix import Identity, PrefixCache, next_digest

BASE = Identity("digest", 1)
TEXT = list(range(100, 164))  # four blocks


class Cached:
    """A pool, a cache over it, and sequences that fill blocks."""

    def __init__(self, blocks: int) -> None:
        self.pool = BlockPool(blocks)
        self.cache = PrefixCache(self.pool)

    def fill(self, tokens: list[int], identity: Identity = BASE) -> BlockTable:
        table = BlockTable(self.pool, 1 << 16)
        for block in self.cache.lookup(identity, tokens):
            table.adopt(block)
        table.grow(len(tokens))
        self.cache.add(identity, tokens, table.blocks)
        return table

    def hits(self, tokens: list[int], identity: Identity = BASE) -> int:
        return len(self.cache.lookup(identity, tokens))


def test_full_blocks_are_found_again_and_half_ones_are_not():
    c = Cached(9)
    table = c.fill(TEXT[:40])
    held = table.blocks
    table.close()
    assert c.cache.lookup(BASE, TEXT) == held[:2]
    assert c.hits(TEXT[:31]) == 1
    assert c.hits([0, *TEXT]) == 0
    assert c.pool.free == 8 - 2


def test_case_90_each_load_of_each_adapter_has_entries_of_its_own():
    c = Cached(20)
    text = TEXT[:32]
    loads = [BASE, Identity("digest", 1, 1), Identity("digest", 1, 2), Identity("digest", 1, 3)]
    for identity in loads:
        assert c.hits(text, identity) == 0
        c.fill(text, identity).close()
    assert [c.hits(text, identity) for identity in loads] == [2, 2, 2, 2]
    blocks = [c.cache.lookup(identity, text) for identity in loads]
    assert len({b for row in blocks for b in row}) == 8


def test_case_92_a_salt_parts_prompts_that_are_equal():
    c = Cached(30)
    salted = [Identity("digest", 1, 0, f"image {i}") for i in range(3)]
    for identity in salted:
        assert c.hits(TEXT[:16], identity) == 0
        c.fill(TEXT[:16], identity).close()
    assert c.hits(TEXT[:16]) == 0


def test_case_92_five_thousand_identities_do_not_collide():
    digests = {Identity("d", 1, 0, str(i)).digest() for i in range(5000)}
    assert len(digests) == 5000
    assert {len(d) for d in digests} == {16}
    # Neither do parts that join to one text.
    assert Identity("d", 1, 1, "2").digest() != Identity("d", 1, 12, "").digest()
    assert Identity("d1", 1).digest() != Identity("d", 11).digest()


def test_case_103_new_weights_hit_nothing():
    c = Cached(20)
    c.fill(TEXT).close()
    assert c.hits(TEXT) == 4
    assert c.hits(TEXT, Identity("digest", 2)) == 0
    assert c.hits(TEXT, Identity("other", 1)) == 0


def test_case_98_the_tail_goes_first_and_the_head_stays_of_use():
    c = Cached(4)
    c.fill(TEXT[:48]).close()
    assert c.pool.free == 0
    assert c.cache.evict() == 1
    assert c.hits(TEXT[:48]) == 2


def test_case_98_without_its_head_a_chain_hits_nothing_and_holds_nothing():
    c = Cached(4)
    table = c.fill(TEXT[:48])
    head = table.blocks[0]
    table.close()
    assert c.cache.drop_block(head) == 3
    assert c.hits(TEXT[:48]) == 0
    assert c.pool.free == 3


def test_eviction_never_takes_a_pinned_block():
    c = Cached(7)
    pinned = c.fill(TEXT[:32])
    c.fill([7] * 32).close()
    assert c.cache.evictable() == 2
    assert c.cache.evict(6) == 2
    assert c.cache.evict(6) == 0
    assert c.hits(TEXT[:32]) == 2
    pinned.close()
    assert c.cache.evict(6) == 2
    assert c.pool.free == 6


def test_what_stands_before_a_pinned_block_stays_though_nobody_holds_it():
    c = Cached(9)
    first = c.fill(TEXT[:16])
    twin = BlockTable(c.pool, 64)  # the same text, computed at the same time in other blocks
    twin.grow(32)
    c.cache.add(BASE, TEXT[:32], twin.blocks)
    first.close()
    assert c.cache.evictable() == 0
    assert c.cache.evict() == 0
    twin.close()
    assert c.cache.evict(5) == 2
    assert c.pool.free == 8


def test_the_least_recently_used_goes_first():
    c = Cached(9)
    for first in (1, 2, 3):
        c.fill([first] * 16).close()
    assert c.hits([1] * 16) == 1
    assert c.cache.evict(2) == 2
    assert [c.hits([first] * 16) for first in (1, 2, 3)] == [1, 0, 0]
    assert c.cache.evicted == 2


def test_an_entry_of_the_same_digest_and_other_tokens_is_no_hit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prefix, "next_digest", lambda before, tokens: b"always the same!")
    c = Cached(9)
    c.fill(TEXT[:16]).close()
    assert c.hits(TEXT[:16]) == 1
    assert c.hits([5] * 16) == 0
    table = BlockTable(c.pool, 64)
    table.grow(16)
    assert c.cache.add(BASE, [5] * 16, table.blocks).blocks == 0
    assert len(c.cache) == 1
    assert c.hits(TEXT[:16]) == 1
    # The same tokens under another identity, or after another block, are no hit either.
    assert c.hits(TEXT[:16], Identity("other", 1)) == 0
    assert c.hits([*TEXT[:16], *TEXT[:16]]) == 1


def test_a_digest_depends_on_all_before_it_and_on_each_token():
    rng = np.random.default_rng(0)
    start = BASE.digest()
    texts = {tuple(rng.integers(0, 9, 16).tolist()) for _ in range(200)}
    assert len({next_digest(start, text) for text in texts}) == len(texts)
    assert next_digest(next_digest(start, [1] * 16), [2] * 16) != next_digest(start, [2] * 16)


def test_a_mark_goes_on_where_it_stands_and_begins_anew_where_that_is_gone():
    c = Cached(12)
    table = BlockTable(c.pool, 96)
    table.grow(64)
    mark = c.cache.add(BASE, TEXT[:16], table.blocks)
    mark = c.cache.add(BASE, TEXT[:32], table.blocks, mark)
    assert (mark.blocks, len(c.cache), c.hits(TEXT)) == (2, 2, 2)
    c.cache.clear()
    mark = c.cache.add(BASE, TEXT[:48], table.blocks, mark)
    assert (mark.blocks, len(c.cache), c.hits(TEXT)) == (3, 3, 3)
    c.cache.drop_block(table.blocks[2])
    mark = c.cache.add(BASE, TEXT, table.blocks, mark)
    assert (mark.blocks, c.hits(TEXT)) == (4, 4)
    table.close()
    assert c.cache.evict(9) == 4
    assert c.pool.free == 11


def test_an_identity_can_be_dropped_and_the_cache_cleared():
    c = Cached(20)
    other = Identity("digest", 1, 5)
    c.fill(TEXT).close()
    held = c.fill(TEXT, other)
    assert (c.cache.drop(BASE), len(c.cache)) == (4, 4)
    assert (c.hits(TEXT), c.hits(TEXT, other)) == (0, 4)
    assert c.cache.clear() == 4
    assert c.pool.free == 19 - 4
    held.close()
    assert c.pool.free == 19
    assert c.cache.blocks() == ()
