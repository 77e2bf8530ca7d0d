"""Random graphs over every primitive, and inputs for any graph, to try passes and targets on.

A graph comes from a `random.Random`, so a seed or hypothesis can draw it: `random_graph(Random(7))`
or `@given(graphs())`. Values stay small: mostly 4 axes, at most 512 elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import numpy as np
from hypothesis import strategies as st

from poot.ir.build import Builder
from poot.ir.dtypes import DTYPES, is_float, is_integer
from poot.ir.graph import Const, Graph, Slot, State, TensorType, Var, Weight
from poot.ir.rules.elementwise import BINARY, BITWISE, COMPARE, SHIFT, UNARY_FLOAT
from poot.slots import WRITE_MAP, ForwardSlotMap

FLOATS = ("f32", "f16", "bf16")
_MOST_ELEMS = 512


class Grower:
    """A graph under way: what it holds so far, and how to draw from it."""

    def __init__(
        self, rng: Random, dtypes: tuple[str, ...], extents: tuple[int, ...], is_whole: bool
    ) -> None:
        self.rng = rng
        self.dtypes = dtypes
        self.extents = extents
        self.is_whole = is_whole
        self.build = Builder()
        self.vars: list[Var] = []
        self.states: list[Var] = []

    def emit(self, op: str, *ins: Var, **attrs: object) -> tuple[Var, ...]:
        outs = self.build.emit(op, *ins, loc=f"random.py:{len(self.build.eqns) + 1}", **attrs)
        self.vars.extend(v for v in outs if v.type.elems <= _MOST_ELEMS)
        return outs

    def pick(self, claim: Callable[[TensorType], bool]) -> Var | None:
        """A value that claim holds for; a late one more often."""
        found = [v for v in self.vars if claim(v.type)]
        if not found:
            return None
        return found[-1 - int(len(found) * self.rng.random() ** 2)]

    def shape(self, least: int = 0, most: int = 4) -> tuple[int, ...]:
        rank = self.rng.randint(least, most)
        return tuple(self.rng.choice(self.extents) for _ in range(rank))

    def constant(self, dtype: str, shape: tuple[int, ...]) -> Var:
        """A `const` eqn, or an array of the trace."""
        kind = DTYPES[dtype].kind
        if self.rng.random() < 0.3:
            data = draw_array(
                TensorType(dtype, shape), np.random.default_rng(self.rng.getrandbits(32))
            )
            if self.is_whole:
                data = whole(data)
            name = f"c{self.build.next_id}"
            var = self.build.input(TensorType(dtype, shape), name, Const(data.tobytes()))
            self.vars.append(var)
            return var
        value: object
        if kind == "float":
            exact = (0.0, 1.0, -3.0, 2.0, -math.inf)
            value = self.rng.choice(exact if self.is_whole else (*exact, -0.5, 0.1, -1e9))
        elif kind == "bool":
            value = self.rng.random() < 0.5
        else:
            value = self.rng.choice((0, 1, 2, 3, 7))
        return self.emit("const", shape=shape, dtype=dtype, value=value)[0]

    def partner(self, x: Var) -> Var:
        """A value of x's dtype that broadcasts with x."""

        def fits(t: TensorType) -> bool:
            if t.dtype != x.type.dtype:
                return False
            pairs = zip(reversed(t.shape), reversed(x.type.shape), strict=False)
            ok = all(a == b or 1 in (a, b) for a, b in pairs)
            return ok and math.prod(np.broadcast_shapes(t.shape, x.type.shape)) <= _MOST_ELEMS

        found = self.pick(fits) if self.rng.random() < 0.8 else None
        shape = tuple(n if self.rng.random() < 0.6 else 1 for n in x.type.shape)
        return found or self.constant(x.type.dtype, shape)


Step = Callable[[Grower], object]
STEPS: dict[str, Step] = {}


def _step(*names: str) -> Callable[[Callable[[Grower, str], object]], None]:
    def add(fn: Callable[[Grower, str], object]) -> None:
        for name in names:
            STEPS[name] = lambda g, name=name: fn(g, name)

    return lambda fn: add(fn)


def _number(t: TensorType) -> bool:
    return is_float(t.dtype) or t.dtype in ("i32", "u32")


@_step(*UNARY_FLOAT)
def _unary(g: Grower, op: str) -> object:
    whole = op in ("neg", "abs")
    x = g.pick(lambda t: is_float(t.dtype) or (whole and t.dtype == "i32"))
    return x and g.emit(op, x)


@_step(*BINARY, *COMPARE)
def _binary(g: Grower, op: str) -> object:
    x = g.pick(_number)
    return x and g.emit(op, *((x, g.partner(x)) if g.rng.random() < 0.7 else (g.partner(x), x)))


