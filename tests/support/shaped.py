"""Random graphs whose values keep changing shape: axes are split, joined, moved, cut and stretched
between products, folds over rows, ranks, gathers and updates, and rows are folded by groups and
flattened again. What they compute can be compared (`shaper.assert_agrees`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

from poot.ir.graph import Graph, Slot, State, TensorType, Var, Weight
from poot.slots import WRITE_MAP
from tests.support.shaper import FLOATS, WIDE_EXTENTS, Shaper, factored, other_shape, partner

Step = Callable[[Shaper], Var | None]
STEPS: list[Step] = []


def step(weight: int) -> Callable[[Step], Step]:
    """A step that is drawn so many times as often as one of weight 1."""

    def add(fn: Step) -> Step:
        STEPS.extend([fn] * weight)
        return fn

    return add


@step(6)
def reshape(g: Shaper) -> Var | None:
    v = g.pick(lambda v: True)
    return v and g.reshaped(v, other_shape(g, v))


@step(3)
def transpose(g: Shaper) -> Var | None:
    v = g.pick(lambda v: len(v.type.shape) >= 2)
    rank = len(v.type.shape) if v else 0
    return v and g.one("transpose", v, perm=tuple(g.rng.sample(range(rank), rank)))


@step(2)
def broadcast(g: Shaper) -> Var | None:
    v = g.pick(lambda v: v.type.elems <= 100)
    if v is None:
        return None
    grown = tuple(g.rng.randint(1, 4) if n == 1 else n for n in v.type.shape)
    return g.one("broadcast", v, shape=(*g.shape(0, 1), *grown))


@step(2)
def cut(g: Shaper) -> Var | None:
    v = g.pick(lambda v: len(v.type.shape) >= 1)
    if v is None:
        return None
    start = tuple(g.rng.randint(0, (n - 1) // 2) for n in v.type.shape)
    stop = tuple(g.rng.randint(a + 1, n) for a, n in zip(start, v.type.shape, strict=True))
    return g.one(
        "slice", v, start=start, stop=stop, step=tuple(g.rng.choice((1, 1, 2)) for _ in start)
    )


@step(2)
def concat(g: Shaper) -> Var | None:
    v = g.pick(lambda v: len(v.type.shape) >= 1 and v.type.elems <= 200)
    if v is None:
        return None
    axis = g.rng.randrange(len(v.type.shape))
    rest = v.type.shape[:axis] + v.type.shape[axis + 1 :]

    def fits(o: Var) -> bool:
        shape = o.type.shape
        return (
            o.type.dtype == v.type.dtype
            and len(shape) == len(v.type.shape)
            and shape[:axis] + shape[axis + 1 :] == rest
            and o.type.elems <= 200
        )

    return g.one("concat", v, *(g.pick(fits) or v for _ in range(g.rng.randint(1, 2))), axis=axis)


@step(5)
def binary(g: Shaper) -> Var | None:
    v = g.pick(lambda v: v.type.dtype in (*FLOATS, "i32"))
    if v is None:
        return None
    op = g.rng.choice(("add", "sub", "mul", "max", "min"))
    a, b = g.small(v), g.small(partner(g, v))
    out = g.one(op, *((a, b) if g.rng.random() < 0.7 else (b, a)))
    x, y = g.big[a.id], g.big[b.id]
    g.big[out.id] = x * y if op == "mul" else x + y if op in ("add", "sub") else max(x, y)
    return out if v.type.dtype == "i32" else g.small(out)


@step(2)
def unary(g: Shaper) -> Var | None:
    v = g.floats()
    if v is None:
        return None
    match g.rng.choice(("neg", "abs", "exp", "tanh", "rsqrt", "floor")):
        case "exp":
            low = g.one("neg", g.one("abs", v))
            out = g.one("exp", low, rough=True)
            g.big[out.id] = 1.0
        case "tanh":
            out = g.one("tanh", v, rough=True)
            g.big[out.id] = 1.0
        case "rsqrt":
            out = g.one("rsqrt", g.one("add", g.one("abs", v), g.number(v, 1.0)), rough=True)
            g.big[out.id] = 1.0
        case "floor" if v.id not in g.rough:
            out = g.one("floor", v)
        case "abs":
            out = g.one("abs", v)
        case _:
            out = g.one("neg", v)
    return out


@step(3)
def select(g: Shaper) -> Var | None:
    """A chain of selects under comparisons of exact values, or of places."""
    v = g.pick(lambda v: v.type.dtype in (*FLOATS, "i32"))
    if v is None:
        return None
    other = partner(g, v)
    out = g.one("select", _condition(g, v), v, other)
    if g.rng.random() < 0.4:
        out = g.one("select", _condition(g, v), g.number(v, 0.0), out)
    g.big[out.id] = max(g.big[v.id], g.big[other.id])
    return out


def _condition(g: Shaper, like: Var) -> Var:
    """A bool of the value's shape."""
    shape = like.type.shape
    exact = g.pick(
        lambda o: o.type.shape == shape and o.id not in g.rough and o.type.dtype in (*FLOATS, "i32")
    )
    op = g.rng.choice(("lt", "ge", "eq", "ne"))
    if exact is not None and g.rng.random() < 0.5:
        return g.one(op, exact, g.number(exact, float(g.rng.randint(-2, 2))))
    if not shape:
        return g.one("const", shape=(), dtype="bool", value=g.rng.random() < 0.5)
    axes = [g.rng.randrange(len(shape)) for _ in range(2)]
    rows, cols = (g.one("iota", shape=shape, axis=a, dtype="i32") for a in axes)
    return g.one(op, rows, cols if axes[0] != axes[1] else g.number(rows, g.rng.randint(0, 3)))


