"""Attention in f64 numpy, one head at a time: what the compositions are compared with."""

from __future__ import annotations

import math

import numpy as np

from tests.support.traced import normal

INF = math.inf


def reference(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    scale: float,
    *,
    cap: float | None = None,
    add: np.ndarray | float = 0.0,
    keep: np.ndarray | bool = True,
    sink: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(out, log-sum-exp) in f64, one head at a time."""
    batch, heads, rows, _ = q.shape
    group = heads // k.shape[1]
    out = np.empty((batch, heads, rows, v.shape[3]))
    lse = np.empty((batch, heads, rows))
    keep = np.broadcast_to(keep, (batch, heads, rows, k.shape[2]))
    add = np.broadcast_to(add, keep.shape)
    with np.errstate(all="ignore"):
        for b in range(batch):
            for h in range(heads):
                g = h // group
                s = q[b, h].astype(float) @ k[b, g].astype(float).T * scale
                s = s if cap is None else cap * np.tanh(s / cap)
                s = np.where(keep[b, h], s + add[b, h], -INF)
                top = s.max(-1, keepdims=True)
                if sink is not None:
                    top = np.maximum(top, sink[h])
                e = np.exp(s - top)
                total = e.sum(-1, keepdims=True)
                lse[b, h] = np.where(np.isinf(s).all(-1), -INF, (np.log(total) + top)[:, 0])
                if sink is not None:
                    total = total + np.exp(sink[h] - top)
                out[b, h] = e / total @ v[b, g].astype(float)
    return out, lse


def qkv(
    b: int, hq: int, hkv: int, lq: int, lk: int, dk: int, dv: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return normal(0, b, hq, lq, dk), normal(1, b, hkv, lk, dk), normal(2, b, hkv, lk, dv)


def close(got: object, want: object, atol: float = 2e-5) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=atol)


def bottom_right(rows: int, keys: int) -> np.ndarray:
    return np.arange(keys) <= np.arange(rows)[:, None] + keys - rows