@_step(*BITWISE, *SHIFT)
def _bits(g: Grower, op: str) -> object:
    allowed = ("i32", "u32", "bool") if op in BITWISE else ("i32", "u32")
    x = g.pick(lambda t: t.dtype in allowed)
    return x and g.emit(op, x, g.partner(x))


@_step("not")
def _not(g: Grower, op: str) -> object:
    x = g.pick(lambda t: t.dtype in ("i32", "u32", "bool"))
    return x and g.emit(op, x)


@_step("select")
def _select(g: Grower, op: str) -> object:
    x = g.pick(lambda t: True)
    if x is None:
        return None
    shape = tuple(n if g.rng.random() < 0.7 else 1 for n in x.type.shape)
    cond = g.pick(lambda t: t.dtype == "bool" and t.shape == x.type.shape)
    return g.emit(op, cond or g.constant("bool", shape), x, g.partner(x)) if cond or shape else None


@_step("cast")
def _cast(g: Grower, op: str) -> object:
    x = g.pick(lambda t: True)
    return x and g.emit(op, x, dtype=g.rng.choice((*g.dtypes, "i32", "u32", "bool", "i8", "u8")))


@_step("bitcast")
def _bitcast(g: Grower, op: str) -> object:
    x = g.pick(lambda t: t.dtype != "bool")
    if x is None:
        return None
    size = DTYPES[x.type.dtype].nbytes
    names = [n for n, d in DTYPES.items() if d.nbytes == size and n != "bool"]
    return g.emit(op, x, dtype=g.rng.choice(names))


@_step("index_guard")
def _index_guard(g: Grower, op: str) -> object:
    x = g.pick(lambda t: t.dtype == "i32")
    if x is None:
        return None
    lo = g.rng.randint(-3, 2)
    _, witness = g.emit(op, x, lo=lo, hi=lo + g.rng.randint(1, 8))
    if g.rng.random() < 0.5:
        g.build.validations.append(witness)
    return witness


@_step("reshape")
def _reshape(g: Grower, op: str) -> object:
    x = g.pick(lambda t: True)
    if x is None:
        return None
    shape, left = list[int](), x.type.elems
    for n in (2, 3, 4, 5, 1):
        if left and left % n == 0 and g.rng.random() < 0.5 and len(shape) < 3:
            shape.append(n)
            left //= n
    shape.insert(g.rng.randint(0, len(shape)), left)
    return g.emit(op, x, shape=tuple(shape))


@_step("broadcast")
def _broadcast(g: Grower, op: str) -> object:
    x = g.pick(lambda t: len(t.shape) <= 3 and t.elems <= 100)
    if x is None:
        return None
    grown = tuple(g.rng.randint(1, 3) if n == 1 else n for n in x.type.shape)
    more = g.shape(0, 4 - len(grown)) if g.rng.random() < 0.5 else ()
    shape = more + grown
    return g.emit(op, x, shape=shape) if math.prod(shape) <= _MOST_ELEMS else None


@_step("transpose")
def _transpose(g: Grower, op: str) -> object:
    x = g.pick(lambda t: len(t.shape) >= 2)
    return x and g.emit(
        op, x, perm=tuple(g.rng.sample(range(len(x.type.shape)), len(x.type.shape)))
    )


@_step("slice")
def _slice(g: Grower, op: str) -> object:
    x = g.pick(lambda t: len(t.shape) >= 1)
    if x is None:
        return None
    start = tuple(g.rng.randint(0, max(0, n - 1)) for n in x.type.shape)
    stop = tuple(g.rng.randint(min(a + 1, n), n) for a, n in zip(start, x.type.shape, strict=True))
    return g.emit(op, x, start=start, stop=stop, step=tuple(g.rng.choice((1, 1, 2)) for _ in start))


@_step("concat")
def _concat(g: Grower, op: str) -> object:
    x = g.pick(lambda t: len(t.shape) >= 1 and t.elems <= 200)
    if x is None:
        return None
    axis = g.rng.randrange(len(x.type.shape))

    def alike(t: TensorType) -> bool:
        rest = t.shape[:axis] + t.shape[axis + 1 :]
        same = rest == x.type.shape[:axis] + x.type.shape[axis + 1 :]
        return (
            t.dtype == x.type.dtype and len(t.shape) == len(x.type.shape) and same and t.elems < 200
        )

    others = [g.pick(alike) or x for _ in range(g.rng.randint(1, 2))]
    return g.emit(op, x, *others, axis=axis)


@_step("iota")
def _iota(g: Grower, op: str) -> object:
    shape = g.shape(1, 3)
    axis = g.rng.randrange(len(shape))
    return g.emit(op, shape=shape, axis=axis, dtype=g.rng.choice(("i32", "u32")))


