"""The next token of each row, chosen on the device. `poot.llm.sampling` is the reference.

The noise is the host's, by the same integers. Where `top_k` or `top_p` leave some tokens out, the
choice is among the CANDIDATES largest; a row for which these may not be enough says so by -1, and
the host draws from its logits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, TypeVar

from poot import ops
from poot.ops.array import Array
from poot.trace import Spec, slot

T = TypeVar("T")
CANDIDATES = 64


@dataclass(frozen=True, slots=True)
class Choice(Generic[T]):
    """How each row chooses. f32 [R]: `temperature` (0: the largest), `top_p` (1: all), `min_p`
    (0: all), `penalty` (1: none). i32 [R]: `top_k` (0: all), `step`. u32 [R]: `seed`. `seen` u32
    [R, ceil(vocab / 32)]: bit t % 32 of word t / 32 is set where the row's text holds token t."""

    temperature: T
    top_k: T
    top_p: T
    min_p: T
    penalty: T
    seed: T
    step: T
    seen: T


def choice_slots(rows: int, vocab: int) -> Choice[Spec]:
    """The slots of `rows` choices."""
    real = slot((rows,), "f32")
    return Choice(
        temperature=real,
        top_k=slot((rows,), range=(0, 1 << 30)),
        top_p=real,
        min_p=real,
        penalty=real,
        seed=slot((rows,), "u32"),
        step=slot((rows,)),
        seen=slot((rows, -(-vocab // 32)), "u32"),
    )


def pick(logits: Array, how: Choice[Array]) -> Array:
    """Token ids i32 [R] from logits f32 [R, vocab]; -1 where the host has to choose."""
    rows, vocab = logits.shape
    logits = _penalised(logits, how)
    top = ops.max(logits, axis=1, keepdims=True)
    is_greedy = how.temperature == 0.0
    warm = ops.reshape(ops.where(is_greedy, 1.0, how.temperature), (rows, 1))
    scores = (logits - top) / warm
    least = ops.reshape(ops.where(how.min_p > 0.0, ops.log(how.min_p), -math.inf), (rows, 1))
    scores = ops.where(scores >= least, scores, -math.inf)
    noise = gumbel(how.seed, how.step, vocab)
    free = ops.argmax(scores + noise, axis=1)
    count = min(CANDIDATES, vocab)
    best, ids = ops.topk(scores, count)
    kept, is_sure = _kept(scores, best, how)
    held = ops.gather(ops.reshape(noise, (rows * vocab,)), ids + ops.iota((rows, 1), 0) * vocab,
                      mode="clamp")  # fmt: skip
    drawn = ops.argmax(ops.where(kept, best + held, -math.inf), axis=1)
    at = ops.iota((rows,), 0) * count + drawn
    bounded = ops.gather(ops.reshape(ids, (rows * count,)), at, mode="clamp")
    is_free = (how.top_k == 0) & (how.top_p >= 1.0)
    chosen = ops.where(is_free, free, ops.where(is_sure, bounded, -1))
    return ops.where(is_greedy, ops.argmax(logits, axis=1), chosen)


def _penalised(logits: Array, how: Choice[Array]) -> Array:
    """Logits with those of tokens seen divided by the penalty where positive, else multiplied."""
    rows, vocab = logits.shape
    words = how.seen.shape[1]
    bits = ops.reshape(how.seen, (rows, words, 1)) >> ops.iota((1, 1, 32), 2, "u32")
    seen = (ops.reshape(bits, (rows, words * 32))[:, :vocab] & 1) == 1
    penalty = ops.reshape(how.penalty, (rows, 1))
    changed = ops.where(logits > 0.0, logits / penalty, logits * penalty)
    return ops.where(seen, changed, logits)


def _kept(scores: Array, best: Array, how: Choice[Array]) -> tuple[Array, Array]:
    """(which of the candidates [R, K] may be chosen, whether no other may [R])."""
    rows, count = best.shape
    place = ops.iota((1, count), 1)
    most = ops.reshape(ops.where(how.top_k == 0, count + 1, how.top_k), (rows, 1))
    inside = (place < most) & (best > -math.inf)
    weights = ops.where(inside, ops.exp(best), 0.0)
    whole = ops.sum(ops.exp(scores), axis=1)
    total = ops.where((how.top_k == 0) | (how.top_k > count), whole, ops.sum(weights, axis=1))
    earlier = ops.iota((count, count), 0) < ops.iota((count, count), 1)
    before = weights @ earlier.astype("f32")
    wanted = how.top_p * total
    kept = inside & (before < ops.reshape(wanted, (rows, 1)))
    has_mass = (how.top_p < 1.0) & (ops.sum(weights, axis=1) >= wanted)
    is_few = (how.top_k > 0) & (how.top_k <= count)
    ends = ops.min(best, axis=1) == -math.inf
    return kept, is_few | ends | (has_mass & (how.top_k == 0))


def gumbel(seed: Array, step: Array, count: int) -> Array:
    """Noise f32 [R, count]: -log(-log(u)) of the host's `uniform(seed, step, count)`. Near u = 1,
    where a device's log may be off, -log(u) is a series in 1 - u, which is exact there."""
    rows = seed.shape[0]
    a = _mix(_mix(seed) + ops.bitcast(step, "u32"))
    b = _mix(a + 0x9E3779B9)
    tokens = ops.iota((1, count), 1, "u32")
    words = _mix(_mix(tokens ^ ops.reshape(a, (rows, 1))) + ops.reshape(b, (rows, 1))) >> 8
    up = (words.astype("f32") + 0.5) * 2.0**-24
    short = ((0xFFFFFF - words).astype("f32") + 0.5) * 2.0**-24
    series = short * (1.0 + short * (0.5 + short * (1 / 3 + short * 0.25)))
    return -ops.log(ops.where(short < 0.015625, series, -ops.log(up)))


def _mix(x: Array) -> Array:
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)
