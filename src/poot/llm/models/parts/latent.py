"""Multi-head latent attention over a cache of latent rows.

A chunk makes the keys and values of all cached rows (the key in two parts, the rotary one shared by
all heads); a single token multiplies its query by the matrix that makes keys, attends to the
latent rows as one key head, and makes the value from what comes out.
"""

from __future__ import annotations

from poot import ops
from poot.llm.models.parts.coded import decoded, mapped
from poot.llm.models.parts.kinds import Latent
from poot.llm.models.parts.step import Cache, FixedStep
from poot.llm.models.parts.values import Weights, normed, project, wide
from poot.llm.paged import PagedStep, Pools
from poot.ops.array import Array

Shape = tuple[int, ...]
Turn = tuple[Array, Array]


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
    kind: Latent, w: Weights, h: Array, cache: Cache[Array], step: FixedStep, turn: Turn
) -> tuple[Array, Cache[Array]]:
    """h [tokens, width] mixed with the cache's rows: ([tokens, width], the cache)."""
    q, q_turned = _queries(kind, w, h, 1, turn)
    held = step.append(cache.k, _rows(kind, w, h, 1, turn))
    if step.tokens == 1:
        mixed = ops.attention_masked(
            _absorbed(kind, w, q, q_turned),
            held,
            held[..., : kind.kv_rank],
            mask=step.keep(),
            scale=kind.scale,
        )
        assert isinstance(mixed, Array)
        mixed = _values(kind, w, mixed)
    else:
        mixed = _expanded(kind, step, q, q_turned, held, wide(w, "kv_b"))
    return _out(kind, w, mixed), Cache(held, None)


def mix_latent_paged(
    kind: Latent, w: Weights, h: Array, pools: Pools[Array], step: PagedStep, turn: Turn
) -> tuple[Array, Pools[Array]]:
    """h [rows * tokens, width] mixed with the latent rows that a step's pool holds, for chunks too:
    (the same shape, the pool)."""
    rows = step.shape[0]
    q, q_turned = _queries(kind, w, h, rows, turn)
    made = _rows(kind, w, h, rows, turn)
    query = _absorbed(kind, w, q, q_turned)
    mixed, new = step.attend_rows(pools, query, made, kind.kv_rank, scale=kind.scale)
    return _out(kind, w, _values(kind, w, mixed)), new


def _rows(kind: Latent, w: Weights, h: Array, rows: int, turn: Turn) -> Array:
    """The latent rows of h, [rows, 1, tokens, kv_rank + rope]."""
    made = project(w, "kv_a", h).reshape(rows, 1, h.shape[0] // rows, kind.kv_rank + kind.rope)
    latent = normed(w, "kv_a_norm", made[..., : kind.kv_rank], kind.norm)
    return ops.concat(
        [latent, ops.rotate(made[..., kind.kv_rank :], *turn, kind.is_interleaved)], -1
    )


def _queries(kind: Latent, w: Weights, h: Array, rows: int, turn: Turn) -> Turn:
    """(what meets each head's key, what is turned), each [rows, heads, tokens, ...]."""
    if kind.q_rank is None:
        q = project(w, "q", h)
    else:
        q = project(w, "q_b", normed(w, "q_a_norm", project(w, "q_a", h), kind.norm))
    q = q.reshape(rows, h.shape[0] // rows, kind.heads, kind.nope + kind.rope)
    q = q.transpose(0, 2, 1, 3)
    return q[..., : kind.nope], ops.rotate(q[..., kind.nope :], *turn, kind.is_interleaved)


def _kv_b(kind: Latent, w: Weights) -> tuple[Array, Array]:
    """What makes keys [1, heads, nope, kv_rank] and values [1, heads, value, kv_rank], each cut out
    before it is widened, so that it is widened where it is used."""

    def cut(rows: slice) -> Array:
        def of(part: Array) -> Array:
            apart = part.reshape(1, kind.heads, kind.nope + kind.value, part.shape[-1])
            return apart[:, :, rows]

        return decoded(mapped(w["kv_b"], of))

    return cut(slice(0, kind.nope)), cut(slice(kind.nope, None))


def _absorbed(kind: Latent, w: Weights, q: Array, q_turned: Array) -> Array:
    """Queries that meet latent rows, [rows, heads, tokens, kv_rank + rope]."""
    return ops.concat([q @ _kv_b(kind, w)[0], q_turned], -1)


def _values(kind: Latent, w: Weights, mixed: Array) -> Array:
    """Values of mixed latent rows [rows, heads, tokens, kv_rank]: [rows, heads, tokens, value]."""
    return mixed @ _kv_b(kind, w)[1].swapaxes(2, 3)


def _out(kind: Latent, w: Weights, mixed: Array) -> Array:
    rows, heads, tokens, value = mixed.shape
    return project(w, "out", mixed.transpose(0, 2, 1, 3).reshape(rows * tokens, heads * value))


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
