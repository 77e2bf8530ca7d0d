"""A random graph under way whose values keep changing shape, inputs for it, and how its results are
compared.

Values stay near whole numbers of small size, so that sums are exact in any order. What a rounding
may move ("rough": quotients, exponentials, roots) never decides an index, a comparison or a rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np

from poot.ir.build import Builder
from poot.ir.graph import Graph, Slot, State, TensorType, Var, Weight
from poot.oracle import Result
from poot.slots import ForwardSlotMap
from tests.support.check import plain
from tests.support.graphs import draw_array

EXTENTS = (1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 12)
WIDE_EXTENTS = (1, 2, 3, 5, 16, 33, 64, 100, 130, 260)
MOST_VALUE = 16.0
FLOATS = ("f32", "f16", "bf16")


@dataclass(slots=True)
class Shaper:
    """A graph under way. `rough` holds the ids of what a rounding may move; `big` bounds what each
    value's magnitude is at most."""

    rng: Random
    dtypes: tuple[str, ...]
    extents: tuple[int, ...] = EXTENTS
    most: int = 512  # elements of a value
    build: Builder = field(default_factory=Builder)
    vars: list[Var] = field(default_factory=list[Var])
    rough: set[int] = field(default_factory=set[int])
    big: dict[int, float] = field(default_factory=dict[int, float])
    lines: int = 0

    def one(self, op: str, *ins: Var, rough: bool = False, **attrs: object) -> Var:
        """One eqn at a line of its own."""
        self.lines += 1
        out = self.build.emit(op, *ins, loc=f"shaped.py:{self.lines}", **attrs)[0]
        if rough or any(v.id in self.rough for v in ins):
            self.rough.add(out.id)
        self.big[out.id] = max((self.big.get(v.id, 1.0) for v in ins), default=1.0)
        return out

    def keep(self, v: Var | None) -> Var | None:
        """The value may be drawn from now on."""
        if v is not None and 0 < v.type.elems <= self.most:
            self.vars.append(v)
        return v

    def input(self, type: TensorType, storage: Slot | Weight | State) -> Var:
        v = self.build.input(type, f"x{self.build.next_id}", storage)
        self.big[v.id] = 9.0
        return v

    def pick(self, claim: Callable[[Var], bool]) -> Var | None:
        """A value that claim holds for, a late one more often."""
        found = [v for v in self.vars if claim(v)]
        return found[-1 - int(len(found) * self.rng.random() ** 2)] if found else None

    def floats(self, *, rank: int = 0) -> Var | None:
        return self.pick(lambda v: v.type.dtype in FLOATS and len(v.type.shape) >= rank)

    def shape(self, least: int, most: int) -> tuple[int, ...]:
        while True:
            shape = tuple(
                self.rng.choice(self.extents) for _ in range(self.rng.randint(least, most))
            )
            if math.prod(shape) <= self.most:
                return shape

    def small(self, v: Var) -> Var:
        """The value, held within what sums of it stay exact for."""
        if self.big[v.id] <= MOST_VALUE or v.type.dtype not in FLOATS:
            return v
        for op, bound in (("min", MOST_VALUE), ("max", -MOST_VALUE)):
            v = self.one(op, v, self.one("const", shape=(), dtype=v.type.dtype, value=bound))
        self.big[v.id] = MOST_VALUE
        return v

    def number(self, like: Var, value: float) -> Var:
        shape = self.rng.choice(((), (1,) * len(like.type.shape)))
        held = value if like.type.dtype in FLOATS else int(value)
        return self.one("const", shape=shape, dtype=like.type.dtype, value=held)

    def reshaped(self, v: Var, shape: tuple[int, ...]) -> Var:
        return v if v.type.shape == shape else self.one("reshape", v, shape=shape)


def factored(rng: Random, elems: int, most: int = 4) -> tuple[int, ...]:
    """A shape of so many elements, axes of 1 among them."""
    shape: list[int] = []
    left = elems
    while left > 1 and len(shape) < most - 1:
        found = [d for d in range(2, left + 1) if left % d == 0]
        part = rng.choice(found)
        shape.append(part)
        left //= part
    shape.append(left)
    rng.shuffle(shape)
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        shape.insert(rng.randint(0, len(shape)), 1)
    return tuple(shape)


