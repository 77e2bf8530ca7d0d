"""Block-selected attention as primitives: each row attends a few blocks of the past, and its own.

A row at position p of its request sees n = p + 1 tokens. Block b is positions b * ratio up to
(b + 1) * ratio. `always` is what a row visits besides its list: "tail", the unfinished block
[C * ratio, p] with C = n // ratio, "own", the row's own block [C * ratio, p] with C = p // ratio,
"window(w)", the last w keys and what of their first block stands before them [C * ratio, p] with
C = (n - w) // ratio, or "none", C = n // ratio; candidates for the list are the blocks below C.
Positions are i32 [B, Lq], one a query row.
"""

from __future__ import annotations

import math

from poot.ir.rules.selected import KINDS, Always, always_of
from poot.ops.array import Array, emit, emit_many, reduce, reshape
from poot.ops.attention import Result, masked, match_heads, scaled_scores, weigh_values
from poot.ops.elementwise import where
from poot.ops.guard import checked, index_guard, validate
from poot.ops.nn import relu
from poot.ops.record import refuse
from poot.ops.shape import broadcast_to, repeat

_MOST = (1 << 31) - 1
IDS = "unique ids of blocks that are complete before their row"


def block_scores(q: Array, keys: Array, weights: Array | None = None) -> Array:
    """f32 [B,1,Lq,N]: how well each block key fits each row, (1/sqrt(d)) * sum over heads of
    relu(q . k), in f32. q [B,H,Lq,d], keys [B,N,d] of one float dtype; weights [B,H,Lq] multiply
    each head's share."""
    fits = q.ndim == 4 and keys.ndim == 3 and q.dtype == keys.dtype
    if not fits or (q.shape[0], q.shape[3]) != (keys.shape[0], keys.shape[2]):
        refuse("block_scores", "q [B,H,Lq,d] and keys [B,N,d]", q=q.type, keys=keys.type)
    if weights is not None and weights.shape != q.shape[:3]:
        refuse("block_scores", "weights [B,H,Lq]", weights=weights.type, q=q.type)
    return weighed_shares(q, keys, weights) * (1.0 / math.sqrt(q.shape[3]))


def weighed_shares(q: Array, keys: Array, weights: Array | None = None) -> Array:
    """`block_scores` before it is scaled."""
    batch, heads, rows, width = q.shape
    flat = reshape(q.astype("f32"), (batch, heads * rows, width))
    products = flat @ keys.astype("f32").swapaxes(1, 2)
    share = relu(reshape(products, (batch, heads, rows, keys.shape[1])))
    if weights is not None:
        share = share * reshape(weights.astype("f32"), (*weights.shape, 1))
    return reduce("sum", share, 1, True)


def _need_kind(op: str, ratio: int, always: str) -> None:
    if ratio < 1 or Always.of(always) is None:
        refuse(op, f"a ratio of 1 or more, always {KINDS}", ratio=ratio, always=always)


def _need_positions(op: str, positions: Array, batch: int, rows: int) -> None:
    if positions.dtype != "i32" or positions.shape != (batch, rows):
        refuse(op, "positions i32 [B,Lq]", positions=positions.type, batch=batch, rows=rows)


def _proved(positions: Array, most: int) -> Array:
    """The positions where they are proved in 0 .. most; else guarded so."""
    held = positions.interval
    return positions if held and held.within(0, most) else checked(positions, 0, most + 1)


def candidate_blocks(positions: Array, ratio: int, always: str = "tail") -> Array:
    """C of each row, i32 [B,1,Lq,1], for positions that are not negative; where no key stands
    before a window it may be less than 0."""
    _need_kind("candidate_blocks", ratio, always)
    if positions.ndim != 2 or positions.dtype != "i32":
        refuse("candidate_blocks", "positions i32 [B,Lq]", positions=positions.type)
    batch, rows = positions.shape
    before = 1 - always_of(always).last
    seen = positions + before if before else positions
    return emit("div", reshape(seen, (batch, 1, rows, 1)), _number(positions, ratio))


def _number(like: Array, value: int) -> Array:
    return emit("const", recorder=like.recorder, shape=(), dtype="i32", value=value)


