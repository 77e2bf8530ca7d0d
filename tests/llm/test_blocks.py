"""Blocks: references, tables, copy before write; a model-based test of pool and tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from poot.errors import RequestError
from poot.llm.blocks import BLOCK_SIZE, BlockPool, BlockTable, OutOfBlocks, blocks_for, slots_of


def test_block_0_is_never_given_out():
    pool = BlockPool(4)
    assert sorted(pool.take() for _ in range(3)) == [1, 2, 3]
    with pytest.raises(OutOfBlocks, match="all 3 blocks are held"):
        pool.take()


def test_a_block_is_free_when_its_last_owner_lets_go():
    pool = BlockPool(2)
    block = pool.take()
    pool.share(block)
    pool.release(block)
    assert (pool.free, pool.refs(block)) == (0, 1)
    pool.release(block)
    assert pool.free == 1


@pytest.mark.parametrize("block", [0, 1, 4, -1])
def test_what_nobody_holds_is_neither_shared_nor_released(block: int):
    pool = BlockPool(4)
    with pytest.raises(RequestError, match="a block that is held"):
        pool.release(block)
    with pytest.raises(RequestError, match="a block that is held"):
        pool.share(block)


def test_a_pool_without_a_usable_block_is_refused():
    with pytest.raises(RequestError, match="2 blocks or more"):
        BlockPool(1)


def test_positions_lie_in_their_blocks():
    pool = BlockPool(8)
    table = BlockTable(pool, 64)
    table.grow(17)
    first, second = table.blocks
    assert table.slot(0) == first * BLOCK_SIZE
    assert table.slot(16) == second * BLOCK_SIZE
    assert table.slots(15, 17).tolist() == [first * 16 + 15, second * 16]
    assert slots_of((3, 1), 14, 18).tolist() == [62, 63, 16, 17]
    assert table.slots(5, 5).size == 0


def test_case_20_a_place_past_a_table_is_an_error_and_never_the_neighbours_block():
    pool = BlockPool(9)
    tables = [BlockTable(pool, 64), BlockTable(pool, 64)]
    for table in tables:
        table.grow(64)
    for position in (64, 65, 130, 8192, 100000, 1048575, -1):
        with pytest.raises(RequestError, match="outside the 64 that the table holds"):
            tables[0].slot(position)
        with pytest.raises(RequestError, match="outside"):
            tables[0].slots(0, position + 1 if position > 0 else 65)


def test_case_22_an_append_past_the_capacity_is_refused_and_the_table_stays_usable():
    pool = BlockPool(3)
    table = BlockTable(pool, 32)
    table.grow(31)
    table.grow(32)
    held = table.blocks
    with pytest.raises(RequestError, match="position 32 passes the sequence's capacity of 32"):
        table.grow(33)
    assert table.blocks == held
    assert table.slot(31) == held[1] * BLOCK_SIZE + 15


def test_case_23_a_length_past_the_pool_is_refused_and_what_was_taken_is_freed():
    pool = BlockPool(5)
    table = BlockTable(pool, 128)
    with pytest.raises(OutOfBlocks):
        table.grow(80)
    table.close()
    assert pool.free == 4
    other = BlockTable(pool, 128)
    other.grow(64)
    assert other.held == 64


def test_case_28_a_closed_table_names_no_slot():
    pool = BlockPool(5)
    table = BlockTable(pool, 64)
    table.grow(64)
    table.close()
    other = BlockTable(pool, 64)
    other.grow(32)
    for use in (
        lambda: table.slot(0),
        lambda: table.slots(0, 4),
        lambda: table.writable(0, 4),
        lambda: table.blocks,
        lambda: table.held,
        lambda: table.grow(1),
        lambda: table.adopt(other.blocks[0]),
    ):
        with pytest.raises(RequestError, match="this block table was closed"):
            use()
    table.close()
    assert not table.is_open
    assert pool.free == 2


def test_a_full_table_adopts_no_more():
    pool = BlockPool(6)
    first, second = BlockTable(pool, 64), BlockTable(pool, 17)
    first.grow(64)
    for block in first.blocks[:2]:
        second.adopt(block)
    with pytest.raises(RequestError, match="the sequence's capacity of 17 is full"):
        second.adopt(first.blocks[2])
    assert pool.refs(first.blocks[2]) == 1


def test_a_shared_block_is_copied_before_a_write():
    pool = BlockPool(4)
    first = BlockTable(pool, 64)
    first.grow(16)
    second = BlockTable(pool, 64)
    second.adopt(first.blocks[0])
    with pytest.raises(RequestError, match="position 15 lies in a shared block"):
        second.writable(15, 16)
    moved = second.own(15)
    assert moved == (first.blocks[0], second.blocks[0])
    assert second.own(15) is None
    assert first.slot(15) != second.slot(15)
    assert second.writable(15, 16).tolist() == [second.slot(15)]
    first.close(), second.close()
    assert pool.free == 3


def test_a_write_that_begins_in_an_own_block_may_not_run_into_a_shared_one():
    pool = BlockPool(4)
    first = BlockTable(pool, 64)
    first.grow(32)
    second = BlockTable(pool, 64)
    second.grow(16)
    second.adopt(first.blocks[1])
    assert second.writable(3, 16).size == 13
    with pytest.raises(RequestError, match="position 16 lies in a shared block"):
        second.writable(3, 17)


class Tables(RuleBasedStateMachine):
    """Tables that grow, share, copy and close at random. The model: what each position holds."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(12)
        self.tables: list[BlockTable] = []
        self.texts: list[list[int]] = []
        self.memory = np.zeros(self.pool.slots, np.int64)
        self.clock = 0

    def pick(self, at: int) -> int | None:
        return at % len(self.tables) if self.tables else None

    @rule()
    def begin(self):
        if len(self.tables) < 5:
            self.tables.append(BlockTable(self.pool, 80))
            self.texts.append([])

    @rule(at=st.integers(0, 9), count=st.integers(1, 40))
    def append(self, at: int, count: int):
        i = self.pick(at)
        if i is None or len(self.texts[i]) + count > 80:
            return
        table, text = self.tables[i], self.texts[i]
        start = len(text)
        try:
            if start < table.held:
                moved = table.own(start)
                if moved is not None:
                    old, new = (b * BLOCK_SIZE for b in moved)
                    self.memory[new : new + BLOCK_SIZE] = self.memory[old : old + BLOCK_SIZE]
            table.grow(start + count)
        except OutOfBlocks:
            return
        for position in range(start, start + count):
            self.clock += 1
            text.append(self.clock)
            self.memory[table.writable(position, position + 1)] = self.clock

    @rule(at=st.integers(0, 9))
    def fork(self, at: int):
        i = self.pick(at)
        if i is not None and len(self.tables) < 5:
            other = BlockTable(self.pool, 80)
            for block in self.tables[i].blocks[: blocks_for(len(self.texts[i]))]:
                other.adopt(block)
            self.tables.append(other)
            self.texts.append(list(self.texts[i]))

    @rule(at=st.integers(0, 9))
    def close(self, at: int):
        i = self.pick(at)
        if i is not None:
            self.tables.pop(i).close()
            self.texts.pop(i)

    @invariant()
    def each_reads_what_it_wrote(self):
        for table, text in zip(self.tables, self.texts, strict=True):
            assert self.memory[table.slots(0, len(text))].tolist() == text

    @invariant()
    def references_are_owners(self):
        owners = np.bincount([b for t in self.tables for b in t.blocks], minlength=self.pool.blocks)
        assert [self.pool.refs(b) for b in range(1, 12)] == owners[1:].tolist()
        assert self.pool.free == int((owners[1:] == 0).sum())
        assert (self.memory[:BLOCK_SIZE] == 0).all()

    def teardown(self):
        for table in self.tables:
            table.close()
        assert self.pool.free == self.pool.usable


Tables.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_tables_never_lose_share_or_overwrite_a_block = Tables.TestCase
