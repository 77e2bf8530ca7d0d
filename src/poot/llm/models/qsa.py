"""A decoder with block-selected attention as a plain function over `poot.ops`, with a cache of
fixed capacity: the attention layer of Qwen Sparse Attention at any size.

Each layer has an indexer beside its attention: a few heads of queries and one raw key a token. A
block's key is the mean of its raw keys, normed (1 + w) and rotated at the block's first position; a
row attends the best `selected` complete blocks and its unfinished one. Block keys are cached; raw
keys are too, so that the entry point "rollback" can open a block again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from poot import ops
from poot.errors import RequestError
from poot.ir.graph import Graph
from poot.ops.array import Array
from poot.ops.block_keys import BlockKeys
from poot.session import Session
from poot.trace import Spec, slot, state, trace, weight

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class QsaConfig:
    """Extents. `ratio` keys are a block, `selected` blocks a row's list, beside its unfinished
    block; `index_heads` query heads of `index_dim` score them."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    index_heads: int
    index_dim: int
    ratio: int
    selected: int
    theta: float = 1e6
    eps: float = 1e-6


@dataclass(frozen=True, slots=True)
class Layer(Generic[T]):
    """One layer's weights. Matrices are [out, in]; norms [width], applied as 1 + w."""

    attn_norm: T
    q: T
    k: T
    v: T
    out: T
    index_q: T
    index_k: T
    index_norm: T
    ffn_norm: T
    gate: T
    up: T
    down: T


@dataclass(frozen=True, slots=True)
class Weights(Generic[T]):
    """A model's weights; the embedding serves as the head."""

    embed: T
    layers: tuple[Layer[T], ...]
    norm: T


@dataclass(frozen=True, slots=True)
class Cache(Generic[T]):
    """One layer's keys and values [1,kv_heads,capacity,head_dim], raw index keys [capacity,
    index_dim], and the block keys."""

    k: T
    v: T
    raw: T
    blocks: BlockKeys[T]


def qsa_weights(config: QsaConfig) -> Weights[Spec]:
    """The weights as specs."""
    c, f = config, weight
    layer = Layer(
        attn_norm=f((c.width,)),
        q=f((c.heads * c.head_dim, c.width)),
        k=f((c.kv_heads * c.head_dim, c.width)),
        v=f((c.kv_heads * c.head_dim, c.width)),
        out=f((c.width, c.heads * c.head_dim)),
        index_q=f((c.index_heads * c.index_dim, c.width)),
        index_k=f((c.index_dim, c.width)),
        index_norm=f((c.index_dim,)),
        ffn_norm=f((c.width,)),
        gate=f((c.ffn, c.width)),
        up=f((c.ffn, c.width)),
        down=f((c.width, c.ffn)),
    )
    return Weights(f((c.vocab, c.width)), (layer,) * c.layers, f((c.width,)))


def qsa_graphs(config: QsaConfig, *, capacity: int, buckets: Sequence[int]) -> dict[str, Graph]:
    """One entry point a bucket ("decode", "prefill_N") with slots `tokens` [bucket], `pos` [] and,
    above 1, `last` []: the last real row, whose logits f32 [vocab] it gives; rows behind it are
    padding. And "rollback", with the slot `length` [1]: the block that is open after so many
    tokens. Raises RequestError for a capacity that no blocks fill, or a bucket past it."""
    if capacity < config.ratio or capacity % config.ratio:
        raise RequestError(f"capacity is {capacity}; needs a multiple of {config.ratio}")
    if not buckets or min(buckets) < 1 or max(buckets) > capacity:
        raise RequestError(f"buckets are {list(buckets)}; needs sizes from 1 to {capacity}")
    kv = _caches(config, capacity)
    graphs: dict[str, Graph] = {}
    for bucket in buckets:
        slots: dict[str, object] = {
            "tokens": slot((bucket,), kind="tokens", range=(0, config.vocab)),
            "pos": slot((), kind="pos", range=(0, capacity - bucket + 1)),
        }
        if bucket > 1:
            slots["last"] = slot((), range=(0, bucket))
        given = {"w": qsa_weights(config), "kv": kv, **slots}
        graphs[entry_name(bucket)] = trace(qsa_step(config), given)
    length = slot((1,), "i32", range=(0, capacity + 1))
    graphs["rollback"] = trace(qsa_rollback(config), {"kv": kv, "length": length})
    return graphs


def entry_name(bucket: int) -> str:
    """The entry point for chunks of `bucket` rows."""
    return "decode" if bucket == 1 else f"prefill_{bucket}"