def _indices(like: Array, shape: tuple[int, ...]) -> Array:
    """Each element's index along the last axis, i32."""
    return emit("iota", recorder=like.recorder, shape=shape, axis=len(shape) - 1, dtype="i32")


def block_topk(scores: Array, positions: Array, k: int, ratio: int, always: str = "tail") -> Array:
    """The best candidate blocks of each row, i32 [B,Hs,Lq,min(k,N)], from scores [B,Hs,Lq,N]: those
    of the highest score, the lower block first on ties, NaN last; ascending, -1 at the end.

    Positions that are not proved to be at least 0 are guarded."""
    _need_kind("block_topk", ratio, always)
    if scores.ndim != 4 or k < 1 or scores.shape[3] < 1:
        refuse("block_topk", "scores [B,Hs,Lq,N] and k of 1 or more", scores=scores.type, k=k)
    batch, _, rows, blocks = scores.shape
    _need_positions("block_topk", positions, batch, rows)
    ids = best_blocks(scores, _proved(positions, _MOST - 1), min(k, blocks), ratio, always)
    ids.recorder.block_lists[ids.var.id] = (positions.var.id, ratio, always)
    return ids


def best_blocks(scores: Array, positions: Array, k: int, ratio: int, always: str) -> Array:
    """`block_topk` of k of the blocks, for positions that are taken as they are."""
    blocks = scores.shape[3]
    count = candidate_blocks(positions, ratio, always)
    # What is no candidate is NaN, and stands after the candidates: of NaN the lower block is first.
    ranked = where(_indices(scores, (1, 1, 1, blocks)) < count, scores, math.nan)
    _, found = emit_many("topk", ranked, k=k)
    turned = where(found < count, -found, -blocks)
    ascending, _ = emit_many("topk", turned, k=k)
    return where(ascending > -blocks, -ascending, -1)


def selected_attention_mask(
    ids: Array, positions: Array, ratio: int, keys: int, always: str = "tail"
) -> Array:
    """bool [B,Hs,Lq,keys]: which keys each row visits, for ids [B,Hs,Lq,K] as `block_topk` gives
    them. A list ends at its first negative id."""
    _need_kind("selected_attention_mask", ratio, always)
    if ids.ndim != 4 or ids.dtype != "i32" or ids.shape[3] < 1 or keys < 1:
        refuse("selected_attention_mask", "ids i32 [B,Hs,Lq,K] and keys", ids=ids.type, keys=keys)
    _need_positions("selected_attention_mask", positions, ids.shape[0], ids.shape[2])
    return visited_keys(ids, _proved(positions, keys - 1), ratio, keys, always)