@step(2)
def cast(g: Shaper) -> Var | None:
    v = g.pick(lambda v: v.type.dtype in (*FLOATS, "i32", "bool") and v.id not in g.rough)
    if v is None:
        return None
    out = g.one("cast", v, dtype=g.rng.choice((*g.dtypes, "i32")))
    return out


@step(4)
def reduce(g: Shaper) -> Var | None:
    v = g.floats(rank=1)
    if v is None:
        return None
    rank = len(v.type.shape)
    axis = tuple(sorted(g.rng.sample(range(rank), g.rng.randint(1, rank))))
    return folded(g, v, axis, g.rng.random() < 0.5)


def folded(g: Shaper, v: Var, axis: tuple[int, ...], keepdim: bool) -> Var:
    """A fold that stays exact in the value's dtype."""
    kind = g.rng.choice(("sum", "max", "min"))
    v = g.small(v)
    out = g.one("reduce", v, kind=kind, axis=axis, keepdim=keepdim)
    if kind == "sum":
        g.big[out.id] = g.big[v.id] * math.prod(v.type.shape[a] for a in axis)
    return out


@step(8)
def over_own_rows(g: Shaper) -> Var | None:
    """Rows by groups: split, folded, combined with their fold, flattened again."""
    v = g.floats(rank=1)
    if v is None:
        return None
    x = g.small(v)
    for _ in range(g.rng.randint(0, 2)):
        x = g.reshaped(x, other_shape(g, x))
    if not x.type.shape:
        return None
    rank = len(x.type.shape)
    first = g.rng.randrange(rank)
    axis = tuple(range(first, rank)) if g.rng.random() < 0.8 else (first,)
    for _ in range(g.rng.choice((1, 1, 2, 3))):
        x = _with_fold(g, x, axis)
        if g.rng.random() < 0.4:
            x = g.reshaped(g.reshaped(x, other_shape(g, x)), x.type.shape)
    for _ in range(g.rng.randint(0, 3)):
        x = g.reshaped(x, other_shape(g, x))
        if g.rng.random() < 0.3:
            x = g.one("neg", x)
    return g.reshaped(x, v.type.shape) if g.rng.random() < 0.5 else x


def _with_fold(g: Shaper, x: Var, axis: tuple[int, ...]) -> Var:
    """x with its own rows' fold taken off, or divided by it."""
    shape = tuple(1 if a in axis else n for a, n in enumerate(x.type.shape))
    keepdim = g.rng.random() < 0.5
    r = folded(g, x, axis, keepdim)
    if g.rng.random() < 0.3:
        r = g.one("abs", r)
    if g.rng.random() < 0.3:
        r = g.reshaped(r, factored(g.rng, r.type.elems))
    r = g.small(g.reshaped(r, shape))
    if g.rng.random() < 0.3:
        r = g.one("broadcast", r, shape=x.type.shape)
    match g.rng.choice(("sub", "div", "softmax", "max")):
        case "div":
            under = g.one("add", g.one("abs", r), g.number(r, 1.0))
            out = g.one("div", x, under, rough=True)
        case "softmax":
            top = g.one("reduce", x, kind="max", axis=axis, keepdim=True)
            e = g.one("exp", g.one("sub", x, top), rough=True)
            g.big[e.id] = 1.0
            total = g.one("reduce", e, kind="sum", axis=axis, keepdim=True)
            out = g.one("div", e, total, rough=True)
            g.big[out.id] = 1.0
        case op:
            out = g.one(op, x, r)
            g.big[out.id] = g.big[x.id] + g.big[r.id]
    return g.small(out)


