"""Multi-head latent attention over a cache of latent rows.

A chunk makes the keys and values of all cached rows (the key in two parts, the rotary one shared by
all heads); a single token multiplies its query by the matrix that makes keys, attends to the
latent rows as one key head, and makes the value from what comes out.
"""

from __future__ import annotations

from poot import ops
from poot.llm.models.parts.kinds import Latent
from poot.llm.models.parts.step import Cache, FixedStep
from poot.llm.models.parts.values import Weights, normed, project, wide
from poot.ops.array import Array

Shape = tuple[int, ...]


def latent_shapes(kind: Latent, width: int) -> dict[str, Shape]:
    """The weights of `mix_latent`: name -> shape."""
    q = kind.heads * (kind.nope + kind.rope)
    made: dict[str, Shape] = {}
    if kind.q_rank is None:
        made["q"] = (q, width)
    else:
        made |= {"q_a": (kind.q_rank, width), "q_a_norm": (kind.q_rank,), "q_b": (q, kind.q_rank)}
    made["kv_a"] = (kind.kv_rank + kind.rope, width)
    made["kv_a_norm"] = (kind.kv_rank,)
    made["kv_b"] = (kind.heads * (kind.nope + kind.value), kind.kv_rank)
    made["out"] = (width, kind.heads * kind.value)
    if kind.is_biased:
        biased = [n for n in ("q_a", "kv_a", "out") if n in made]
        made |= {f"{name}_bias": made[name][:1] for name in biased}
    return made


def mix_latent(
    kind: Latent,
    w: Weights,
    h: Array,
    cache: Cache[Array],
    step: FixedStep,
    turn: tuple[Array, Array],
) -> tuple[Array, Cache[Array]]:
    """h [tokens, width] mixed with the cache's rows: ([tokens, width], the cache)."""
    tokens = step.tokens
    q, q_turned = _queries(kind, w, h, turn)
    made = project(w, "kv_a", h)
    row = normed(w, "kv_a_norm", made[:, : kind.kv_rank], kind.norm)
    shared = ops.rotate(
        made[:, kind.kv_rank :].reshape(1, 1, tokens, kind.rope), *turn, kind.is_interleaved
    )
    held = step.append(cache.k, ops.concat([row.reshape(1, 1, tokens, -1), shared], -1))
    kv_b = wide(w, "kv_b").reshape(1, kind.heads, kind.nope + kind.value, kind.kv_rank)
    if tokens == 1:
        mixed = _absorbed(kind, step, q, q_turned, held, kv_b)
    else:
        mixed = _expanded(kind, step, q, q_turned, held, wide(w, "kv_b"))
    flat = mixed.transpose(0, 2, 1, 3).reshape(tokens, kind.heads * kind.value)
    return project(w, "out", flat), Cache(held, None)


def _queries(kind: Latent, w: Weights, h: Array, turn: tuple[Array, Array]) -> tuple[Array, Array]:
    """(the part that meets each head's key, the part that is turned), [1, heads, tokens, ...]."""
    if kind.q_rank is None:
        q = project(w, "q", h)
    else:
        q = project(w, "q_b", normed(w, "q_a_norm", project(w, "q_a", h), kind.norm))
    q = q.reshape(1, h.shape[0], kind.heads, kind.nope + kind.rope).transpose(0, 2, 1, 3)
    return q[..., : kind.nope], ops.rotate(q[..., kind.nope :], *turn, kind.is_interleaved)


def _expanded(
    kind: Latent, step: FixedStep, q: Array, q_turned: Array, held: Array, kv_b: Array
) -> Array:
    """[1, heads, tokens, value], over keys and values made of all rows."""
    capacity, heads = step.capacity, kind.heads
    rows = held.reshape(capacity, kind.kv_rank + kind.rope)
    both = ops.linear(rows[:, : kind.kv_rank], kv_b)
    both = both.reshape(1, capacity, heads, kind.nope + kind.value).transpose(0, 2, 1, 3)
    shared = ops.broadcast_to(held[..., kind.kv_rank :], (1, heads, capacity, kind.rope))
    k = ops.concat([both[..., : kind.nope], shared], -1)
    mixed = ops.attention_masked(
        ops.concat([q, q_turned], -1),
        k,
        both[..., kind.nope :],
        mask=step.keep(),
        scale=kind.scale,
    )
    assert isinstance(mixed, Array)
    return mixed


def _absorbed(
    kind: Latent, step: FixedStep, q: Array, q_turned: Array, held: Array, kv_b: Array
) -> Array:
    """The same, over the latent rows themselves. kv_b [1, heads, nope + value, kv_rank]."""
    query = ops.concat([q @ kv_b[:, :, : kind.nope], q_turned], -1)
    values = held[..., : kind.kv_rank]
    mixed = ops.attention_masked(query, held, values, mask=step.keep(), scale=kind.scale)
    assert isinstance(mixed, Array)
    return mixed @ kv_b[:, :, kind.nope :].swapaxes(2, 3)
