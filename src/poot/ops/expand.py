"""The primitives that a fused eqn stands for: what `explain` prints and the oracle compares with.

In f16 and bf16 it means f32 intermediates on the same inputs, rounded once at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from poot.errors import PassError
from poot.ir.attrs import bool_attr, graph_attr, int_attr, number_attr
from poot.ir.graph import Eqn, Graph, Slot, Var
from poot.ir.walk import next_id
from poot.ops.array import Array, emit, reshape
from poot.ops.attention import Result, masked, match_heads, scaled_scores, visible, weigh_values
from poot.ops.elementwise import where
from poot.ops.record import recording
from poot.ops.rope import rotate
from poot.ops.shape import broadcast_to, concat
from poot.ops.sparse import best_blocks, per_head, visited_keys, weighed_shares


def expand(eqn: Eqn) -> Graph:
    """A Graph whose inputs and outputs are the fused eqn's, one for one, named by operand, every
    eqn at the fused one's line. A
    region's is its body. Raises PassError on an eqn that isn't fused."""
    if eqn.op == "region":
        return graph_attr(eqn)
    rule = _RULES.get(eqn.op)
    if rule is None:
        raise PassError(f"expand needs a fused eqn: op={eqn.op}", eqn.loc)
    names, write = rule
    with recording() as recorder:
        arrays = [
            Array(recorder, recorder.builder.input(v.type, name, Slot()))
            for name, v in zip(names(eqn), eqn.ins, strict=True)
        ]
        result = write(eqn, arrays)
        outs = result if isinstance(result, tuple) else (result,)
        body = recorder.builder.graph(tuple(x.var for x in outs))
    return replace(body, eqns=tuple(replace(e, loc=eqn.loc) for e in body.eqns))


def expand_all(graph: Graph, which: tuple[str, ...] | None = None) -> Graph:
    """The graph with every fused eqn, regions' bodies among them, written out as primitives; or
    those of the ops in `which` alone."""
    ops = FUSED if which is None else which
    return expand_where(graph, lambda eqn: eqn.op in ops)


def expand_where(graph: Graph, claim: Callable[[Eqn], bool]) -> Graph:
    """The graph with the fused eqns that the claim holds for written out, and what they are written
    out as."""
    eqns: list[Eqn] = []
    renamed: dict[int, Var] = {}
    fresh = next_id(graph)

    def now(v: Var) -> Var:
        while v.id in renamed:
            v = renamed[v.id]
        return v

    pending = list(reversed(graph.eqns))
    while pending:
        eqn = pending.pop()
        ins = tuple(now(v) for v in eqn.ins)
        if not claim(eqn):
            eqns.append(replace(eqn, ins=ins))
            continue
        body = expand(eqn)
        inside = {i.var.id: v for i, v in zip(body.inputs, ins, strict=True)}
        moved: list[Eqn] = []
        for inner in body.eqns:
            outs = tuple(Var(fresh + i, v.type) for i, v in enumerate(inner.outs))
            fresh += len(outs)
            at = tuple(inside[v.id] for v in inner.ins)
            moved.append(replace(inner, ins=at, outs=outs, loc=inner.loc or eqn.loc))
            inside.update((v.id, out) for v, out in zip(inner.outs, outs, strict=True))
        renamed.update((v.id, inside[o.id]) for v, o in zip(eqn.outs, body.outputs, strict=True))
        pending.extend(reversed(moved))
    return replace(
        graph,
        eqns=tuple(eqns),
        outputs=tuple(now(v) for v in graph.outputs),
        states=tuple((a, now(b)) for a, b in graph.states),
        validations=tuple(now(v) for v in graph.validations),
    )


def _rope(eqn: Eqn, ins: list[Array]) -> Array:
    x, cos, sin = (a.astype("f32") for a in ins)
    return rotate(x, cos, sin, bool_attr(eqn, "interleaved")).astype(ins[0].dtype)


def _attention_names(eqn: Eqn) -> tuple[str, ...]:
    return cast("tuple[str, ...]", eqn.attr("operands"))  # the op's rule has checked it


def _attention(eqn: Eqn, ins: list[Array]) -> Result:
    at = dict(zip(_attention_names(eqn), ins, strict=True))
    dtype = at["q"].dtype
    q, k, v = at["q"].astype("f32"), *_keys_and_values(at)
    if "len" in at:
        seen = _before(at["len"], k.shape[2])
        k, v = (where(reshape(seen, (*seen.shape[:2], -1, 1)), x, 0.0) for x in (k, v))
    k, v = match_heads(q, k, v)
    cap = eqn.attr("softcap")
    scores = scaled_scores(
        q, k, _number(eqn, "scale"), None if cap is None else _number(eqn, "softcap")
    )
    scores = _hidden(eqn, at, scores)
    result = weigh_values(scores, v, at.get("sink"), bool_attr(eqn, "lse"))
    if isinstance(result, tuple):
        return result[0].astype(dtype), result[1]
    return result.astype(dtype)


def _number(eqn: Eqn, name: str) -> float:
    return float(number_attr(eqn, name))


def _keys_and_values(at: dict[str, Array]) -> tuple[Array, Array]:
    """k and v [B,Hkv,Lk,D] in f32: gathered from their pools, the shared part of the key joined
    on."""
    k, v = at["k"], at["v"]
    if "read" in at:
        k, v = (emit("gather", x, at["read"], axis=0).transpose(0, 2, 1, 3) for x in (k, v))
    if "k_shared" in at:
        shared = at["k_shared"]
        k = concat([k, broadcast_to(shared, (*k.shape[:3], shared.shape[3]))], 3)
    return k.astype("f32"), v.astype("f32")


def _before(length: Array, keys: int) -> Array:
    """bool [B,1,1,Lk]: which keys count."""
    t = emit("iota", recorder=length.recorder, shape=(1, 1, 1, keys), axis=3, dtype="i32")
    return t < reshape(length, (-1, 1, 1, 1))


def _hidden(eqn: Eqn, at: dict[str, Array], scores: Array) -> Array:
    """The scores under bias, mask, causal bound, window and length."""
    mask, fill = at.get("mask"), eqn.attr("mask_fill")
    if "bias" in at:
        scores = masked(scores, at["bias"].astype("f32"))
    if mask is not None and fill is not None:
        scores = where(mask, scores, _number(eqn, "mask_fill"))
    elif mask is not None:
        scores = masked(scores, mask.astype("f32"))
    causal, window = eqn.attr("causal"), eqn.attr("window")
    rows, keys = scores.shape[2:]
    if causal is not None or window is not None:
        first = int_attr(eqn, "causal") if causal is not None else 0
        r = emit("iota", recorder=scores.recorder, shape=(rows, 1), axis=0, dtype="i32")
        t = emit("iota", recorder=scores.recorder, shape=(1, keys), axis=1, dtype="i32")
        width = int_attr(eqn, "window") if window is not None else None
        scores = where(visible(r + first, t, causal is not None, width), scores, -math.inf)
    if "len" in at:
        scores = where(_before(at["len"], keys), scores, -math.inf)
    return scores


def _selected(eqn: Eqn, ins: list[Array]) -> Result:
    at = dict(zip(_attention_names(eqn), ins, strict=True))
    dtype = at["q"].dtype
    q, k, v = at["q"].astype("f32"), *_keys_and_values(at)
    heads, keys = q.shape[1], k.shape[2]
    if "len" in at:
        seen = _before(at["len"], keys)
        k, v = (where(reshape(seen, (*seen.shape[:2], -1, 1)), x, 0.0) for x in (k, v))
    k, v = match_heads(q, k, v)
    cap = eqn.attr("softcap")
    scores = scaled_scores(
        q, k, _number(eqn, "scale"), None if cap is None else _number(eqn, "softcap")
    )
    always = str(eqn.attr("always") or "tail")
    mask = visited_keys(at["ids"], at["positions"], int_attr(eqn, "ratio"), keys, always)
    scores = masked(scores, per_head(mask, heads))
    if "len" in at:
        scores = where(_before(at["len"], keys), scores, -math.inf)
    result = weigh_values(scores, v, at.get("sink"), bool_attr(eqn, "lse"))
    if isinstance(result, tuple):
        return result[0].astype(dtype), result[1]
    return result.astype(dtype)


def _block_scores(eqn: Eqn, ins: list[Array]) -> Array:
    return weighed_shares(*ins) * _number(eqn, "scale")


def _block_topk(eqn: Eqn, ins: list[Array]) -> Array:
    always = str(eqn.attr("always") or "tail")
    scores, positions = ins
    return best_blocks(scores, positions, int_attr(eqn, "k"), int_attr(eqn, "ratio"), always)


_Rule = tuple[Callable[[Eqn], tuple[str, ...]], Callable[[Eqn, list[Array]], Result]]
_RULES: dict[str, _Rule] = {
    "rope": (lambda eqn: ("x", "cos", "sin"), _rope),
    "attention": (_attention_names, _attention),
    "block_scores": (lambda eqn: ("q", "keys", "weights")[: len(eqn.ins)], _block_scores),
    "block_topk": (lambda eqn: ("scores", "positions"), _block_topk),
    "selected_attention": (_attention_names, _selected),
}
FUSED = ("region", *_RULES)
"""The ops that can be written out."""