@step(2)
def rank(g: Shaper) -> Var | None:
    v = g.pick(
        lambda v: (
            v.type.dtype in (*FLOATS, "i32") and len(v.type.shape) >= 1 and v.id not in g.rough
        )
    )
    if v is None:
        return None
    if g.rng.random() < 0.5:
        return g.one("argmax", v, axis=g.rng.randrange(len(v.type.shape)))
    g.lines += 1
    values, ids = g.build.emit(
        "topk", v, loc=f"shaped.py:{g.lines}", k=g.rng.randint(1, v.type.shape[-1])
    )
    g.big[values.id], g.big[ids.id] = g.big[v.id], float(v.type.shape[-1])
    g.keep(ids)
    return values


@step(3)
def matmul(g: Shaper) -> Var | None:
    v = g.floats(rank=1)
    if v is None:
        return None
    if len(v.type.shape) < 2:
        v = g.reshaped(v, (1, *v.type.shape))
    v, k = g.small(v), v.type.shape[-1]
    right = g.pick(
        lambda o: o.type.dtype == v.type.dtype and len(o.type.shape) == 2 and o.type.shape[0] == k
    )
    if right is None:
        right = g.input(TensorType(v.type.dtype, (k, g.rng.randint(1, 8))), Weight())
    right = g.small(right)
    out = g.one("matmul", v, right)
    g.big[out.id] = g.big[v.id] * g.big[right.id] * k
    return g.small(out)


@step(1)
def attention(g: Shaper) -> Var | None:
    """Queries, keys and values out of one value, its axes taken as heads, rows and columns."""
    v = g.floats(rank=1)
    if v is None:
        return None
    heads, rows, cols = ([d for d in factored(g.rng, v.type.elems, 3) if d > 1] + [1, 1, 1])[:3]
    if g.rng.random() < 0.5:
        x = g.reshaped(v, (1, rows, heads, cols))
        q = g.one("transpose", x, perm=(0, 2, 1, 3))
    else:
        q = g.reshaped(v, (1, heads, rows, cols))
    k = g.one("neg", q) if g.rng.random() < 0.5 else q
    turned = g.one("transpose", k, perm=(0, 1, 3, 2))
    scores = g.one("mul", g.one("matmul", q, turned), g.number(q, 0.03125), rough=True)
    top = g.one("reduce", scores, kind="max", axis=(3,), keepdim=True)
    e = g.one("exp", g.one("sub", scores, top))
    total = g.one("reduce", e, kind="sum", axis=(3,), keepdim=True)
    out = g.one("matmul", g.one("div", e, total), q)
    g.big[out.id] = g.big[v.id]
    if g.rng.random() < 0.5:
        out = g.one("transpose", out, perm=(0, 2, 1, 3))
    return g.reshaped(out, other_shape(g, out))


@step(2)
def running_sum(g: Shaper) -> Var | None:
    """A running sum along the last axis, as a product with a triangle."""
    v = g.floats(rank=1)
    if v is None or v.type.shape[-1] > 12:
        return None
    n = v.type.shape[-1]
    rows, cols = (g.one("iota", shape=(n, n), axis=a, dtype="i32") for a in (0, 1))
    triangle = g.one("cast", g.one("le", rows, cols), dtype=v.type.dtype)
    x = g.small(v if len(v.type.shape) > 1 else g.reshaped(v, (1, n)))
    out = g.one("matmul", x, triangle)
    g.big[out.id] = g.big[x.id] * n
    return g.small(g.reshaped(out, v.type.shape))


