"""Block-selected attention in f64 numpy, row by row, straight from its definition: what poot's
primitives and kernels are compared with. It shares no code with either."""

from __future__ import annotations

import math

import numpy as np


def count_of(position: int, ratio: int, always: str = "tail") -> int:
    """How many blocks a row at a position may list."""
    if always.startswith("window("):
        return max(position + 1 - int(always[7:-1]), 0) // ratio
    return (position + 1) // ratio if always in ("tail", "none") else position // ratio


def best(scores: np.ndarray, count: int, k: int) -> list[int]:
    """The blocks 0 .. count-1 of the k highest scores, ascending: lower first on ties, NaN last."""
    ranked = sorted(
        range(count), key=lambda b: (math.isnan(scores[b]), -np.nan_to_num(float(scores[b])), b)
    )
    return sorted(ranked[:k])


def visited(blocks: list[int], position: int, ratio: int, always: str = "tail") -> list[int]:
    """The positions that a row visits."""
    keys = {b * ratio + i for b in blocks for i in range(ratio)}
    if always != "none":
        keys |= set(range(count_of(position, ratio, always) * ratio, position + 1))
    return sorted(keys)


def block_scores(q: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """[B,Lq,N] of q [B,H,Lq,d] and block keys [B,N,d]."""
    q, keys = q.astype(float), keys.astype(float)
    out = np.zeros((q.shape[0], q.shape[2], keys.shape[1]))
    for b, h in np.ndindex(q.shape[0], q.shape[1]):
        out[b] += np.maximum(q[b, h] @ keys[b].T, 0.0)
    return out / math.sqrt(q.shape[3])


def list_of(ids: np.ndarray) -> list[int]:
    """A list up to its first negative id."""
    out: list[int] = []
    for i in ids.tolist():
        if i < 0:
            break
        out.append(i)
    return out


def attend(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    ids: np.ndarray,
    positions: np.ndarray,
    ratio: int,
    scale: float,
    always: str = "tail",
    softcap: float | None = None,
    sink: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(out [B,Hq,Lq,Dv], log-sum-exp [B,Hq,Lq]) over what each row visits alone."""
    batch, heads, rows, _ = q.shape
    out = np.empty((batch, heads, rows, v.shape[3]))
    lse = np.empty((batch, heads, rows))
    for b, h, r in np.ndindex(batch, heads, rows):
        g = h // (heads // k.shape[1])
        own = h // (heads // ids.shape[1])
        keys = visited(list_of(ids[b, own, r]), int(positions[b, r]), ratio, always)
        s = k[b, g, keys].astype(float) @ q[b, h, r].astype(float) * scale
        if not keys:
            out[b, h, r], lse[b, h, r] = (math.nan if sink is None else 0.0), -math.inf
            continue
        s = s if softcap is None else softcap * np.tanh(s / softcap)
        top = s.max() if sink is None else max(s.max(), float(sink[h]))
        e = np.exp(s - top)
        lse[b, h, r] = math.log(e.sum()) + top
        total = e.sum() + (0.0 if sink is None else math.exp(float(sink[h]) - top))
        out[b, h, r] = e / total @ v[b, g, keys].astype(float)
    return out, lse


def topk_ids(
    scores: np.ndarray, positions: np.ndarray, k: int, ratio: int, always: str = "tail"
) -> np.ndarray:
    """i32 [B,Hs,Lq,k] of scores [B,Hs,Lq,N]."""
    batch, heads, rows, blocks = scores.shape
    ids = np.full((batch, heads, rows, k), -1, np.int32)
    for b, h, r in np.ndindex(batch, heads, rows):
        count = min(count_of(int(positions[b, r]), ratio, always), blocks)
        found = best(scores[b, h, r].astype(float), count, k)
        ids[b, h, r, : len(found)] = found
    return ids
