"""Small language models as Flax, Equinox and plain jnp write them, with random weights. Each gives
(function of the weights and the ids, the weights)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

Model = tuple[Callable[[Any, Array], Array], Any]
WORDS, WIDTH, HEADS, LENGTH, LAYERS = 61, 32, 4, 12, 2


# Flax, linen: a decoder as its guide writes one, learned positions, GELU.


class LinenBlock(nn.Module):
    @nn.compact
    def __call__(self, x: Array, mask: Array) -> Array:
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(HEADS, deterministic=True)(y, y, mask=mask)
        return x + nn.Dense(WIDTH)(nn.gelu(nn.Dense(4 * WIDTH)(nn.LayerNorm()(x))))


class Linen(nn.Module):
    @nn.compact
    def __call__(self, ids: Array) -> Array:
        words = nn.Embed(WORDS, WIDTH)
        x = words(ids) + nn.Embed(LENGTH, WIDTH)(jnp.arange(ids.shape[1]))
        for _ in range(LAYERS):
            x = LinenBlock()(x, nn.make_causal_mask(ids))
        return words.attend(nn.LayerNorm()(x))


def linen() -> Model:
    model = Linen()
    weights = model.init(jax.random.key(0), jnp.zeros((1, LENGTH), jnp.int32))
    return lambda params, ids: model.apply(params, ids), weights


# Flax, nnx: RMS norm and SwiGLU.


class NnxBlock(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.before = nnx.RMSNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)
        self.after = nnx.RMSNorm(WIDTH, rngs=rngs)
        self.gate = nnx.Linear(WIDTH, 3 * WIDTH, use_bias=False, rngs=rngs)
        self.up = nnx.Linear(WIDTH, 3 * WIDTH, use_bias=False, rngs=rngs)
        self.down = nnx.Linear(3 * WIDTH, WIDTH, use_bias=False, rngs=rngs)

    def __call__(self, x: Array, mask: Array) -> Array:
        x = x + self.attention(self.before(x), mask=mask, deterministic=True)
        y = self.after(x)
        return x + self.down(nnx.silu(self.gate(y)) * self.up(y))


class Nnx(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.words = nnx.Embed(WORDS, WIDTH, rngs=rngs)
        self.blocks = nnx.List([NnxBlock(rngs) for _ in range(LAYERS)])
        self.out = nnx.Linear(WIDTH, WORDS, rngs=rngs)

    def __call__(self, ids: Array) -> Array:
        x = self.words(ids)
        for block in self.blocks:
            x = block(x, nnx.make_causal_mask(ids))
        return self.out(x)


def flax_nnx() -> Model:
    return lambda model, ids: model(ids), Nnx(nnx.Rngs(0))


# Equinox: one sequence at a time, vmapped; rotary positions.


class EqxBlock(eqx.Module):
    before: eqx.nn.LayerNorm
    after: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    rope: eqx.nn.RotaryPositionalEmbedding
    mlp: eqx.nn.MLP

    def __init__(self, key: Array) -> None:
        one, two = jax.random.split(key)
        self.before, self.after = eqx.nn.LayerNorm(WIDTH), eqx.nn.LayerNorm(WIDTH)
        self.attention = eqx.nn.MultiheadAttention(HEADS, WIDTH, key=one)
        self.rope = eqx.nn.RotaryPositionalEmbedding(WIDTH // HEADS)
        self.mlp = eqx.nn.MLP(WIDTH, WIDTH, 4 * WIDTH, 1, jax.nn.gelu, key=two)

    def __call__(self, x: Array) -> Array:
        turn = jax.vmap(self.rope, in_axes=1, out_axes=1)
        y = jax.vmap(self.before)(x)
        mask = jnp.tril(jnp.ones((len(x), len(x)), bool))
        heads = lambda q, k, v: (turn(q), turn(k), v)  # noqa: E731 - as its users write it
        x = x + self.attention(y, y, y, mask=mask, process_heads=heads)
        return x + jax.vmap(self.mlp)(jax.vmap(self.after)(x))


class Eqx(eqx.Module):
    words: eqx.nn.Embedding
    blocks: list[EqxBlock]
    norm: eqx.nn.RMSNorm
    out: eqx.nn.Linear

    def __init__(self, key: Array) -> None:
        keys = jax.random.split(key, LAYERS + 2)
        self.words = eqx.nn.Embedding(WORDS, WIDTH, key=keys[0])
        self.blocks = [EqxBlock(k) for k in keys[2:]]
        self.norm = eqx.nn.RMSNorm(WIDTH)
        self.out = eqx.nn.Linear(WIDTH, WORDS, key=keys[1])

    def __call__(self, ids: Array) -> Array:
        x = jax.vmap(self.words)(ids)
        for block in self.blocks:
            x = block(x)
        return jax.vmap(lambda row: self.out(self.norm(row)))(x)


def equinox() -> Model:
    return lambda model, ids: jax.vmap(model)(ids), Eqx(jax.random.key(1))


# jnp alone: grouped heads, rotary positions by halves, RMS norm, SwiGLU, layers under a scan.


def _norm(x: Array, gain: Array) -> Array:
    return x / jnp.sqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-5) * gain


def _rope(x: Array) -> Array:
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 10000.0 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate((a * cos - b * sin, b * cos + a * sin), -1)


def _layer(x: Array, w: dict[str, Array]) -> tuple[Array, None]:
    batch, length, groups, width = *x.shape[:2], HEADS // 2, WIDTH // HEADS
    y = _norm(x, w["before"])
    q, k, v = (jnp.einsum("bld,dhe->blhe", y, w[name]) for name in "qkv")
    q, k = _rope(q), _rope(k)
    q = q.reshape(batch, length, groups, 2, width)
    s = jnp.einsum("bqngd,bknd->bngqk", q, k) / jnp.sqrt(width)
    s = jnp.where(jnp.tril(jnp.ones((length, length), bool)), s, -jnp.inf)
    o = jnp.einsum("bngqk,bknd->bqngd", jax.nn.softmax(s, -1), v)
    x = x + o.reshape(batch, length, -1) @ w["o"]
    y = _norm(x, w["after"])
    return x + (jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"], None


def plain() -> Model:
    keys = iter(jax.random.split(jax.random.key(2), 16))

    def drawn(*shape: int) -> Array:
        return jax.random.normal(next(keys), shape) * shape[-2] ** -0.5

    head = WIDTH // HEADS
    layers = {
        "q": drawn(LAYERS, WIDTH, HEADS, head),
        "k": drawn(LAYERS, WIDTH, HEADS // 2, head),
        "v": drawn(LAYERS, WIDTH, HEADS // 2, head),
        "o": drawn(LAYERS, WIDTH, WIDTH),
        "gate": drawn(LAYERS, WIDTH, 3 * WIDTH),
        "up": drawn(LAYERS, WIDTH, 3 * WIDTH),
        "down": drawn(LAYERS, 3 * WIDTH, WIDTH),
        "before": jnp.ones((LAYERS, WIDTH)),
        "after": jnp.ones((LAYERS, WIDTH)),
    }
    weights = {"words": drawn(WORDS, WIDTH), "layers": layers}

    def run(w: Any, ids: Array) -> Array:
        x, _ = jax.lax.scan(_layer, w["words"][ids], w["layers"])
        return x @ w["words"].T

    return run, weights


def grouped() -> Model:
    """The plain model, its attention by jax.nn."""
    weights = plain()[1]

    def layer(x: Array, w: dict[str, Array]) -> Array:
        y = _norm(x, w["before"])
        q, k, v = (jnp.einsum("bld,dhe->blhe", y, w[name]) for name in "qkv")
        o = jax.nn.dot_product_attention(_rope(q), _rope(k), v, is_causal=True)
        return x + o.reshape(x.shape) @ w["o"]

    def own(w: Any, ids: Array) -> Array:
        x = w["words"][ids]
        for n in range(LAYERS):
            x = layer(x, jax.tree_util.tree_map(lambda leaf, n=n: leaf[n], w["layers"]))
        return x @ w["words"].T

    return own, weights


MODELS: dict[str, Callable[[], Model]] = {
    "linen": linen, "nnx": flax_nnx, "equinox": equinox, "plain": plain, "jax.nn": grouped,
}  # fmt: skip