@step(2)
def gather(g: Shaper) -> Var | None:
    v = g.pick(lambda v: 1 <= len(v.type.shape) <= 3)
    if v is None:
        return None
    index = g.pick(
        lambda o: o.type.dtype == "i32" and len(o.type.shape) <= 2 and o.type.elems <= 24
    )
    axis = g.rng.randrange(len(v.type.shape))
    if index is None:
        n = v.type.shape[axis]
        index = g.input(TensorType("i32", g.shape(0, 1)), Slot("user", (0, n)))
    return g.one("gather", v, index, axis=axis)


def _start(g: Shaper, v: Var, axis: int) -> Var:
    shape = g.rng.choice(((), v.type.shape[:1] if axis else ()))
    found = g.pick(lambda o: o.type.dtype == "i32" and o.type.shape == shape)
    return found or g.one("const", shape=shape, dtype="i32", value=g.rng.randint(0, 3))


@step(2)
def window(g: Shaper) -> Var | None:
    """A slice from a computed place, or an update there."""
    v = g.pick(lambda v: len(v.type.shape) >= 1)
    if v is None:
        return None
    axis = g.rng.randrange(len(v.type.shape))
    size = g.rng.randint(1, v.type.shape[axis])
    if g.rng.random() < 0.5:
        return g.one("dynamic_slice", v, _start(g, v, axis), axis=axis, size=size)
    shape = (*v.type.shape[:axis], size, *v.type.shape[axis + 1 :])
    new = g.pick(lambda o: o.type.dtype == v.type.dtype and o.type.elems == math.prod(shape))
    if new is None:
        new = g.one("const", shape=shape, dtype=v.type.dtype, value=1)
    out = g.one("dynamic_update_slice", v, g.reshaped(new, shape), _start(g, v, axis), axis=axis)
    return out


@step(1)
def scatter(g: Shaper) -> Var | None:
    v = g.pick(lambda v: len(v.type.shape) >= 1)
    if v is None:
        return None
    n = g.rng.randint(1, v.type.shape[0])
    slot = Slot(WRITE_MAP, (-1, v.type.shape[0]))
    rows = g.input(TensorType("i32", (n,)), slot)
    shape = (n, *v.type.shape[1:])
    new = g.pick(lambda o: o.type.dtype == v.type.dtype and o.type.elems == math.prod(shape))
    if new is None:
        new = g.one("const", shape=shape, dtype=v.type.dtype, value=1)
    return g.one("scatter_update", v, g.reshaped(new, shape), rows)


@step(1)
def source(g: Shaper) -> Var | None:
    return g.input(TensorType(g.rng.choice(g.dtypes), g.shape(1, 3)), Slot())


ROWS: tuple[Step, ...] = (over_own_rows, over_own_rows, reshape, binary)
PRODUCTS: tuple[Step, ...] = (*ROWS, matmul, matmul, attention, transpose, unary, window)


def shaped_graph(
    rng: Random,
    *,
    steps: int = 10,
    dtypes: tuple[str, ...] = ("f32",),
    only: tuple[Step, ...] = (),
    is_wide: bool = False,
) -> Graph:
    """A graph of so many steps, each one eqn or a few, of every kind or `only` of these; one to
    three outputs, the last value among them; up to two States, which get new values where one of
    their type was made. With `is_wide` values have up to 16384 elements, and axes pass groups of
    lanes."""
    g = Shaper(rng, dtypes, WIDE_EXTENTS, 1 << 14) if is_wide else Shaper(rng, dtypes)
    for _ in range(rng.randint(1, 3)):
        storage = rng.choice((Slot(), Slot(), Weight()))
        g.keep(g.input(TensorType(rng.choice(dtypes), g.shape(1, 4)), storage))
    states = [
        g.input(TensorType(rng.choice(dtypes), g.shape(1, 3)), State())
        for _ in range(rng.choice((0, 0, 1, 2)))
    ]
    for v in states:
        g.keep(v)
    for _ in range(steps):
        g.keep(rng.choice(only or STEPS)(g))
    pairs = [
        (before, g.vars[-1 - vars_back])
        for before in states
        for vars_back in [_latest(g, before.type)]
        if vars_back is not None
    ]
    many = min(len(g.vars), rng.randint(0, 2))
    return g.build.graph((g.vars[-1], *rng.sample(g.vars, many)), tuple(pairs))


def _latest(g: Shaper, type: TensorType) -> int | None:
    found = [n for n, v in enumerate(reversed(g.vars)) if v.type == type]
    return found[0] if found else None