def _caches(config: QsaConfig, capacity: int) -> tuple[Cache[Spec], ...]:
    shape = (1, config.kv_heads, capacity, config.head_dim)
    blocks = BlockKeys(
        state((capacity // config.ratio, config.index_dim)),
        state((1, config.index_dim)),
        state((1,), "i32"),
    )
    one = Cache(state(shape), state(shape), state((capacity, config.index_dim)), blocks)
    return (one,) * config.layers


def qsa_step(config: QsaConfig) -> Callable[..., object]:
    """The step function (w, kv, tokens, pos, last=None) -> (logits, kv) to be traced."""

    def step(
        w: Weights[Array],
        kv: tuple[Cache[Array], ...],
        tokens: Array,
        pos: Array,
        last: Array | None = None,
    ) -> tuple[Array, tuple[Cache[Array], ...]]:
        rows = tokens.shape[0]
        x = ops.embedding(w.embed, tokens)
        at = (ops.arange(rows) + pos).reshape(1, rows)
        real = None if last is None else (last + 1).reshape(1)
        written: list[Cache[Array]] = []
        for layer, cache in zip(w.layers, kv, strict=True):
            h = ops.rms_norm(x, layer.attn_norm, config.eps, plus_one=True)
            mixed, new = _attention(config, layer, h, cache, at, pos, real)
            written.append(new)
            x = x + mixed
            h = ops.rms_norm(x, layer.ffn_norm, config.eps, plus_one=True)
            gated = ops.swiglu(ops.linear(h, layer.gate), ops.linear(h, layer.up))
            x = x + ops.linear(gated, layer.down)
        if last is not None:
            x = ops.dynamic_slice(x, last, 1)
        h = ops.rms_norm(x, w.norm, config.eps, plus_one=True)
        return ops.linear(h, w.embed).reshape(config.vocab), tuple(written)

    return step


def qsa_rollback(config: QsaConfig) -> Callable[..., object]:
    """(kv, length) -> (length, kv) with the open block's sum and count restored."""

    def rollback(
        kv: tuple[Cache[Array], ...], length: Array
    ) -> tuple[Array, tuple[Cache[Array], ...]]:
        restored: list[Cache[Array]] = []
        for cache in kv:
            raw = cache.raw.reshape(1, *cache.raw.shape)
            total, count = ops.open_block(raw, length, config.ratio)
            blocks = BlockKeys(cache.blocks.keys, total, count)
            restored.append(Cache(cache.k, cache.v, cache.raw, blocks))
        return length + 0, tuple(restored)

    return rollback


def _attention(
    config: QsaConfig,
    layer: Layer[Array],
    h: Array,
    cache: Cache[Array],
    at: Array,
    pos: Array,
    real: Array | None,
) -> tuple[Array, Cache[Array]]:
    """h [L, width] over the cache with the chunk's keys and values written."""
    c, rows = config, h.shape[0]

    def heads(matrix: Array, count: int, width: int) -> Array:
        return ops.linear(h, matrix).reshape(1, rows, count, width).transpose(0, 2, 1, 3)

    q = ops.rope(heads(layer.q, c.heads, c.head_dim), at, c.theta)
    k = ops.rope(heads(layer.k, c.kv_heads, c.head_dim), at, c.theta)
    raw = ops.linear(h, layer.index_k)
    blocks = ops.append_block_keys(
        cache.blocks,
        raw.reshape(1, rows, c.index_dim),
        at,
        c.ratio,
        lambda means, first: block_key(c, layer.index_norm, means, first),
        real,
    )
    new = Cache(
        ops.dynamic_update_slice(cache.k, k, pos, axis=2),
        ops.dynamic_update_slice(cache.v, heads(layer.v, c.kv_heads, c.head_dim), pos, axis=2),
        ops.dynamic_update_slice(cache.raw, raw, pos, axis=0),
        blocks,
    )
    index_q = ops.rope(heads(layer.index_q, c.index_heads, c.index_dim), at, c.theta)
    scores = ops.block_scores(index_q, blocks.keys.reshape(1, *blocks.keys.shape))
    ids = ops.block_topk(scores, at, c.selected, c.ratio)
    mixed = ops.attention_selected(q, new.k, new.v, ids, at, ratio=c.ratio, scale=c.head_dim**-0.5)
    assert isinstance(mixed, Array)
    flat = mixed.transpose(0, 2, 1, 3).reshape(rows, c.heads * c.head_dim)
    return ops.linear(flat, layer.out), new


def block_key(config: QsaConfig, norm: Array, means: Array, first: Array) -> Array:
    """Block keys of means [B,L,d]: normed, and rotated at the block's first position."""
    return ops.rope(ops.rms_norm(means, norm, config.eps, plus_one=True), first, config.theta)


@dataclass(frozen=True, slots=True)
class QsaStep:
    """A session of `qsa_graphs` as the step function that `poot.llm.generate` drives."""

    session: Session

    def __call__(self, tokens: NDArray[np.int32], pos: int, last: int) -> NDArray[np.float32]:
        bucket = len(tokens)
        slots: dict[str, object] = {"tokens": tokens, "pos": np.int32(pos)}
        if bucket > 1:
            slots["last"] = np.int32(last)
        logits = self.session.step(entry_name(bucket), device_outputs=None, **slots)
        return np.asarray(logits, np.float32)

    def rollback(self, length: int) -> None:
        """Goes back to the first `length` tokens."""
        self.session.step("rollback", device_outputs=None, length=np.array([length], np.int32))