@_step("const")
def _const(g: Grower, op: str) -> object:
    return g.constant(g.rng.choice((*g.dtypes, "i32", "u32", "bool")), g.shape(0, 3))


@_step("reduce")
def _reduce(g: Grower, op: str) -> object:
    x = g.pick(lambda t: _number(t) and len(t.shape) >= 1 and t.elems > 0)
    if x is None:
        return None
    rank = len(x.type.shape)
    axis = tuple(sorted(g.rng.sample(range(rank), g.rng.randint(1, rank))))
    kind = g.rng.choice(("sum", "max", "min"))
    return g.emit(op, x, kind=kind, axis=axis, keepdim=g.rng.random() < 0.5)


@_step("argmax")
def _argmax(g: Grower, op: str) -> object:
    x = g.pick(lambda t: len(t.shape) >= 1 and min(t.shape) > 0)
    return x and g.emit(op, x, axis=g.rng.randrange(len(x.type.shape)))


@_step("topk")
def _topk(g: Grower, op: str) -> object:
    x = g.pick(lambda t: len(t.shape) >= 1 and t.shape[-1] > 0 and t.dtype != "bool")
    return x and g.emit(op, x, k=g.rng.randint(1, x.type.shape[-1]))


@_step("matmul")
def _matmul(g: Grower, op: str) -> object:
    x = g.pick(lambda t: is_float(t.dtype) and len(t.shape) >= 2)
    if x is None:
        return None
    y = g.pick(
        lambda t: t.dtype == x.type.dtype and len(t.shape) == 2 and t.shape[0] == x.type.shape[-1]
    )
    if y is None:
        y = g.constant(x.type.dtype, (x.type.shape[-1], g.rng.randint(1, 4)))
    return g.emit(op, x, y)


@_step("gather")
def _gather(g: Grower, op: str) -> object:
    x = g.pick(lambda t: len(t.shape) >= 1 and min(t.shape) > 0)
    index = g.pick(lambda t: t.dtype == "i32" and len(t.shape) <= 2 and t.elems <= 16)
    if x is None or index is None or len(x.type.shape) + len(index.type.shape) > 5:
        return None
    return g.emit(op, x, index, axis=g.rng.randrange(len(x.type.shape)))


def _start(g: Grower, x: Var, axis: int) -> Var:
    shapes = ((), x.type.shape[:1]) if axis > 0 else ((),)
    found = g.pick(lambda t: t.dtype == "i32" and t.shape in shapes)
    return found or g.constant("i32", g.rng.choice(shapes))


@_step("dynamic_slice")
def _dynamic_slice(g: Grower, op: str) -> object:
    x = g.pick(lambda t: len(t.shape) >= 1)
    if x is None:
        return None
    axis = g.rng.randrange(len(x.type.shape))
    size = g.rng.randint(min(1, x.type.shape[axis]), x.type.shape[axis])
    return g.emit(op, x, _start(g, x, axis), axis=axis, size=size)


@_step("dynamic_update_slice")
def _dynamic_update_slice(g: Grower, op: str) -> object:
    x = g.pick(lambda t: len(t.shape) >= 1)
    if x is None:
        return None
    axis = g.rng.randrange(len(x.type.shape))
    n = g.rng.randint(min(1, x.type.shape[axis]), x.type.shape[axis])
    shape = (*x.type.shape[:axis], n, *x.type.shape[axis + 1 :])
    update = g.pick(lambda t: t == TensorType(x.type.dtype, shape))
    return g.emit(op, x, update or g.constant(x.type.dtype, shape), _start(g, x, axis), axis=axis)


@_step("scatter_update")
def _scatter_update(g: Grower, op: str) -> object:
    x = g.pick(lambda t: len(t.shape) >= 1 and t.shape[0] > 0)
    if x is None:
        return None
    n = g.rng.randint(1, x.type.shape[0])
    slot = Slot(WRITE_MAP, (-1, x.type.shape[0]))
    rows = g.build.input(TensorType("i32", (n,)), f"write{g.build.next_id}", slot)
    update = g.constant(x.type.dtype, (n, *x.type.shape[1:]))
    return g.emit(op, x, update, rows)


# On floats that are small whole numbers every target gives these the same bits.
_ROUNDED = frozenset((*UNARY_FLOAT, "div", "rem", "bitcast")) - {"neg", "abs", "floor"}
EXACT_OPS = tuple(name for name in STEPS if name not in _ROUNDED)


