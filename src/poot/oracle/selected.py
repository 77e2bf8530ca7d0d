"""Block-selected attention. Intermediates are f32 (f64 in f64 mode), rounded once at the end."""

from __future__ import annotations

import numpy as np

from poot.ir.rules.selected import always_of
from poot.oracle.fused import attend, f32
from poot.oracle.rows import At, row


def candidates(positions: np.ndarray, ratio: int, always: str) -> np.ndarray:
    """How many blocks a row at each position may list: those complete before it, or before the
    keys that it always visits; int64."""
    seen = positions.astype(np.int64) + (1 - always_of(always).last)
    return np.maximum(seen, 0) // ratio


@row("block_scores")
def block_scores(
    at: At, q: np.ndarray, keys: np.ndarray, *weights: np.ndarray, scale: float
) -> np.ndarray:
    """Products of one query row at a time."""
    q, keys = at.wide(q), at.wide(keys)
    batch, _, rows, _ = q.shape
    out: np.ndarray = np.empty((batch, 1, rows, keys.shape[1]), q.dtype)
    for r in range(rows):
        products = q[:, :, r] @ np.swapaxes(keys, 1, 2)
        share = np.maximum(products, f32(q, 0.0))
        if weights:
            share = share * at.wide(weights[0])[:, :, r, None]
        out[:, 0, r] = share.sum(1) * f32(q, scale)
    return at.held(out)


@row("block_topk")
def block_topk(
    at: At,
    scores: np.ndarray,
    positions: np.ndarray,
    *,
    k: int,
    ratio: int,
    always: str = "tail",
) -> np.ndarray:
    """A stable sort of the negated scores, those of no candidate NaN: numpy sorts NaN last."""
    blocks = scores.shape[-1]
    count = candidates(positions, ratio, always)[:, None, :, None]
    wide = np.where(_below(blocks, count), at.wide(scores), np.nan)
    order: np.ndarray = np.argsort(-wide, axis=-1, kind="stable")[..., :k]
    taken: np.ndarray = np.where(order < count, order, blocks)
    ids: np.ndarray = np.sort(taken, axis=-1)
    return at.held(np.where(ids < blocks, ids, -1))


@row("selected_attention")
def selected_attention(
    at: At,
    *ins: np.ndarray,
    operands: tuple[str, ...],
    ratio: int,
    scale: float,
    always: str = "tail",
    softcap: float | None = None,
    lse: bool = False,
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """Numbers among the attributes are rounded to f32 in both modes. Runs over blocks of query rows
    of at most 64 MiB of scores."""
    given = dict(zip(operands, ins, strict=True))
    heads = given["q"].shape[1]
    keys = given["read"].shape[1] if "read" in given else given["k"].shape[2]

    def shown(scores: np.ndarray, part: slice) -> tuple[np.ndarray, np.ndarray]:
        seen = visited(given["ids"][:, :, part], given["positions"][:, part], keys, ratio, always)
        if "len" in given:
            seen = seen & _below(keys, given["len"][:, None, None, None])
        return scores, np.repeat(~seen, heads // seen.shape[1], axis=1)

    return attend(at, given, scale, softcap, lse, shown)


def _below(extent: int, limit: np.ndarray) -> np.ndarray:
    """bool [..., extent]: whether an index along the last axis is below its limit."""
    index: np.ndarray = np.arange(extent)
    return index < limit


def visited(
    ids: np.ndarray, positions: np.ndarray, keys: int, ratio: int, always: str
) -> np.ndarray:
    """bool [B,Hs,Lq,Lk]: the keys that each row visits, for ids [B,Hs,Lq,K] and positions
    [B,Lq]."""
    listed = np.logical_and.accumulate(ids >= 0, axis=-1)
    blocks = -(-keys // ratio)
    chosen: np.ndarray = np.zeros((*ids.shape[:3], blocks + 1), bool)
    np.put_along_axis(chosen, np.where(listed & (ids < blocks), ids, blocks), True, axis=-1)
    t = np.arange(keys)
    where = positions[:, None, :, None]
    start = (candidates(positions, ratio, always) * ratio)[:, None, :, None]
    beyond = (t >= start) if always_of(always).is_any else np.False_
    return (chosen[..., t // ratio] | beyond) & (t <= where)
