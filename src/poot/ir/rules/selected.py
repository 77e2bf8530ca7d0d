"""Block-selected attention: the ops that the selection pass forms.

A row at position p of its request sees n = p + 1 tokens. Block b is positions b * ratio up to
(b + 1) * ratio. `always` says what a row visits besides its list, and so which blocks may be in it:
"tail" is the unfinished block, [C * ratio, p] with C = n // ratio, and blocks below C are
candidates; "own" is the row's own block, [C * ratio, p] with C = p // ratio, and the blocks before
it are candidates; "window(w)" is the last w keys and what of their first block stands before them,
[C * ratio, p] with C = (n - w) // ratio, and the blocks before it are candidates; "none" is
nothing, and blocks below n // ratio are candidates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from poot.errors import need
from poot.ir.graph import TensorType
from poot.ir.ops import op
from poot.ir.rules.fused import key_heads_and_keys

SELECTED_OPERANDS = ("q", "k", "v", "ids", "positions", "k_shared", "read", "len", "sink")
ALWAYS = ("tail", "own")
KINDS = "tail, own, none or window(w), w of 1 or more"
_WINDOW = re.compile(r"window\(([1-9]\d{0,8})\)")


@dataclass(frozen=True, slots=True)
class Always:
    """What a row visits besides its list: keys from C * ratio on, C = (n - `last`) // ratio blocks
    being complete before the `last` keys; or nothing (`is_any` false)."""

    last: int
    is_any: bool = True

    @staticmethod
    def of(always: str) -> Always | None:
        """The kind by its name, or None."""
        found = _WINDOW.fullmatch(always)
        if found:
            return Always(int(found[1]))
        return {"tail": Always(0), "own": Always(1), "none": Always(0, False)}.get(always)

    @staticmethod
    def named(last: int) -> str:
        """The name of a kind that visits something."""
        return {0: "tail", 1: "own"}.get(last, f"window({last})")

    def reach(self, ratio: int) -> int:
        """Keys that are visited besides the list, at the most."""
        return max(self.last, 1) + ratio - 1 if self.is_any else 0

    def blocks(self, ratio: int) -> int:
        """The blocks that those keys are of, at the most."""
        return -(-self.reach(ratio) // ratio)


def always_of(always: object) -> Always:
    """The kind of an eqn that its typing rule has passed: its attribute, left out for "tail"."""
    found = Always.of(str(always or "tail"))
    assert found is not None, always
    return found


def _need_kind(ratio: int, always: str) -> None:
    need(ratio >= 1, "a ratio of 1 or more", ratio=ratio)
    need(always in ALWAYS, f"always {' or '.join(ALWAYS)}", always=always)


@op("block_scores", ins=None, attrs=("scale",), fused=True)
def block_scores(
    q: TensorType, keys: TensorType, weights: TensorType | None = None, *, scale: float
) -> TensorType:
    """scale * the sum over heads of relu(q . k), each head's share times its weight if there are
    weights: q [B,H,Lq,d], keys [B,N,d] of the same float dtype, weights [B,H,Lq] -> f32 [B,1,Lq,N].
    All of it is held in f32, NaN stays NaN."""
    floats = q.dtype in ("f32", "f16", "bf16") and keys.dtype == q.dtype
    need(floats and len(q.shape) == 4, "float q [B,H,Lq,d]", q=q, keys=keys)
    batch, heads, rows, width = q.shape
    fits = len(keys.shape) == 3 and (keys.shape[0], keys.shape[2]) == (batch, width)
    need(fits and heads > 0, "keys [B,N,d] in q's dtype, and heads", q=q, keys=keys)
    if weights is not None:
        known = weights.dtype in ("f32", "f16", "bf16") and weights.shape == (batch, heads, rows)
        need(known, "float weights [B,H,Lq]", weights=weights, q=q)
    return TensorType("f32", (batch, 1, rows, keys.shape[1]))


@op("block_topk", ins=2, attrs=("k", "ratio", "always"), fused=True)
def block_topk(
    scores: TensorType, positions: TensorType, *, k: int, ratio: int, always: str = "tail"
) -> TensorType:
    """The k best candidate blocks of each row: scores [B,Hs,Lq,N] of blocks, positions i32 [B,Lq]
    -> ids i32 [B,Hs,Lq,k].

    Candidates are the blocks below C = (p + 1) // ratio ("tail") or p // ratio ("own"), at most N;
    a negative C is 0. The min(k, C) of the highest score are taken, the lower block first on ties,
    a NaN score last among the candidates. The ids are ascending and unique, -1 at the end."""
    _need_kind(ratio, always)
    floats = scores.dtype in ("f32", "f16", "bf16")
    need(floats and len(scores.shape) == 4, "float scores [B,Hs,Lq,N]", scores=scores)
    batch, heads, rows, blocks = scores.shape
    placed = positions == TensorType("i32", (batch, rows))
    need(placed, "positions i32 [B,Lq]", positions=positions, scores=scores)
    need(0 < k <= blocks, "0 < k <= N", k=k, blocks=blocks)
    return TensorType("i32", (batch, heads, rows, k))


def _need_names(operands: tuple[str, ...], ins: tuple[TensorType, ...]) -> None:
    named = len(operands) == len(ins) and operands[:5] == SELECTED_OPERANDS[:5]
    need(named, "q, k, v, ids, positions and a name for each", operands=operands)
    ordered = list(operands) == [n for n in SELECTED_OPERANDS if n in operands]
    need(ordered, "operands in order", operands=operands)


def _need_lists(at: dict[str, TensorType], kv_heads: int) -> None:
    q, ids, positions = at["q"], at["ids"], at["positions"]
    batch, heads, rows, _ = q.shape
    per_row = ids.dtype == "i32" and len(ids.shape) == 4 and ids.shape[3] > 0
    fits = per_row and (ids.shape[0], ids.shape[2]) == (batch, rows)
    need(
        fits and ids.shape[1] in (1, kv_heads, heads),
        "ids i32 [B,Hs,Lq,K], Hs 1, Hkv or Hq",
        ids=ids,
        q=q,
        kv_heads=kv_heads,
    )
    placed = positions == TensorType("i32", (batch, rows))
    need(placed, "positions i32 [B,Lq]", positions=positions, q=q)


_ATTRS = ("operands", "ratio", "always", "scale", "softcap", "lse")


@op("selected_attention", ins=None, fused=True, attrs=_ATTRS)
def selected_attention(
    *ins: TensorType,
    operands: tuple[str, ...],
    ratio: int,
    scale: float,
    always: str = "tail",
    softcap: float | None = None,
    lse: bool = False,
) -> TensorType | tuple[TensorType, TensorType]:
    """softmax(score(q, k)) v for each row over the keys that it visits alone: those of its listed
    blocks, and its unfinished ("tail") or own ("own") block, its last w keys and what of their
    first block stands before them ("window(w)"), or nothing more ("none").

    `operands` names each of `ins`, in the order of SELECTED_OPERANDS. q [B,Hq,Lq,Dk],
    k [B,Hkv,Lk,Dk], v [B,Hkv,Lk,Dv] -> [B,Hq,Lq,Dv] in q's dtype, heads, k_shared, read, len and
    sink as in `attention`. ids i32 [B,Hs,Lq,K] lists a row's blocks, one list for all heads (Hs 1),
    for each key head or for each query head; positions i32 [B,Lq] is where a row stands in its
    request. A list ends at its first negative id and what follows is ignored; its ids are unique. A
    key past the row's position, or past len, is not visited, whatever names it.

    score = q.k * scale, then softcap (c * tanh(s / c)). State and scores are f32. A key that is not
    visited is never read into the row's result, even if it is NaN. A row that visits nothing is
    NaN, or 0 with a sink. With lse a second result, f32 [B,Hq,Lq]: the natural log of the sum of
    exp(score), without the sink."""
    _need_names(operands, ins)
    need(ratio >= 1, "a ratio of 1 or more", ratio=ratio)
    need(Always.of(always) is not None, f"always {KINDS}", always=always)
    at = dict(zip(operands, ins, strict=True))
    q, k, v = ins[:3]
    alike = q.dtype == k.dtype == v.dtype and q.dtype in ("f32", "f16", "bf16")
    need(alike, "floats of one dtype", q=q, k=k, v=v)
    need(len(q.shape) == 4, "a q of [B,Hq,Lq,Dk]", q=q)
    kv_heads, keys = key_heads_and_keys(at)
    batch, heads, rows, width = q.shape
    shared = at["k_shared"].shape[-1] if "k_shared" in at else 0
    if "k_shared" in at:
        want = TensorType(q.dtype, (batch, 1, keys, shared))
        need(at["k_shared"] == want, "k_shared [B,1,Lk,s]", k_shared=at["k_shared"], want=want)
    need(k.shape[-1] + shared == width, "as wide a key as q", q=q, k=k, shared=shared)
    grouped = kv_heads > 0 and heads % kv_heads == 0 and keys > 0
    need(grouped, "Hq a multiple of Hkv, and keys", q=q, k=k)
    _need_lists(at, kv_heads)
    if "len" in at:
        need(at["len"] == TensorType("i32", (batch,)), "len i32 [B]", len=at["len"])
    if "sink" in at:
        sink = at["sink"]
        fits = sink.shape == (heads,) and sink.dtype in (q.dtype, "f32")
        need(fits, "sink [Hq] in q's dtype or f32", sink=sink, q=q)
    out = TensorType(q.dtype, (batch, heads, rows, v.shape[-1]))
    return (out, TensorType("f32", (batch, heads, rows))) if lse else out
