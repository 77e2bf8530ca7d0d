"""The cache of block keys: one key for every `ratio` tokens, written once, when its block is full.

A block's key is made of the mean of its tokens' raw keys, taken in f32. The sum and count of the
open block are State beside the keys; a step of tokens that fills blocks writes their keys by
`scatter_update`, with row -1 where nothing is full: no control flow. Where a request goes back to
fewer tokens, `open_block` gives sum and count again from the cached raw keys; keys of blocks that
are no longer full are never read, and are written again when they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from poot.ops.array import Array, emit, reduce, reshape
from poot.ops.elementwise import where
from poot.ops.index import scatter_update, take
from poot.ops.record import refuse

T = TypeVar("T")
# (means f32 [B,L,d], first positions i32 [B,L]) -> block keys [B,L,d].
Finish = Callable[[Array, Array], Array]


@dataclass(frozen=True, slots=True)
class BlockKeys(Generic[T]):
    """keys [B*N,d]: block n of batch row b is row b * N + n; total f32 [B,d] and count i32 [B]: the
    sum of the open block's raw keys, and how many those are."""

    keys: T
    total: T
    count: T


def append_block_keys(
    cache: BlockKeys[Array],
    raw: Array,
    positions: Array,
    ratio: int,
    finish: Finish,
    valid: Array | None = None,
) -> BlockKeys[Array]:
    """The cache with the raw keys [B,L,d] of tokens at positions i32 [B,L], which follow on what it
    holds. Of each row the first valid[b] tokens (i32 [B], 0 .. L) are real, all where None.

    `finish` makes block keys of means: norm, rotation at the block's first position. Sums are
    f32."""
    batch, rows, width = _checked(cache, raw, positions, ratio)
    blocks = cache.keys.shape[0] // batch
    wide = raw.astype("f32")
    token = _iota(raw, (1, rows), 1)
    offset = reshape(cache.count, (batch, 1)) + token
    part = emit("div", offset, _number(raw, ratio))
    real = None if valid is None else token < reshape(valid, (batch, 1))
    kept = wide if real is None else where(reshape(real, (batch, rows, 1)), wide, 0.0)
    mine, other = reshape(part, (batch, rows, 1)), reshape(part, (batch, 1, rows))
    before = _iota(raw, (1, 1, rows), 2) <= _iota(raw, (1, rows, 1), 1)
    same = where((mine == other) & before, 1.0, _real(raw, 0.0))
    carried = where(mine == 0, reshape(cache.total, (batch, 1, width)), 0.0)
    means = (same @ kept + carried) * (1.0 / ratio)
    keys = finish(means, positions - (ratio - 1)).astype(cache.keys.dtype)
    full = emit("rem", offset, _number(raw, ratio)) == ratio - 1
    full = full if real is None else full & real
    row = _iota(raw, (batch, 1), 0) * blocks + emit("div", positions, _number(raw, ratio))
    rows_ = reshape(where(full, row, -1), (batch * rows,))
    written = scatter_update(cache.keys, reshape(keys, (batch * rows, width)), rows_)
    seen = cache.count + (rows if valid is None else valid)
    return BlockKeys(
        written,
        _open_total(cache, kept, part, emit("div", seen, _number(raw, ratio))),
        emit("rem", seen, _number(raw, ratio)),
    )


def _open_total(cache: BlockKeys[Array], kept: Array, part: Array, last: Array) -> Array:
    """The sum of the block that is open after the step: its number, counted from the one that was
    open before it, is `last`."""
    batch, rows, _ = kept.shape
    is_open = part == reshape(last, (batch, 1))
    own = where(reshape(is_open, (batch, rows, 1)), kept, 0.0)
    carried = where(reshape(last == 0, (batch, 1)), cache.total, 0.0)
    return reduce("sum", own, 1, False) + carried


def open_block(raw: Array, length: Array, ratio: int) -> tuple[Array, Array]:
    """(total f32 [B,d], count i32 [B]) of the open block of a request of length[b] tokens (i32 [B],
    0 .. cap), from its cached raw keys [B,cap,d]: what a rollback to that length restores."""
    if raw.ndim != 3 or length.dtype != "i32" or length.shape != raw.shape[:1]:
        refuse("open_block", "raw [B,cap,d] and length i32 [B]", raw=raw.type, length=length.type)
    batch, capacity, width = raw.shape
    start = emit("div", length, _number(raw, ratio)) * ratio
    t = reshape(start, (batch, 1)) + _iota(raw, (1, ratio), 1)
    row = _iota(raw, (batch, 1), 0) * capacity + t
    own = take(reshape(raw, (batch * capacity, width)), row, 0, "clamp").astype("f32")
    seen = reshape(t < reshape(length, (batch, 1)), (batch, ratio, 1))
    return reduce("sum", where(seen, own, 0.0), 1, False), length - start


def _checked(
    cache: BlockKeys[Array], raw: Array, positions: Array, ratio: int
) -> tuple[int, int, int]:
    fits = raw.ndim == 3 and positions.dtype == "i32" and positions.shape == raw.shape[:2]
    if not fits or ratio < 1:
        refuse(
            "append_block_keys",
            "raw [B,L,d], positions i32 [B,L] and a ratio of 1 or more",
            raw=raw.type,
            positions=positions.type,
            ratio=ratio,
        )
    batch, rows, width = raw.shape
    open_ok = cache.total.shape == (batch, width) and cache.total.dtype == "f32"
    count_ok = cache.count.shape == (batch,) and cache.count.dtype == "i32"
    whole = cache.keys.ndim == 2 and cache.keys.shape[1] == width
    if not (open_ok and count_ok and whole and batch and cache.keys.shape[0] % batch == 0):
        refuse(
            "append_block_keys",
            "keys [B*N,d], total f32 [B,d], count i32 [B]",
            keys=cache.keys.type,
            total=cache.total.type,
            count=cache.count.type,
        )
    return batch, rows, width


def _iota(like: Array, shape: tuple[int, ...], axis: int) -> Array:
    return emit("iota", recorder=like.recorder, shape=shape, axis=axis, dtype="i32")


def _number(like: Array, value: int) -> Array:
    return emit("const", recorder=like.recorder, shape=(), dtype="i32", value=value)


def _real(like: Array, value: float) -> Array:
    return emit("const", recorder=like.recorder, shape=(), dtype="f32", value=value)
