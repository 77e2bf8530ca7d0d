"""The decoder with block-selected attention in f64 numpy, the whole sequence at once, from the
definition: it keeps no cache and shares no code with poot's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tests.support.selected import attend, block_scores, topk_ids


def arrays_of(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights by name: matrices of unit gain, norms near 0."""
    rng = np.random.default_rng(seed)
    return {
        n: (rng.normal(size=s) * (0.1 if len(s) == 1 else s[-1] ** -0.5)).astype(np.float32)
        for n, s in shapes.items()
    }


def norm(x: np.ndarray, w: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * (1.0 + w)


def turn(x: np.ndarray, at: np.ndarray, theta: float) -> np.ndarray:
    """x [..., L, D] turned by halves at positions [L]."""
    half = x.shape[-1] // 2
    angle = at[:, None] * theta ** (-np.arange(half) * 2.0 / x.shape[-1])
    a, b = x[..., :half], x[..., half:]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def logits_of(c, given: Mapping[str, np.ndarray], tokens: Sequence[int]) -> np.ndarray:
    """f64 [len(tokens), vocab], with the ids of each layer left out."""
    w = {n: x.astype(float) for n, x in given.items()}
    rows = len(tokens)
    at = np.arange(rows)
    x = w["w.embed"][list(tokens)]
    for i in range(c.layers):
        p = {n.split(".")[-1]: v for n, v in w.items() if n.startswith(f"w.layers.{i}.")}
        x = x + attention(c, p, norm(x, p["attn_norm"], c.eps), at)
        h = norm(x, p["ffn_norm"], c.eps)
        gate = h @ p["gate"].T
        x = x + (gate / (1.0 + np.exp(-gate)) * (h @ p["up"].T)) @ p["down"].T
    return norm(x, w["w.norm"], c.eps) @ w["w.embed"].T


def attention(c, p: Mapping[str, np.ndarray], h: np.ndarray, at: np.ndarray) -> np.ndarray:
    rows = h.shape[0]

    def heads(name: str, width: int) -> np.ndarray:
        return (h @ p[name].T).reshape(rows, -1, width).transpose(1, 0, 2)[None]

    q, k = (turn(heads(n, c.head_dim), at, c.theta) for n in "qk")
    raw, blocks = h @ p["index_k"].T, max(rows // c.ratio, 1)
    keys = np.zeros((1, blocks, c.index_dim))
    for b in range(rows // c.ratio):
        mean = norm(raw[b * c.ratio : (b + 1) * c.ratio].mean(0), p["index_norm"], c.eps)
        keys[0, b] = turn(mean[None], np.array([b * c.ratio]), c.theta)[0]
    scores = block_scores(turn(heads("index_q", c.index_dim), at, c.theta), keys)
    ids = topk_ids(scores[:, None], at[None], c.selected, c.ratio)
    scale = c.head_dim**-0.5
    out, _ = attend(q, k, heads("v", c.head_dim), ids, at[None], c.ratio, scale)
    return out[0].transpose(1, 0, 2).reshape(rows, -1) @ p["out"].T
