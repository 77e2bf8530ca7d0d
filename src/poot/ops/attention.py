"""Attention as about ten primitives: what the compiler recognises and fuses, and the oracle runs.

q is [B,Hq,Lq,Dk], k [B,Hkv,Lk,Dk], v [B,Hkv,Lk,Dv], all of one float dtype; Hq is a multiple of Hkv
and query head h reads key head h // (Hq / Hkv). The result is [B,Hq,Lq,Dv] in that dtype, and with
`return_lse` also the natural log of the sum of exp(score), f32 [B,Hq,Lq]. Scores are `softcap(q.k *
scale) + mask`; a score of -inf weighs exactly 0 and a row of nothing else is NaN, its log-sum-exp
-inf. `sink` [Hq] is one more logit a head, in the maximum and the denominator alone, not in the
log-sum-exp."""

from __future__ import annotations

import math
import operator
from functools import reduce as reduce_left

import numpy as np

from poot.ops.array import Array, Operand, as_array, emit, reduce, reshape
from poot.ops.elementwise import maximum, where
from poot.ops.guard import index_guard, validate
from poot.ops.nn import softcap as capped
from poot.ops.record import current, refuse
from poot.ops.shape import broadcast_to

Result = Array | tuple[Array, Array]


def repeat_kv(x: Array, n_rep: int) -> Array:
    """[B,H,L,D] -> [B,H*n_rep,L,D]: each head n_rep times in a row (reshape, broadcast,
    reshape)."""
    if x.ndim != 4 or n_rep < 1:
        refuse("repeat_kv", "x [B,H,L,D] and n_rep of 1 or more", x=x.type, n_rep=n_rep)
    if n_rep == 1:
        return x
    batch, heads, rows, width = x.shape
    apart = reshape(x, (batch, heads, 1, rows, width))
    wide = broadcast_to(apart, (batch, heads, n_rep, rows, width))
    return reshape(wide, (batch, heads * n_rep, rows, width))


def causal_mask(
    rows: int, keys: int, start: int | Array | None = None, window: int | None = None
) -> Array:
    """Bool, true where a query row may see a key. Row r stands at position start + r and sees keys
    t <= start + r, and of those, where window is given, t > start + r - window (itself included).
    start is an int or i32 [] (-> [rows, keys]), or i32 [B] (-> [B, 1, rows, keys]); without it the
    last row sees the last key: start = keys - rows."""
    position, t = _positions("causal_mask", rows, keys, start)
    return visible(position, t, True, window)


def _positions(op: str, rows: int, keys: int, start: int | Array | None) -> tuple[Array, Array]:
    """The rows' positions and the keys', i32, shaped so that they broadcast to what a mask is."""
    first = keys - rows if start is None else start
    recorder = first.recorder if isinstance(first, Array) else current(op)
    r = emit("iota", recorder=recorder, shape=(rows, 1), axis=0, dtype="i32")
    t = emit("iota", recorder=recorder, shape=(1, keys), axis=1, dtype="i32")
    if isinstance(first, Array):
        if first.dtype != "i32" or first.ndim > 1:
            refuse(op, "a start that is an int or i32 [] or [B]", start=first.type)
        first = reshape(first, (-1, 1, 1, 1)) if first.ndim else first
    elif first == 0:
        return r, t
    return r + first, t


def visible(position: Array, t: Array, causal: bool, window: int | None) -> Array:
    if window is not None and window < 1:
        refuse("attention", "a window of 1 or more", window=window)
    if window is None:
        return t <= position
    inside = t > position - window
    return (t <= position) & inside if causal else inside


def additive_mask(keep: Array, dtype: str = "f32", fill: float = -math.inf) -> Array:
    """0 where keep (bool) holds and `fill` elsewhere, as a mask to add to scores."""
    zero = as_array(0.0, keep.recorder, dtype, "additive_mask")
    return where(keep, zero, fill)