def visited_keys(ids: Array, positions: Array, ratio: int, keys: int, always: str) -> Array:
    """`selected_attention_mask` for any ids, and positions that are taken as they are: no key past
    the position is visited, whatever names it."""
    batch, _, rows, _ = ids.shape
    blocks = -(-keys // ratio)
    listed = where(_listed(ids), ids, -1)
    one = reshape(listed, (*ids.shape, 1))
    hits = where(one == _indices(ids, (1, 1, 1, 1, blocks)), _number(ids, 1), 0)
    chosen = reduce("max", hits, 3, False) > 0
    wide = repeat(chosen, ratio, 3)
    if blocks * ratio != keys:
        wide = wide[..., :keys]
    t = _indices(ids, (1, 1, 1, keys))
    place = reshape(positions, (batch, 1, rows, 1))
    seen = t <= place
    if not always_of(always).is_any:
        return wide & seen
    start = candidate_blocks(positions, ratio, always) * ratio
    return (wide & seen) | ((t >= start) & seen)


def _listed(ids: Array) -> Array:
    """bool, of ids' shape: whether an id stands before the first negative one of its list."""
    k = ids.shape[3]
    slot = _indices(ids, (1, 1, 1, k))
    end = reduce("min", where(ids < 0, slot, k), 3, True)
    return slot < end


def checked_blocks(
    ids: Array, positions: Array, ratio: int, blocks: int, always: str = "tail"
) -> Array:
    """ids [B,Hs,Lq,K] with a guard on each: up to its first -1 a list holds each block once, and
    only blocks below C. A step that breaks this is a ValidationError that names the row and the id.
    """
    _need_kind("checked_blocks", ratio, always)
    ids, witness = index_guard(ids, -1, blocks)
    validate(witness)
    listed = _listed(ids)
    early = ids < candidate_blocks(positions, ratio, always)
    k = ids.shape[3]
    first, second = reshape(ids, (*ids.shape[:3], 1, k)), reshape(ids, (*ids.shape, 1))
    before = _indices(ids, (1, 1, 1, 1, k)) < emit(
        "iota", recorder=ids.recorder, shape=(1, 1, 1, k, 1), axis=3, dtype="i32"
    )
    same = where((first == second) & before, _number(ids, 1), 0)
    fresh = reduce("max", same, 4, False) < 1
    wrong = where(listed & ~(early & fresh), ids, -1)
    _, held = index_guard(wrong, -1, 0, IDS)
    validate(held)
    return where(held, ids, -1)


def attention_selected(
    q: Array,
    k: Array,
    v: Array,
    ids: Array,
    positions: Array,
    *,
    ratio: int,
    scale: float | Array,
    always: str = "tail",
    length: Array | None = None,
    softcap: float | None = None,
    sink: Array | None = None,
    return_lse: bool = False,
) -> Result:
    """Attention of each row over the blocks of its list and what it always visits: ids i32
    [B,Hs,Lq,K], one list for all heads (Hs 1), for each key head or for each query head.

    Ids that `block_topk` made for the same positions are taken as they are, others are guarded as
    `checked_blocks` says; positions are proved in 0 .. Lk-1, or guarded. `length` i32 [B] is
    guarded in 1 .. Lk: rows of K and V past it are selected to zero before either product, and not
    visited."""
    _need_kind("attention_selected", ratio, always)
    if q.ndim != 4 or ids.ndim != 4 or k.ndim != 4:
        refuse(
            "attention_selected",
            "q, k [B,H,L,D], ids [B,Hs,Lq,K]",
            q=q.type,
            k=k.type,
            ids=ids.type,
        )
    heads, kv_heads, keys = q.shape[1], k.shape[1], k.shape[2]
    _need_positions("attention_selected", positions, q.shape[0], q.shape[2])
    if ids.shape[1] not in (1, kv_heads, heads):
        refuse(
            "attention_selected", "lists for 1, Hkv or Hq heads", ids=ids.type, q=q.type, k=k.type
        )
    known = ids.recorder.block_lists.get(ids.var.id) == (positions.var.id, ratio, always)
    placed = _proved(positions, keys - 1)
    if not known:
        ids = checked_blocks(ids, placed, ratio, -(-keys // ratio), always)
    mask = per_head(visited_keys(ids, placed, ratio, keys, always), heads)
    if length is None:
        k, v = match_heads(q, k, v)
        scores = masked(scaled_scores(q, k, scale, softcap), mask)
        return weigh_values(scores, v, sink, return_lse)
    live = _proved_length(length, q.shape[0], keys)
    seen = _indices(q, (1, 1, 1, keys)) < reshape(live, (-1, 1, 1, 1))
    rows = reshape(seen, (q.shape[0], 1, keys, 1))
    k, v = match_heads(q, where(rows, k, 0.0), where(rows, v, 0.0))
    scores = masked(scaled_scores(q, k, scale, softcap), mask)
    return weigh_values(where(seen, scores, -math.inf), v, sink, return_lse)


def per_head(mask: Array, heads: int) -> Array:
    """A mask [B,Hs,Lq,Lk] with an axis of 1 or of all query heads: each of the Hs stands for the
    heads that share it."""
    batch, lists, rows, keys = mask.shape
    if lists in (1, heads):
        return mask
    apart = reshape(mask, (batch, lists, 1, rows, keys))
    wide = broadcast_to(apart, (batch, lists, heads // lists, rows, keys))
    return reshape(wide, (batch, heads, rows, keys))


def _proved_length(length: Array, batch: int, keys: int) -> Array:
    if length.dtype != "i32" or length.shape != (batch,):
        refuse("attention_selected", "length i32 [B]", length=length.type)
    held = length.interval
    return length if held and held.within(1, keys) else checked(length, 1, keys + 1)
