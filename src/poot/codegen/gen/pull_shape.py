"""Pull rows of the ops that move, make or address elements."""

from __future__ import annotations

import numpy as np

from poot.codegen.gen.index import Coords, Index
from poot.codegen.gen.math import nan
from poot.codegen.gen.numbers import held
from poot.codegen.gen.pull import Pull, Steps, pull_row, stretched
from poot.codegen.kir.build import U32, Val
from poot.ir.attrs import int_attr, ints_attr, number_attr
from poot.ir.dtypes import DTYPES, is_float
from poot.ir.graph import Eqn, Var


@pull_row("reshape")
def reshape(p: Pull, eqn: Eqn, n: int, coords: Coords) -> Steps:
    x = eqn.ins[0]
    value = yield x, p.indexer.reshape(coords, eqn.out.type.shape, x.type.shape)
    return value


@pull_row("broadcast")
def broadcast(p: Pull, eqn: Eqn, n: int, coords: Coords) -> Steps:
    value = yield eqn.ins[0], stretched(eqn.ins[0].type, coords)
    return value


@pull_row("transpose")
def transpose(p: Pull, eqn: Eqn, n: int, coords: Coords) -> Steps:
    perm = ints_attr(eqn, "perm")
    own = [coords[0]] * len(perm) if perm else []
    for axis, source in enumerate(perm):
        own[source] = coords[axis]
    value = yield eqn.ins[0], tuple(own)
    return value


@pull_row("slice")
def slice_(p: Pull, eqn: Eqn, n: int, coords: Coords) -> Steps:
    start, step = ints_attr(eqn, "start"), ints_attr(eqn, "step")
    own = tuple(c * s + a for c, a, s in zip(coords, start, step, strict=True))
    value = yield eqn.ins[0], own
    return value


@pull_row("concat")
def concat(p: Pull, eqn: Eqn, n: int, coords: Coords) -> Steps:
    """The operand that holds the index; where that is data, each at a clamped index."""
    axis = int_attr(eqn, "axis")
    at, offset = coords[axis], 0
    parts: list[tuple[Var, int]] = []
    for x in eqn.ins:
        extent = x.type.shape[axis]
        if extent and at.low < offset + extent and at.high >= offset:
            parts.append((x, offset))
        offset += extent
    chosen: Val | None = None
    for x, first in reversed(parts):
        extent = x.type.shape[axis]
        own = at + -first
        if own.low < 0 or own.high >= extent:
            own = p.indexer.clamp(p.indexer.value(own), extent)
        value = yield x, (*coords[:axis], own, *coords[axis + 1 :])
        chosen = (
            value
            if chosen is None
            else p.k.select(p.indexer.below(at, first + extent), value, chosen)
        )
    assert chosen is not None
    return chosen


@pull_row("iota")
def iota(p: Pull, eqn: Eqn, n: int, coords: Coords) -> Steps:
    axis = int_attr(eqn, "axis")
    at = p.indexer.value(coords[axis])
    yield from ()
    return p.k.bitcast(at, held(eqn.out.type.dtype))


@pull_row("const")
def const(p: Pull, eqn: Eqn, n: int, coords: Coords) -> Steps:
    dtype, value = eqn.out.type.dtype, number_attr(eqn, "value")
    yield from ()
    if is_float(dtype):
        with np.errstate(over="ignore"):  # what the dtype doesn't reach is infinite
            exact = float(np.asarray(value, np.float32).astype(DTYPES[dtype].numpy))
        return nan(p.k) if exact != exact else p.k.lit(exact)
    return p.k.lit(bool(value) if dtype == "bool" else int(value), held(dtype))


@pull_row("gather")
def gather(p: Pull, eqn: Eqn, n: int, coords: Coords) -> Steps:
    x, index = eqn.ins
    axis = int_attr(eqn, "axis")
    rank = len(index.type.shape)
    found = yield index, coords[axis : axis + rank]
    row = p.indexer.clamp(found, x.type.shape[axis])
    value = yield x, (*coords[:axis], row, *coords[axis + rank :])
    return value


def start_coords(start: Var, coords: Coords) -> Coords:
    """Where a dynamic slice's start is asked for: it is one number, or one a row."""
    return coords[: len(start.type.shape)]


@pull_row("dynamic_slice")
def dynamic_slice(p: Pull, eqn: Eqn, n: int, coords: Coords) -> Steps:
    x, start = eqn.ins
    axis, size = int_attr(eqn, "axis"), int_attr(eqn, "size")
    first = yield start, start_coords(start, coords)
    own = p.indexer.clamp(first, x.type.shape[axis] - size + 1) + coords[axis]
    value = yield x, (*coords[:axis], own, *coords[axis + 1 :])
    return value


@pull_row("dynamic_update_slice")
def dynamic_update_slice(p: Pull, eqn: Eqn, n: int, coords: Coords) -> Steps:
    """The whole result, element by element, where it is not done in place."""
    k, ix = p.k, p.indexer
    x, update, start = eqn.ins
    axis = int_attr(eqn, "axis")
    size = update.type.shape[axis]
    old = yield x, coords
    if update.type.elems == 0:
        return old
    found = yield start, start_coords(start, coords)
    first = ix.clamp(found, x.type.shape[axis] - size + 1)
    place: Index = coords[axis] - first
    at = ix.value(place)
    is_new = (k.bitcast(at, U32)) < size
    new = yield update, (*coords[:axis], ix.clamp(at, size), *coords[axis + 1 :])
    return k.select(is_new, new, old)
