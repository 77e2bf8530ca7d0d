"""Feed-forward parts: one hidden layer, or many of which each row uses some."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from poot import ops
from poot.llm.models.parts.coded import decoded, taken
from poot.llm.models.parts.kinds import Dense, Experts, Router
from poot.llm.models.parts.values import Weights, project, wide
from poot.ops.array import Array

Shape = tuple[int, ...]
ACTS: Mapping[str, Callable[[Array], Array]] = {
    "silu": ops.silu,
    "gelu": ops.gelu,
    "gelu_tanh": ops.gelu_tanh,
}
GATHER = 3  # a gathered expert is read, written and read again


def dense_shapes(kind: Dense, width: int) -> dict[str, Shape]:
    """The weights of `feed_dense`: name -> shape."""
    made: dict[str, Shape] = {"up": (kind.width, width)}
    if kind.is_gated:
        made = {"gate": (kind.width, width), **made}
    if kind.is_fused:
        made = {"gate_up": (2 * kind.width, width)}
    made["down"] = (width, kind.width)
    if kind.is_biased:
        made |= {f"{name}_bias": shape[:1] for name, shape in made.items()}
    return made


def feed_dense(kind: Dense, w: Weights, h: Array) -> Array:
    """h [n, width] -> [n, width]."""
    act = ACTS[kind.act]
    if kind.is_fused:
        both = project(w, "gate_up", h)
        inner = act(both[:, : kind.width]) * both[:, kind.width :]
    elif kind.is_gated:
        inner = act(project(w, "gate", h)) * project(w, "up", h)
    else:
        inner = act(project(w, "up", h))
    return project(w, "down", inner)


def experts_shapes(kind: Experts, width: int) -> dict[str, Shape]:
    """The weights of `feed_experts`: name -> shape. Matrices of experts are [count, out, in], or
    [count, in, out] where `clamped`."""
    n, inner = kind.count, kind.width
    made: dict[str, Shape] = {"router": (n, width)}
    if kind.router.is_biased:
        made["router_bias"] = (n,)
    if kind.router.is_sigmoid:
        made["correction"] = (n,)
    if kind.clamped is not None:
        return made | {
            "each_gate_up": (n, width, 2 * inner), "each_gate_up_bias": (n, 2 * inner),
            "each_down": (n, inner, width), "each_down_bias": (n, width),
        }  # fmt: skip
    made |= {"each_gate": (n, inner, width), "each_up": (n, inner, width)}
    made["each_down"] = (n, width, inner)
    if kind.shared:
        shared = dense_shapes(Dense(kind.shared, kind.act), width)
        made |= {f"shared_{name}": shape for name, shape in shared.items()}
    return made


def feed_experts(kind: Experts, w: Weights, h: Array) -> Array:
    """h [n, width] -> [n, width]: the sum of each row's experts by weight, and of the shared one.

    Where few rows choose few of many, their experts are gathered; else all experts see all rows
    and what was not chosen is left out by select."""
    ids, shares = route(kind.router, kind.count, w, h)
    rows, used = ids.shape
    if rows * used * GATHER <= kind.count:
        out = _gathered(kind, w, h, ids, shares)
    else:
        chosen = _hot(ids, kind.count)
        share = ops.sum(ops.where(chosen, shares.reshape(rows, used, 1), 0.0), axis=1)
        is_used = ops.any(chosen, axis=1)
        each = _expert(kind, w, h.reshape(1, rows, h.shape[1]), None)
        share, is_used = (x.T.reshape(kind.count, rows, 1) for x in (share, is_used))
        out = ops.sum(ops.where(is_used, each * share, 0.0), axis=0)
    if kind.shared:
        own = {n.removeprefix("shared_"): v for n, v in w.items() if n.startswith("shared_")}
        out = out + feed_dense(Dense(kind.shared, kind.act), own, h)
    return out


def _gathered(kind: Experts, w: Weights, h: Array, ids: Array, shares: Array) -> Array:
    rows, used = ids.shape
    width = h.shape[1]
    apart = ops.broadcast_to(h.reshape(rows, 1, width), (rows, used, width))
    each = _expert(kind, w, apart.reshape(rows * used, 1, width), ids.reshape(rows * used))
    weighted = each.reshape(rows, used, width) * shares.reshape(rows, used, 1)
    return ops.sum(weighted, axis=1)


def _expert(kind: Experts, w: Weights, x: Array, ids: Array | None) -> Array:
    """x [1 or experts, n, width] through all experts, or through those of `ids` [experts]: f32
    [experts, n, width]."""

    def held(name: str) -> Array:
        return decoded(w[name] if ids is None else taken(w[name], ids))

    def bias(name: str) -> Array:
        found = held(name)
        return found.reshape(found.shape[0], 1, found.shape[1])

    if kind.clamped is None:
        act = ACTS[kind.act]
        gate, up, down = (held(f"each_{n}").swapaxes(1, 2) for n in ("gate", "up", "down"))
        return (act(x @ gate) * (x @ up)) @ down
    alpha, limit = kind.clamped
    both = x @ held("each_gate_up") + bias("each_gate_up_bias")
    gate, up = ops.minimum(both[..., 0::2], limit), ops.clip(both[..., 1::2], -limit, limit)
    inner = (up + 1.0) * (gate * ops.sigmoid(gate * alpha))
    return inner @ held("each_down") + bias("each_down_bias")


def route(router: Router, count: int, w: Weights, h: Array) -> tuple[Array, Array]:
    """(ids i32 [n, used], shares f32 [n, used]) of the experts that each row of h [n, width]
    uses."""
    logits = project(w, "router", h)
    scores = ops.sigmoid(logits) if router.is_sigmoid else ops.softmax(logits)
    ranked = scores + wide(w, "correction") if router.is_sigmoid else scores
    if router.groups > 1:
        ranked = _best_groups(router, count, ranked)
    shares, ids = ops.topk(ranked, router.used)
    if router.is_sigmoid:
        rows = scores.shape[0]
        shares = ops.sum(ops.where(_hot(ids, count), scores.reshape(rows, 1, count), 0.0), axis=2)
    if router.is_normal:
        shares = shares / (ops.sum(shares, axis=-1, keepdims=True) + 1e-20)
    return ids, shares if router.scale == 1.0 else shares * router.scale


def _best_groups(router: Router, count: int, ranked: Array) -> Array:
    """The scores with those outside each row's best groups put last."""
    rows, groups = ranked.shape[0], router.groups
    apart = ranked.reshape(rows, groups, count // groups)
    two, _ = ops.topk(apart, 2 if router.is_sigmoid else 1)
    worth = ops.sum(two, axis=2)
    kept = ops.any(_hot(ops.topk(worth, router.groups_used)[1], groups), axis=1)
    lowest = float("-inf") if router.is_sigmoid else 0.0
    return ops.where(kept.reshape(rows, groups, 1), apart, lowest).reshape(rows, count)


def _hot(ids: Array, count: int) -> Array:
    """Whether each id [n, used] is each of 0 .. count - 1: bool [n, used, count]."""
    return ids.reshape(*ids.shape, 1) == ops.iota((1, 1, count), 2)
