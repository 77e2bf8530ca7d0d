"""Attention with keys and values of each head: projections, norms, rotation, bias."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from poot import ops
from poot.llm.models.parts.kinds import Heads
from poot.llm.models.parts.step import Bias, Step
from poot.llm.models.parts.values import Weights, normed, project, wide
from poot.ops.array import Array

K = TypeVar("K")
Turn = tuple[Array, Array]
Shape = tuple[int, ...]


def heads_shapes(kind: Heads, width: int) -> dict[str, Shape]:
    """The weights of `mix_heads`: name -> shape."""
    q, kv, head = kind.heads * kind.head_dim, kind.kv_heads * kind.head_dim, kind.head_dim
    made: dict[str, Shape]
    if kind.fused:
        made = {"qkv": (q + 2 * kv, width)}
    else:
        made = {"q": (q, width), "k": (kv, width), "v": (kv, width)}
    if kind.is_biased:
        made |= {f"{name}_bias": shape[:1] for name, shape in made.items()}
    made["out"] = (width, q)
    if kind.is_out_biased:
        made["out_bias"] = (width,)
    if kind.qk_norm is not None:
        made |= {"q_norm": (head,), "k_norm": (head,)}
    return made | ({"sink": (kind.heads,)} if kind.is_sunk else {})


def mix_heads(
    kind: Heads, w: Weights, h: Array, cache: K, step: Step[K], turn: Turn | None
) -> tuple[Array, K]:
    """h [rows * tokens, width] mixed with what the cache holds: (the same shape, the cache). `turn`
    is (cos, sin), [rows, 1, tokens, dim / 2]."""
    rows, tokens, _ = step.shape
    q, k, v = (x.transpose(0, 2, 1, 3) for x in _split(kind, w, h, rows, tokens))
    if kind.qk_norm is not None:
        q, k = normed(w, "q_norm", q, kind.qk_norm), normed(w, "k_norm", k, kind.qk_norm)
    if turn is not None:
        q, k = ops.rotate(q, *turn), ops.rotate(k, *turn)
    mixed, new = step.attend(
        cache,
        q,
        k,
        v,
        scale=kind.scale,
        window=kind.window,
        softcap=kind.softcap,
        sink=wide(w, "sink") if kind.is_sunk else None,
        bias=_alibi(kind.slopes) if kind.slopes else None,
    )
    flat = mixed.transpose(0, 2, 1, 3).reshape(rows * tokens, kind.heads * kind.head_dim)
    return project(w, "out", flat), new


def _split(kind: Heads, w: Weights, h: Array, rows: int, tokens: int) -> tuple[Array, Array, Array]:
    """q, k and v, each [rows, tokens, heads, head_dim]."""

    def made(name: str) -> Array:
        out = project(w, name, h)
        return out if kind.clip is None else ops.clip(out, -kind.clip, kind.clip)

    q, kv, head = kind.heads * kind.head_dim, kind.kv_heads * kind.head_dim, kind.head_dim
    if kind.fused == "heads":
        each = made("qkv").reshape(rows, tokens, kind.heads, 3, head)
        return each[:, :, :, 0], each[:, :, :, 1], each[:, :, :, 2]
    if kind.fused:
        both = made("qkv")
        parts = both[:, :q], both[:, q : q + kv], both[:, q + kv :]
    else:
        parts = made("q"), made("k"), made("v")
    a, b, c = (x.reshape(rows, tokens, -1, head) for x in parts)
    return a, b, c


def _alibi(slopes: tuple[float, ...]) -> Bias:
    def bias(tokens: int, capacity: int, pos: Array) -> Array:
        return ops.alibi_bias(np.array(slopes, np.float32), tokens, capacity, start=pos)

    return bias