def _neighbour(rng: Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with one axis split, or two joined."""
    wide = [i for i, n in enumerate(shape) if any(n % d == 0 for d in range(2, n))]
    if wide and (rng.random() < 0.5 or len(shape) < 2):
        at = rng.choice(wide)
        part = rng.choice([d for d in range(2, shape[at]) if shape[at] % d == 0])
        return (*shape[:at], part, shape[at] // part, *shape[at + 1 :])
    if len(shape) < 2:
        return (*shape, 1)
    at = rng.randrange(len(shape) - 1)
    return (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])


def other_shape(g: Shaper, v: Var) -> tuple[int, ...]:
    """A shape for the value's elements: one that another value has, a neighbour, or any."""
    same = [o.type.shape for o in g.vars if o.type.elems == v.type.elems]
    kind = g.rng.random()
    if kind < 0.4 and same:
        return g.rng.choice(same)
    return _neighbour(g.rng, v.type.shape) if kind < 0.7 else factored(g.rng, v.type.elems)


def partner(g: Shaper, v: Var) -> Var:
    """A value that broadcasts with v to v's shape: another value reshaped, a row of it, itself."""

    def fits(o: Var) -> bool:
        if o.type.dtype != v.type.dtype or len(o.type.shape) > len(v.type.shape):
            return False
        pairs = zip(reversed(o.type.shape), reversed(v.type.shape), strict=False)
        return all(a in (1, b) for a, b in pairs)

    kind = g.rng.random()
    if kind < 0.3:
        same = g.pick(lambda o: o.type.dtype == v.type.dtype and o.type.elems == v.type.elems)
        return g.reshaped(same or v, v.type.shape)
    found = g.pick(fits) if kind < 0.8 else None
    return found or g.number(v, g.rng.choice((1.0, 2.0, -3.0)))


def shaped_inputs(graph: Graph, seed: int) -> dict[str, object]:
    """Small whole numbers for each Weight, State and Slot, inside declared ranges."""
    rng = np.random.default_rng(seed)
    feed: dict[str, object] = {}
    for i in graph.inputs:
        match i.storage:
            case Slot("write_map", limits):
                n, pool = i.var.type.elems, (limits or (0, 1))[1]
                rows = rng.permutation(max(pool, n))[:n]
                feed[i.name] = ForwardSlotMap(np.where(rows >= pool, -1, rows), pool)
            case Slot(_, limits) if limits:
                feed[i.name] = draw_array(i.var.type, rng, limits)
            case _:
                whole = rng.integers(-8, 9, i.var.type.shape)
                feed[i.name] = whole.astype(draw_array(i.var.type, rng).dtype)
    return feed


_ROUGH_OPS = frozenset(("exp", "tanh", "rsqrt", "div"))
# Of the largest magnitude wanted: what roundings of rough values add up to, a few steps later.
_WITHIN = {"f32": 1e-3, "f16": 4e-2, "bf16": 3e-1}


def assert_agrees(graph: Graph, want: Result, got: Result) -> None:
    """Outputs and States agree: exactly where they are exact, else to a part of the largest
    magnitude wanted, and of 1."""
    rough = set[int]()
    for eqn in graph.eqns:
        if eqn.op in _ROUGH_OPS or any(v.id in rough for v in eqn.ins):
            rough.update(v.id for v in eqn.outs)
    names = {i.var.id: i.name for i in graph.inputs}
    pairs = [(v, x, y) for v, x, y in zip(graph.outputs, want.outputs, got.outputs, strict=True)]
    for before, after in graph.states:
        name = names[before.id]
        pairs.append((after, want.states[name], got.states[name]))
    for v, x, y in pairs:
        assert (x.dtype, x.shape) == (y.dtype, y.shape), v
        x, y = plain(x), plain(y)
        if v.id not in rough or v.type.dtype not in _WITHIN:
            np.testing.assert_array_equal(y, x, err_msg=str(v))
        else:
            within = _WITHIN[v.type.dtype] * max(1.0, float(np.abs(x).max(initial=0.0)))
            np.testing.assert_allclose(y, x, rtol=0, atol=within, err_msg=str(v))