def random_graph(
    rng: Random,
    *,
    eqns: int = 12,
    dtypes: tuple[str, ...] = ("f32",),
    ops: tuple[str, ...] = (),
    extents: tuple[int, ...] = (1, 2, 3, 4, 5),
    is_whole: bool = False,
) -> Graph:
    """A graph of about so many eqns over floats of these dtypes, i32, u32 and bool, its inputs'
    axes of these extents, its constants whole numbers where asked.

    With ops, only those, and the constants they need. It has one to four inputs of each kind at
    random, a new value for most States, one to three outputs, the last value among them."""
    g = Grower(rng, dtypes, extents, is_whole)
    for n in range(rng.randint(1, 4)):
        _random_input(g, n)
    names = ops or tuple(STEPS)
    for _ in range(eqns):
        STEPS[rng.choice(names)](g)
    if not g.build.eqns:
        g.constant("f32", (2,))
    pairs: list[tuple[Var, Var]] = []
    for before in g.states:
        after = g.pick(lambda t, before=before: t == before.type)
        if after is not None and rng.random() < 0.8:
            pairs.append((before, after))
    outputs = [g.vars[-1], *rng.sample(g.vars, min(len(g.vars), rng.randint(0, 2)))]
    return g.build.graph(tuple(outputs), tuple(pairs))


def _random_input(g: Grower, n: int) -> None:
    rng = g.rng
    kind = rng.choice(("float", "float", "weight", "state", "index", "whole"))
    name = rng.choice((f"v{g.build.next_id}", f"in.{n}", f"w {n} ü"))
    dtype = rng.choice(g.dtypes)
    match kind:
        case "weight":
            var = g.build.input(TensorType(dtype, g.shape(1)), name, Weight())
        case "state":
            var = g.build.input(TensorType(dtype, g.shape(1)), name, State())
            g.states.append(var)
        case "index":
            lo = rng.randint(-2, 2)
            slot = Slot(rng.choice(("user", "pos", "two words")), (lo, lo + rng.randint(1, 9)))
            var = g.build.input(TensorType("i32", g.shape(0, 1)), name, slot)
        case "whole":
            whole = rng.choice(("i32", "u32", "bool"))
            var = g.build.input(TensorType(whole, g.shape()), name, Slot())
        case _:
            var = g.build.input(TensorType(dtype, g.shape()), name, Slot())
    g.vars.append(var)


def graphs(**options: object) -> st.SearchStrategy[Graph]:
    """Random graphs for hypothesis, with random_graph's options."""
    return st.randoms(use_true_random=False).map(lambda rng: random_graph(rng, **options))


def whole(x: np.ndarray) -> np.ndarray:
    """Floats as whole numbers near their doubles; what else there is as it is."""
    is_float_array = x.dtype.kind in "fV"
    return np.round(x.astype(np.float64) * 2).astype(x.dtype) if is_float_array else x


EDGE_FLOATS = (math.nan, math.inf, -math.inf, -0.0, 0.0, 1e30, -1e30, 65504.0, 1e-40, 2147483648.0)
EDGE_INTS = (0, 1, -1, -(2**31), 2**31 - 1, 2**24 + 1, 31, 32)


def draw_array(
    type: TensorType,
    rng: np.random.Generator,
    limits: tuple[int, int] | None = None,
    *,
    edges: bool = False,
) -> np.ndarray:
    """Normal floats, integers in limits (hi excluded) or near 0, random bools. With edges, one
    value in four is an edge: NaN, infinities, extremes."""
    held = DTYPES[type.dtype].numpy
    if type.dtype == "bool":
        return rng.random(type.shape) < 0.5
    if is_integer(type.dtype):
        info = np.iinfo(held)
        lo, hi = limits or (max(-8, int(info.min)), 9)
        values = rng.integers(lo, hi, type.shape)
        if edges and limits is None:
            wild = np.clip(rng.choice(EDGE_INTS, type.shape), info.min, info.max)
            values = np.where(rng.random(type.shape) < 0.25, wild, values)
        return values.astype(held)
    values = rng.standard_normal(type.shape)
    if edges:
        wild = rng.choice(EDGE_FLOATS, type.shape)
        values = np.where(rng.random(type.shape) < 0.25, wild, values)
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(np.float32).astype(held)


def random_inputs(graph: Graph, seed: int, *, edges: bool = False) -> dict[str, object]:
    """An array for each Weight, State and Slot by name, inside the declared ranges; a write map
    names no slot twice."""
    rng = np.random.default_rng(seed)
    feed: dict[str, object] = {}
    for i in graph.inputs:
        match i.storage:
            case Const():
                continue
            case Slot("write_map", limits):
                n = i.var.type.elems
                pool = limits[1] if limits else n
                rows = rng.permutation(max(pool, n))[:n]
                skipped = (rng.random(n) < 0.2) | (rows >= pool)
                feed[i.name] = ForwardSlotMap(np.where(skipped, -1, rows), pool)
            case Slot(_, limits):
                feed[i.name] = draw_array(i.var.type, rng, limits, edges=edges)
            case _:
                feed[i.name] = draw_array(i.var.type, rng, edges=edges)
    return feed