def alibi_slopes(heads: int) -> np.ndarray:
    """The slopes of ALiBi, f32 [heads]. For a power of two n: 2^(-8/n), its square, ...; for other
    counts the slopes of the largest power of two below, then every other slope of the next."""
    if heads < 1:
        refuse("alibi_slopes", "one head or more", heads=heads)
    below = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (i + 1) / below) for i in range(below)]
    slopes += [2.0 ** (-4.0 * (2 * i + 1) / below) for i in range(heads - below)]
    return np.asarray(slopes, np.float32)


def alibi_bias(
    slopes: Operand, rows: int, keys: int, start: int | Array | None = None, dtype: str = "f32"
) -> Array:
    """slope * (t - position of the row), [1|B, heads, rows, keys]: 0 at the row itself, falling
    into the past; computed in f32. `start` as in `causal_mask`."""
    position, t = _positions("alibi_bias", rows, keys, start)
    distance = (t - position).astype("f32")
    slope = as_array(slopes, distance.recorder, "f32", "alibi_bias")
    return (reshape(slope.astype("f32"), (1, -1, 1, 1)) * distance).astype(dtype)


def attention_masked(
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: Array | np.ndarray | None,
    scale: float | Array,
    softcap: float | None = None,
    sink: Array | np.ndarray | None = None,
    return_lse: bool = False,
) -> Result:
    """Attention under a mask [B|1, 1|Hq, Lq|1, Lk|1] (lower ranks padded on the left): of q's
    dtype, added to the scores; or bool, where false hides the key by -inf. Repeats K/V heads
    itself; writes no cache."""
    k, v = match_heads(q, k, v)
    scores = scaled_scores(q, k, scale, softcap)
    return weigh_values(masked(scores, mask), v, sink, return_lse)


def attention_prefill(
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float | Array,
    causal: bool = True,
    window: int | None = None,
    mask: Array | np.ndarray | None = None,
    softcap: float | None = None,
    sink: Array | np.ndarray | None = None,
    return_lse: bool = False,
) -> Result:
    """Attention of the last Lq rows of a sequence over its Lk keys. Where causal, row i sees keys j
    <= i + Lk - Lq; a window of W leaves of them j > i + Lk - Lq - W. Others are hidden by select to
    -inf, after the mask (as in `attention_masked`) is added."""
    k, v = match_heads(q, k, v)
    scores = masked(scaled_scores(q, k, scale, softcap), mask)
    if causal or window is not None:
        position, t = _positions("attention_prefill", q.shape[2], k.shape[2], None)
        scores = where(visible(position, t, causal, window), scores, -math.inf)
    return weigh_values(scores, v, sink, return_lse)


def attention_live(
    q: Array,
    k: Array,
    v: Array,
    length: Array,
    *,
    scale: float | Array,
    mask: Array | np.ndarray | None = None,
    softcap: float | None = None,
    sink: Array | np.ndarray | None = None,
    return_lse: bool = False,
) -> Result:
    """Attention over the first length[b] keys of each batch row; length i32 [B], 1 <= length <= Lk.

    The length is guarded: one outside is a ValidationError of the step. Key and value rows past it
    are selected to zero and their scores to -inf, so nothing there reaches the result, NaN or
    not."""
    if length.type.shape != q.shape[:1] or length.dtype != "i32":
        refuse("attention_live", "length i32 [B]", length=length.type, q=q.type)
    keys = k.shape[2]
    live, witness = index_guard(length, 1, keys + 1)
    validate(witness)
    t = emit("iota", recorder=q.recorder, shape=(1, 1, 1, keys), axis=3, dtype="i32")
    seen = t < reshape(live, (-1, 1, 1, 1))
    rows = reshape(seen, (q.shape[0], 1, keys, 1))
    k, v = match_heads(q, where(rows, k, 0.0), where(rows, v, 0.0))
    scores = masked(scaled_scores(q, k, scale, softcap), mask)
    return weigh_values(where(seen, scores, -math.inf), v, sink, return_lse)


