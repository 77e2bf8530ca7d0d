"""Blocks of a paged KV cache: who holds which, and where a sequence's positions lie in the pools.

A pool of `blocks * BLOCK_SIZE` slots is cut into blocks. Block 0 is reserved: it is never given
out, stays zero, and is what a read map names past a row's length. A block has as many owners as
references; one with several is shared and is never written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from poot.errors import RequestError, need

BLOCK_SIZE = 16


class OutOfBlocks(RequestError):
    """No block is free. The scheduler evicts or preempts, and asks again."""


def blocks_for(tokens: int) -> int:
    """How many blocks hold so many positions."""
    return -(-tokens // BLOCK_SIZE)


class BlockPool:
    """The blocks of one set of pools, with the number of references to each. Used by one thread."""

    def __init__(self, blocks: int) -> None:
        """`blocks` counts the reserved block 0: 2 or more. Raises RequestError."""
        need(blocks >= 2, "2 blocks or more, the reserved one among them", error=RequestError,
             blocks=blocks)  # fmt: skip
        self.blocks = blocks
        self._refs = [0] * blocks
        self._refs[0] = 1
        self._free = deque(range(1, blocks))

    @property
    def slots(self) -> int:
        """Slots of each layer's pool."""
        return self.blocks * BLOCK_SIZE

    @property
    def usable(self) -> int:
        """Blocks that can be given out at all."""
        return self.blocks - 1

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return len(self._free)

    def refs(self, block: int) -> int:
        """How many hold the block."""
        return self._refs[block]

    def take(self) -> int:
        """A block that nobody holds, with one reference. Raises OutOfBlocks."""
        if not self._free:
            raise OutOfBlocks(f"all {self.usable} blocks are held")
        block = self._free.popleft()
        assert self._refs[block] == 0
        self._refs[block] = 1
        return block

    def share(self, block: int) -> None:
        """One more reference to a block that somebody holds. Raises RequestError."""
        need(0 < block < self.blocks and self._refs[block] > 0, "a block that is held to share it",
             error=RequestError, block=block)  # fmt: skip
        self._refs[block] += 1

    def release(self, block: int) -> None:
        """One reference less; with the last the block is free. Raises RequestError where nobody
        holds it."""
        need(0 < block < self.blocks and self._refs[block] > 0, "a block that is held to release",
             error=RequestError, block=block)  # fmt: skip
        self._refs[block] -= 1
        if self._refs[block] == 0:
            self._free.append(block)


class BlockTable:
    """One sequence's blocks in order: position p lies in slot `p % 16` of block `p // 16`.

    After `close` every use raises RequestError: what the blocks hold is another's."""

    def __init__(self, pool: BlockPool, capacity: int) -> None:
        """`capacity`: positions that a row of the read map has."""
        self._pool = pool
        self._capacity = capacity
        self._blocks: list[int] = []
        self._slots = np.zeros(blocks_for(capacity) * BLOCK_SIZE, np.int32)
        self._open = True

    def _place(self, at: int, block: int) -> None:
        """Block number `at` of the sequence is this one."""
        start = at * BLOCK_SIZE
        self._slots[start : start + BLOCK_SIZE] = slots_of((block,), 0, BLOCK_SIZE)

    @property
    def blocks(self) -> tuple[int, ...]:
        self._need_open()
        return tuple(self._blocks)

    @property
    def is_open(self) -> bool:
        return self._open

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def held(self) -> int:
        """Positions that the blocks have room for."""
        self._need_open()
        return min(len(self._blocks) * BLOCK_SIZE, self._capacity)

    def _need_open(self) -> None:
        if not self._open:
            raise RequestError("this block table was closed; its blocks may be another sequence's")

    def adopt(self, block: int) -> None:
        """Appends a block that somebody else holds too, with a reference of its own."""
        self._need_open()
        if len(self._blocks) == blocks_for(self._capacity):
            raise RequestError(f"the sequence's capacity of {self._capacity} is full")
        self._pool.share(block)
        self._place(len(self._blocks), block)
        self._blocks.append(block)

    def missing(self, tokens: int) -> int:
        """Blocks to be taken before positions 0 .. tokens-1 are held."""
        self._need_open()
        return max(0, blocks_for(tokens) - len(self._blocks))

    def grow(self, tokens: int) -> None:
        """Takes blocks until positions 0 .. tokens-1 are held. Raises OutOfBlocks, with what was
        taken kept, or RequestError for more tokens than the capacity."""
        self._need_open()
        if tokens > self._capacity:
            raise RequestError(
                f"position {tokens - 1} passes the sequence's capacity of {self._capacity}"
            )
        while len(self._blocks) < blocks_for(tokens):
            block = self._pool.take()
            self._place(len(self._blocks), block)
            self._blocks.append(block)

    def is_shared(self, position: int) -> bool:
        """Whether the position's block has another owner, so that it must be copied before a
        write."""
        self._need_open()
        return self._pool.refs(self._blocks[position // BLOCK_SIZE]) > 1

    def own(self, position: int) -> tuple[int, int] | None:
        """Makes the position's block this sequence's own: (shared block, its copy) where it was
        shared, and the caller copies the contents before anything writes or reads the copy; None
        where it was not. Raises OutOfBlocks."""
        at = position // BLOCK_SIZE
        shared = self.blocks[at]
        if self._pool.refs(shared) == 1:
            return None
        copy = self._pool.take()
        self._blocks[at] = copy
        self._place(at, copy)
        self._pool.release(shared)
        return shared, copy

    def slot(self, position: int) -> int:
        """The pool slot of a position. Raises RequestError for one that no block of the sequence
        holds: never another row's."""
        held = self.held
        if not 0 <= position < held:
            raise RequestError(f"position {position} is outside the {held} that the table holds")
        return self._blocks[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE

    def slots(self, start: int, stop: int) -> NDArray[np.int32]:
        """The pool slots of positions start .. stop-1, i32. Raises RequestError as `slot`."""
        held = self.held
        if start < stop and not 0 <= start < stop <= held:
            raise RequestError(
                f"positions {start} to {stop - 1} are outside the {held} that the table holds"
            )
        return self._slots[start:stop].copy()

    def writable(self, start: int, stop: int) -> NDArray[np.int32]:
        """As `slots`, for a write. Raises RequestError for a position in a shared block."""
        for position in range(start - start % BLOCK_SIZE, stop, BLOCK_SIZE):
            if self.is_shared(max(position, start)):
                raise RequestError(f"position {max(position, start)} lies in a shared block")
        return self.slots(start, stop)

    def close(self) -> None:
        """Releases every block, last first. A second close does nothing."""
        if self._open:
            self._open = False
            for block in reversed(self._blocks):
                self._pool.release(block)
            self._blocks = []


def slots_of(blocks: Sequence[int], start: int, stop: int) -> NDArray[np.int32]:
    """The pool slots of positions start .. stop-1 of a sequence with these blocks, i32."""
    at = np.arange(start, stop)
    return (np.asarray(blocks, np.int32)[at // BLOCK_SIZE] * BLOCK_SIZE + at % BLOCK_SIZE).astype(
        np.int32
    )
