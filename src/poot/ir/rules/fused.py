"""Ops that only passes form. `ops/expand.py` gives the primitives that each stands for."""

from __future__ import annotations

from poot.errors import need
from poot.ir.graph import Graph, TensorType
from poot.ir.ops import op
from poot.ir.rules.elementwise import broadcast_shapes

ATTENTION_OPERANDS = ("q", "k", "v", "k_shared", "read", "len", "bias", "mask", "sink")


@op("rope", ins=3, attrs=("interleaved",), fused=True)
def rope(x: TensorType, cos: TensorType, sin: TensorType, *, interleaved: bool) -> TensorType:
    """Rotates the first 2 * cos.shape[-1] elements of x's last axis by pairs, and keeps the rest.

    Pair i is elements (2i, 2i+1) if interleaved, else (i, i + half). (a, b) becomes
    (a cos - b sin, b cos + a sin)."""
    alike = cos == sin and cos.dtype == x.dtype
    need(alike, "cos and sin alike, of x's dtype", x=x, cos=cos, sin=sin)
    need(2 * cos.shape[-1] <= x.shape[-1], "at most half as many angles as elements", x=x, cos=cos)
    batch = broadcast_shapes(x.shape[:-1], cos.shape[:-1])
    need(batch == x.shape[:-1], "angles that broadcast to x", x=x, cos=cos)
    return x


def _need_names(operands: tuple[str, ...], ins: tuple[TensorType, ...]) -> None:
    named = len(operands) == len(ins) and operands[:3] == ("q", "k", "v")
    need(named, "q, k, v and a name for each", operands=operands)
    ordered = list(operands) == [n for n in ATTENTION_OPERANDS if n in operands]
    need(ordered, "operands in order", operands=operands)


def key_heads_and_keys(at: dict[str, TensorType]) -> tuple[int, int]:
    """(Hkv, Lk) of the dense or the paged form."""
    q, k, v = at["q"], at["k"], at["v"]
    if "read" in at:
        read = at["read"]
        pools = len(k.shape) == len(v.shape) == 3 and k.shape[:2] == v.shape[:2]
        need(pools, "pools [S,Hkv,D]", k=k, v=v)
        mapped = read.dtype == "i32" and len(read.shape) == 2 and read.shape[0] == q.shape[0]
        need(mapped, "read i32 [B,Lk]", read=read)
        return k.shape[1], read.shape[1]
    alike = len(k.shape) == len(v.shape) == 4 and k.shape[:3] == v.shape[:3]
    need(alike, "k and v alike but in width", k=k, v=v)
    need(k.shape[0] == q.shape[0], "keys for each batch row", q=q, k=k)
    return k.shape[1], k.shape[2]


def _need_optional(at: dict[str, TensorType], keys: int, mask_fill: float | None) -> None:
    """The rules of len, bias, mask and sink, where they are given."""
    q = at["q"]
    if "len" in at:
        need(at["len"] == TensorType("i32", q.shape[:1]), "len i32 [B]", len=at["len"])
    for name in ("bias", "mask"):
        if name not in at:
            continue
        mask = at[name]
        pairs = zip(mask.shape, (*q.shape[:3], keys), strict=False)
        stretches = len(mask.shape) == 4 and all(m in (1, n) for m, n in pairs)
        is_added = name == "bias" or mask_fill is None
        ok = stretches and mask.dtype in ((q.dtype, "f32") if is_added else ("bool",))
        need(ok, f"a {name} of [B|1,Hq|1,Lq|1,Lk|1]", mask=mask, q=q, keys=keys)
    need("mask" in at or mask_fill is None, "a mask for mask_fill", mask_fill=mask_fill)
    if "sink" in at:
        sink = at["sink"]
        fits = sink.shape == q.shape[1:2] and sink.dtype in (q.dtype, "f32")
        need(fits, "sink [Hq] in q's dtype or f32", sink=sink, q=q)


_ATTENTION_ATTRS = ("operands", "scale", "softcap", "mask_fill", "causal", "window", "lse")


@op("attention", ins=None, fused=True, attrs=_ATTENTION_ATTRS)
def attention(
    *ins: TensorType,
    operands: tuple[str, ...],
    scale: float,
    softcap: float | None = None,
    mask_fill: float | None = None,
    causal: int | None = None,
    window: int | None = None,
    lse: bool = False,
) -> TensorType | tuple[TensorType, TensorType]:
    """softmax(score(q, k)) v for each batch row, query head and query row, streamed over the keys.

    `operands` names each of `ins`, in the order of ATTENTION_OPERANDS. q [B,Hq,Lq,Dk],
    k [B,Hkv,Lk,Dk], v [B,Hkv,Lk,Dv] -> [B,Hq,Lq,Dv] in q's dtype; Hq is a multiple of Hkv and query
    head h reads key head h // (Hq/Hkv). k_shared [B,1,Lk,s]: the last s of Dk, one for all heads.
    read i32 [B,Lk]: k [S,Hkv,Dk] and v [S,Hkv,Dv] are pools, key t of row b is pool slot read[b,t].
    len i32 [B]: only the first len[b] keys count. mask [B|1,Hq|1,Lq|1,Lk|1]: added to the scores,
    or, where mask_fill is a number, bool, and a score whose mask is false becomes mask_fill.
    bias, of such a shape: added to the scores before a mask. sink [Hq]: one more logit, in max and
    denominator only.

    score = q.k * scale, then softcap (c * tanh(s / c)), then bias, then mask. `causal`: an i such
    that query row r sees only keys t <= r + i; `window`: only keys t > r + i - window (i is 0
    without causal). State and scores are f32. A key of score -inf weighs exactly 0; a key that len,
    causal or window hides is never read into the row's result, even if its value is NaN. A row
    without a visible key is NaN, or 0 with a sink. With lse a second result, f32 [B,Hq,Lq]: the
    natural log of the sum of exp(score), without the sink; -inf where no key is visible."""
    _need_names(operands, ins)
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
    _need_optional(at, keys, mask_fill)
    out = TensorType(q.dtype, (batch, heads, rows, v.shape[-1]))
    return (out, TensorType("f32", (batch, heads, rows))) if lse else out


@op("region", ins=None, attrs=("body", "anchor", "updates"), fused=True)
def region(
    *ins: TensorType, body: Graph, anchor: str, updates: tuple[tuple[int, int], ...] = ()
) -> tuple[TensorType, ...]:
    """One launch (or a fixed few): the eqns of body, whose inputs and outputs are the eqn's, one
    for one.

    `anchor` is the eqn whose schedule decides: "matmul", "attention", "reduce" or "none". What
    stands before it is its prologue, asked for one element or vector at a load; what stands after,
    its epilogue, applied at the store. `updates` holds pairs (out, in): that out is a State update
    of that in, done in place."""
    need(anchor in ("matmul", "attention", "reduce", "none"), "a known anchor", anchor=anchor)
    got = tuple(i.var.type for i in body.inputs)
    given, wanted = ([str(t) for t in types] for types in (ins, got))
    need(got == ins, "operands typed as the body's inputs", ins=given, body=wanted)
    return tuple(v.type for v in body.outputs)