def merge_attention(*parts: tuple[Array, Array]) -> tuple[Array, Array]:
    """(out, log-sum-exp) of attention over keys that were attended in parts, each (out [B,H,L,D],
    lse f32 [B,H,L]). A part that saw no key (lse -inf) adds nothing, whatever its out holds; where
    no part saw one, out is NaN and lse -inf."""
    if not parts:
        refuse("merge_attention", "at least one part")
    top = reduce_left(maximum, [lse for _, lse in parts])
    totals: list[Array] = []
    shares: list[Array] = []
    for out, lse in parts:
        empty = lse == -math.inf
        weight = where(empty, 0.0, emit("exp", lse - top))
        wide = where(reshape(empty, (*lse.shape, 1)), 0.0, out.astype("f32"))
        shares.append(wide * reshape(weight, (*lse.shape, 1)))
        totals.append(weight)
    total, mixed = reduce_left(operator.add, totals), reduce_left(operator.add, shares)
    merged = (mixed / reshape(total, (*total.shape, 1))).astype(parts[0][0].dtype)
    return merged, where(top == -math.inf, -math.inf, top + emit("log", total))


def match_heads(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """k and v with as many heads as q. Raises TypeRuleError where the shapes don't fit together."""
    if not q.ndim == k.ndim == v.ndim == 4 or k.shape[:3] != v.shape[:3]:
        refuse(
            "attention",
            "q [B,Hq,Lq,Dk], k [B,Hkv,Lk,Dk], v [B,Hkv,Lk,Dv]",
            q=q.type,
            k=k.type,
            v=v.type,
        )
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        refuse("attention", "one batch and one key width", q=q.type, k=k.type)
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        refuse("attention", "query heads that are a multiple of key heads", q=q.type, k=k.type)
    if k.shape[2] == 0:
        refuse("attention", "at least one key: a maximum over none has no value", k=k.type)
    n_rep = q.shape[1] // k.shape[1]
    return repeat_kv(k, n_rep), repeat_kv(v, n_rep)


def scaled_scores(q: Array, k: Array, scale: float | Array, softcap: float | None) -> Array:
    scores = (q @ k.swapaxes(2, 3)) * scale
    return scores if softcap is None else capped(scores, softcap)


def masked(scores: Array, mask: Array | np.ndarray | None) -> Array:
    if mask is None:
        return scores
    mask = as_array(mask, scores.recorder, scores.dtype, "attention")
    lead = (1,) * (4 - mask.ndim)
    fits = mask.ndim <= 4 and all(
        m in (1, n) for m, n in zip((*lead, *mask.shape), scores.shape, strict=True)
    )
    if not fits:
        refuse("attention", "a mask of [B|1, 1|Hq, Lq|1, Lk|1]", mask=mask.type, scores=scores.type)
    if mask.dtype == "bool":
        return where(reshape(mask, (*lead, *mask.shape)), scores, -math.inf)
    if mask.dtype != scores.dtype:
        remedy = "Write mask.astype(...): a finite mask may round to -inf in 16 bits"
        refuse(
            "attention",
            "a bool mask, or one of q's dtype",
            remedy,
            mask=mask.type,
            scores=scores.type,
        )
    return scores + reshape(mask, (*lead, *mask.shape))


def weigh_values(
    scores: Array, v: Array, sink: Array | np.ndarray | None, return_lse: bool
) -> Result:
    """softmax(scores) @ v, the sink in maximum and denominator."""
    top = reduce("max", scores, 3, True)
    logit: Array | None = None
    if sink is not None:
        sink = as_array(sink, scores.recorder, scores.dtype, "attention")
        if sink.shape != scores.shape[1:2]:
            refuse("attention", "a sink [Hq]", sink=sink.type, scores=scores.type)
        logit = reshape(sink.astype(scores.dtype), (1, -1, 1, 1))
        top = maximum(top, logit)
    ex = emit("exp", scores - top)
    total = reduce("sum", ex, 3, True)
    if logit is not None:
        total = total + emit("exp", logit - top)
    out = (ex / total) @ v
    if not return_lse:
        return out
    if logit is not None:
        top = reduce("max", scores, 3, True)
        total = reduce("sum", emit("exp", scores - top), 3, True)
    top, total = (reshape(x, x.shape[:3]).astype("f32") for x in (top, total))
    return out, where(top == -math.inf, -math.inf, top + emit("log", total))
