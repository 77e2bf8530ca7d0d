"""Ops that only passes form. Intermediates are f32 (f64 in f64 mode), rounded once at the end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from poot.ir.graph import Graph
from poot.oracle.rows import At, row

BLOCK_NBYTES = 1 << 26


@row("rope")
def rope(
    at: At, x: np.ndarray, cos: np.ndarray, sin: np.ndarray, *, interleaved: bool
) -> np.ndarray:
    x, cos, sin = at.wide(x), at.wide(cos), at.wide(sin)
    half = cos.shape[-1]
    turned, kept = x[..., : 2 * half], x[..., 2 * half :]
    pairs = turned.reshape(*x.shape[:-1], half, 2) if interleaved else None
    if pairs is not None:
        a, b = pairs[..., 0], pairs[..., 1]
    else:
        a, b = turned[..., :half], turned[..., half:]
    first, second = a * cos - b * sin, b * cos + a * sin
    if pairs is not None:
        mixed = np.stack((first, second), -1).reshape(turned.shape)
    else:
        mixed = np.concatenate((first, second), -1)
    return at.held(np.concatenate((mixed, kept), -1))


@row("region")
def region(
    at: At,
    *ins: np.ndarray,
    body: Graph,
    anchor: str,
    updates: tuple[tuple[int, int], ...] = (),
) -> tuple[np.ndarray, ...]:
    """The body as written, each eqn rounding to its dtype: the launch changes no meaning."""
    return at.run_body(body, ins)


@row("attention")
def attention(
    at: At,
    *ins: np.ndarray,
    operands: tuple[str, ...],
    scale: float,
    softcap: float | None = None,
    mask_fill: float | None = None,
    causal: int | None = None,
    window: int | None = None,
    lse: bool = False,
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """Numbers among the attributes are rounded to f32 in both modes. A key that len, causal or
    window hides is never read into a result, whatever its value holds; lse leaves the sink out.
    Runs over blocks of query rows of at most 64 MiB of scores."""
    given = dict(zip(operands, ins, strict=True))
    keys = given["read"].shape[1] if "read" in given else given["k"].shape[2]

    def shown(scores: np.ndarray, part: slice) -> tuple[np.ndarray, np.ndarray | None]:
        if "bias" in given:
            scores = _masked(at, scores, given["bias"], part, None)
        if "mask" in given:
            scores = _masked(at, scores, given["mask"], part, mask_fill)
        return scores, _hidden(given.get("len"), range(part.start, part.stop), keys, causal, window)

    return attend(at, given, scale, softcap, lse, shown)


# What becomes of the scores [B,H,r,Lk] of a slice of query rows, and which of their keys are hidden
# (None where none is).
Shown = Callable[[np.ndarray, slice], tuple[np.ndarray, np.ndarray | None]]


def attend(
    at: At,
    given: dict[str, np.ndarray],
    scale: float,
    softcap: float | None,
    lse: bool,
    shown: Shown,
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """softmax(shown(softcap(q k^T scale))) v over blocks of query rows of at most 64 MiB of scores;
    with lse also the log of each row's sum."""
    q = at.wide(given["q"])
    k, v = keys_and_values(at, given)
    batch, heads, rows, _ = q.shape
    out = np.empty((batch, heads, rows, v.shape[-1]), q.dtype)
    logs = np.empty((batch, heads, rows), q.dtype)
    sink = at.wide(given["sink"]).reshape(1, heads, 1, 1) if "sink" in given else None
    step = max(1, BLOCK_NBYTES // max(1, batch * heads * k.shape[2] * q.itemsize))
    for first in range(0, rows, step):
        part = slice(first, min(first + step, rows))
        scores = grouped(q[:, :, part], np.swapaxes(k, -1, -2)) * f32(q, scale)
        if softcap is not None:
            scores = f32(q, softcap) * np.tanh(scores / f32(q, softcap))
        scores, hidden = shown(scores, part)
        if hidden is not None:
            scores = np.where(hidden, f32(scores, -np.inf), scores)
        out[:, :, part] = weighed(softmax(scores, sink), v, hidden)
        if lse:
            logs[:, :, part] = log_sum(scores)
    return (at.held(out), at.held(logs, 1)) if lse else at.held(out)


def f32(like: np.ndarray, number: float) -> np.ndarray:
    """A number rounded to f32, as a scalar of like's dtype."""
    return np.asarray(np.float32(number)).astype(like.dtype)


def keys_and_values(at: At, given: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """k [B,Hkv,Lk,Dk] and v [B,Hkv,Lk,Dv]: pools read through the map, the shared part joined."""
    k, v = at.wide(given["k"]), at.wide(given["v"])
    if "read" in given:
        slots = np.clip(given["read"], 0, k.shape[0] - 1)
        k, v = k[slots].transpose(0, 2, 1, 3), v[slots].transpose(0, 2, 1, 3)
    if "k_shared" in given:
        shared = at.wide(given["k_shared"])
        k = np.concatenate((k, np.broadcast_to(shared, (*k.shape[:3], shared.shape[-1]))), -1)
    return k, v


def grouped(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x [B,Hq,R,m] times y [B,Hkv,m,n], query head h with key head h // (Hq/Hkv)."""
    batch, heads, rows, width = x.shape
    groups = y.shape[1]
    stacked = x.reshape(batch, groups, heads // groups * rows, width)
    return np.matmul(stacked, y).reshape(batch, heads, rows, y.shape[-1])


def _masked(
    at: At, scores: np.ndarray, mask: np.ndarray, part: slice, fill: float | None
) -> np.ndarray:
    here = mask[:, :, part] if mask.shape[2] != 1 else mask
    if fill is None:
        return scores + at.wide(here)
    return np.where(here, scores, f32(scores, fill))


def _hidden(
    length: np.ndarray | None, rows: range, keys: int, causal: int | None, window: int | None
) -> np.ndarray | None:
    """[B|1,1,R|1,Lk]: which keys no row may see; None where all are seen."""
    key = np.arange(keys)
    row = np.arange(rows.start, rows.stop).reshape(-1, 1)
    claims: list[np.ndarray] = []
    if length is not None:
        claims.append(key >= length[:, None, None, None])
    if causal is not None:
        claims.append((key > row + causal)[None, None])
    if window is not None:
        claims.append((key <= row + (causal or 0) - window)[None, None])
    hidden = None
    for claim in claims:
        hidden = claim if hidden is None else hidden | claim
    return hidden


def softmax(scores: np.ndarray, sink: np.ndarray | None) -> np.ndarray:
    """Each key's weight. A row of nothing but -inf is NaN without a sink, as 0/0 is."""
    most: np.ndarray = np.max(scores, -1, keepdims=True)
    peak = most if sink is None else np.maximum(most, sink)
    grown = np.exp(scores - peak)
    total = np.sum(grown, -1, keepdims=True)
    return grown / (total if sink is None else total + np.exp(sink - peak))


def log_sum(scores: np.ndarray) -> np.ndarray:
    """The log of the sum of exp(score) of each row; -inf where every score is."""
    most: np.ndarray = np.max(scores, -1, keepdims=True)
    floor = np.where(most == -np.inf, np.zeros_like(most), most)
    return (floor + np.log(np.sum(np.exp(scores - floor), -1, keepdims=True)))[..., 0]


def weighed(weights: np.ndarray, v: np.ndarray, hidden: np.ndarray | None) -> np.ndarray:
    """weights times v, where a hidden key's value adds nothing even if it is NaN or infinite."""
    wild = ~np.isfinite(v)
    if hidden is None or not wild.any():
        return grouped(weights, v)
    seen = ~np.broadcast_to(hidden, weights.shape)

    def any_of(rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        return grouped((seen & rows).astype(np.float32), values.astype(np.float32)) > 0

    heavy = weights > 0
    up, down = any_of(heavy, np.isposinf(v)), any_of(heavy, np.isneginf(v))
    lost = any_of(seen, np.isnan(v)) | any_of(~heavy, np.isinf(v)) | (up & down)
    out = grouped(weights, np.where(wild, np.zeros_like(v), v))
    out[up], out[down], out[lost] = np.inf, -np.inf, np.nan
    return out
