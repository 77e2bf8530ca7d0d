"""A compile compared with its own source: the oracle runs both graphs on drawn inputs and on edges.

The inputs: numbers as they come; every integer at the low end of its range, and at the high end (a
length of 1 and of Lk, the first and the last position); additive masks of -inf and -1e9 with a row
that is hidden whole; and, for attention that a length bounds, NaN in every row past it and in every
slot that no live key names, which may not change a result. Both graphs run in f64, so that only
what the passes changed shows: scales and sums that are reassociated, numbers rounded to f32.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from poot.errors import PassError, SlotMapError
from poot.ir.dtypes import DTYPES, is_float
from poot.ir.graph import Const, Eqn, Graph, Input, Slot, Var, Weight
from poot.ir.walk import producers, users
from poot.ops.expand import expand_all
from poot.oracle import Result, run
from poot.passes.dce import dce
from poot.slots import WRITE_MAP, ForwardSlotMap

LOG = logging.getLogger("poot")
Feed = dict[str, object]
# Numbers of an op are f32, and sums are taken in another order: the share of the largest magnitude.
_WITHIN = 4e-6
_UPDATES = ("dynamic_update_slice", "scatter_update")
_MOST_DISTINCT = 1 << 20
_FREE = (0, 8)  # integers of which nothing is declared


@dataclass(frozen=True, slots=True)
class Worst:
    """The element that is furthest off. `ulps` counts places of the result's dtype at `want`."""

    name: str
    index: tuple[int, ...]
    got: float
    want: float
    ulps: float

    def __str__(self) -> str:
        at = ",".join(map(str, self.index))
        return f"{self.name}[{at}] is {self.got!r}, not {self.want!r}: off by {self.ulps:.3g} ulp"


def check_compiled(source: Graph, final: Graph, seed: int = 0) -> None:
    """Raises PassError, with the worst element, where the passes' graph means something else than
    the source on one of the inputs. Both have the same inputs and states. A draw that names a row
    of an update twice is left out; where that leaves none, a warning says so."""
    flat, ran = expand_all(final, ("region",)), 0
    for name, draw in _DRAWS.items():
        feed = draw(flat, np.random.default_rng(seed))
        want = _taken(source, feed) if feed is not None else None
        if feed is not None and want is not None:
            _compare(source, want, run(final, feed, f64=True), name)
            ran += 1
    if not ran:
        LOG.warning("not checked: no drawn input names the rows of its updates once each")
        return
    poisoned = poisoned_feed(flat, np.random.default_rng(seed))
    if poisoned is not None and _taken(final, poisoned[0]) is not None:
        want, got = (run(final, each, f64=True) for each in poisoned)
        _compare(source, _outputs(want), _outputs(got), "NaN in what no length reaches")


def _taken(graph: Graph, feed: Feed) -> Result | None:
    """What the graph gives, or None where the drawn rows of an update are not once each: then they
    are no inputs."""
    try:
        return run(graph, feed, f64=True)
    except SlotMapError:
        return None


def _outputs(result: Result) -> Result:
    """Outputs alone: States hold what was put there."""
    return Result(result.outputs, {}, ())


def _compare(source: Graph, want: Result, got: Result, feed: str) -> None:
    dtypes = {i.name: i.var.type.dtype for i in source.inputs}
    pairs = [
        (f"output {n}", v.type.dtype, x, y)
        for n, (v, x, y) in enumerate(zip(source.outputs, want.outputs, got.outputs, strict=True))
    ]
    pairs += [(f"state {n}", dtypes[n], x, got.states[n]) for n, x in want.states.items()]
    for name, dtype, x, y in pairs:
        worst = worst_of(name, dtype, y, x)
        if worst is not None:
            raise PassError(f"the compiled graph differs from its source on {feed}: {worst}")
    held = [[_holds(w) for w in r.witnesses] for r in (want, got)]
    if held[0] != held[1]:
        raise PassError(f"guards that held in the source are {held[0]}, not {held[1]}, on {feed}")


def _holds(witness: np.ndarray) -> bool:
    """Whether a guard held: of a record of failures, whether its count is 0."""
    return bool(witness.all()) if witness.dtype == np.bool_ else int(witness.ravel()[0]) == 0


def worst_of(name: str, dtype: str, got: np.ndarray, want: np.ndarray) -> Worst | None:
    """The element that is furthest off, or None where all are near enough: equal integers, NaN for
    NaN, equal infinities, and else a difference of at most 4e-6 of the largest magnitude or 1."""
    x, y = want.astype(np.float64), got.astype(np.float64)
    finite = np.abs(x)[np.isfinite(x)]
    within = _WITHIN * max(1.0, float(finite.max(initial=0.0))) if is_float(dtype) else 0.0
    with np.errstate(all="ignore"):
        off = np.abs(y - x)
        off = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, off)
        off = np.where(np.isnan(off), np.inf, off)
    if not off.size or off.max() <= within:
        return None
    at = tuple(int(n) for n in np.unravel_index(int(off.argmax()), off.shape))
    return Worst(name, at, float(y[at]), float(x[at]), float(off[at]) / _ulp(dtype, float(x[at])))


def _ulp(dtype: str, at: float) -> float:
    """The distance of neighbours of a dtype at a number; 1 of an integer's."""
    if not is_float(dtype) or not np.isfinite(at):
        return 1.0
    held = DTYPES[dtype].numpy.type(at)
    return abs(float(np.nextafter(held, held.dtype.type(np.inf))) - float(held)) or 1.0


def _drawn(graph: Graph, rng: np.random.Generator, pick: Callable[[int, int], int | None]) -> Feed:
    return {i.name: _array(i, rng, pick) for i in graph.inputs if not isinstance(i.storage, Const)}


def _array(i: Input, rng: np.random.Generator, pick: Callable[[int, int], int | None]) -> object:
    """An array for an input. `pick` gives one integer of lo..hi-1 for all, or None to draw each."""
    type, held = i.var.type, DTYPES[i.var.type.dtype].numpy
    limits = i.storage.range if isinstance(i.storage, Slot) else None
    if isinstance(i.storage, Slot) and i.storage.kind == WRITE_MAP:
        pool = limits[1] if limits else type.elems
        rows = rng.permutation(max(pool, type.elems))[: type.elems]
        return ForwardSlotMap(np.where(rows < pool, rows, -1), pool)
    if is_float(type.dtype):
        return rng.standard_normal(type.shape).astype(held)
    if type.dtype == "bool":
        return rng.random(type.shape) < 0.5
    lo, hi = limits or ((0, 256) if isinstance(i.storage, Weight) else _FREE)
    one = pick(lo, hi)
    if one is not None:
        return np.full(type.shape, one).astype(held)
    if type.elems <= hi - lo <= _MOST_DISTINCT:  # each once, so that they may be rows of an update
        return (lo + rng.permutation(hi - lo)[: type.elems].reshape(type.shape)).astype(held)
    return rng.integers(lo, hi, type.shape).astype(held)


def _masked(graph: Graph, rng: np.random.Generator) -> Feed | None:
    """Inputs that attention adds to its scores, with -inf and -1e9 in them and a row of nothing
    else; None where there is no such input."""
    feed = _drawn(graph, rng, lambda lo, hi: None)
    names = {i.var.id: i.name for i in graph.inputs if not isinstance(i.storage, Const)}
    found = False
    for eqn in _attentions(graph):
        mask = dict(zip(_operands(eqn), eqn.ins, strict=True)).get("mask")
        if mask is None or mask.id not in names or mask.type.dtype == "bool":
            continue
        found = True
        plane = np.array(feed[names[mask.id]]).astype(np.float32)
        plane[rng.random(plane.shape) < 0.3] = -np.inf
        plane[rng.random(plane.shape) < 0.3] = -1e9
        plane[..., -1, :] = -np.inf
        with np.errstate(over="ignore"):
            feed[names[mask.id]] = plane.astype(DTYPES[mask.type.dtype].numpy)
    return feed if found else None


_DRAWS: dict[str, Callable[[Graph, np.random.Generator], Feed | None]] = {
    "drawn inputs": lambda g, rng: _drawn(g, rng, lambda lo, hi: None),
    "integers at their least": lambda g, rng: _drawn(g, rng, lambda lo, hi: lo),
    "integers at their most": lambda g, rng: _drawn(g, rng, lambda lo, hi: hi - 1),
    "masks of -inf and -1e9": _masked,
}


def _attentions(graph: Graph) -> list[Eqn]:
    return [e for e in graph.eqns if e.op in ("attention", "selected_attention")]


def _operands(eqn: Eqn) -> tuple[str, ...]:
    return cast("tuple[str, ...]", eqn.attr("operands"))  # the op's rule has checked it


def poisoned_feed(graph: Graph, rng: np.random.Generator) -> tuple[Feed, Feed] | None:
    """(inputs, the same with NaN in each key and value row that no length reaches), for attention
    over inputs, as they are or updated in the step, that nothing else reads; None without any."""
    clean = _drawn(graph, rng, lambda lo, hi: None)
    inputs = {i.var.id: i.name for i in graph.inputs if not isinstance(i.storage, Const)}
    readers, made_by, feed = users(graph), producers(graph), dict(clean)
    for eqn in _attentions(graph):
        at = dict(zip(_operands(eqn), eqn.ins, strict=True))
        if "len" not in at:
            continue
        dead = _dead(graph, clean, at)
        for name in ("k", "v"):
            x, is_own = at[name], True
            while x.id in made_by and made_by[x.id].op in _UPDATES:
                is_own = is_own and len(readers[x.id]) == 1
                x = made_by[x.id].ins[0]
            if x.id in inputs and len(readers[x.id]) == 1 and is_own:
                rows = np.array(feed[inputs[x.id]])
                (rows if "read" in at else rows.swapaxes(1, 2))[dead] = np.nan
                feed[inputs[x.id]] = rows
    changed = any(feed[name] is not clean[name] for name in feed)
    return (clean, feed) if changed else None


def _dead(graph: Graph, feed: Feed, at: Mapping[str, Var]) -> np.ndarray:
    """Of dense keys bool [B,Lk], of a pool bool [S]: the rows that no live key is."""
    wanted = (at["len"], *([at["read"]] if "read" in at else []))
    part = dce(replace(graph, outputs=wanted, states=(), validations=(), tree=None))
    lengths, *maps = run(
        part, {i.name: feed[i.name] for i in part.inputs if i.name in feed}
    ).outputs
    keys = maps[0].shape[1] if maps else at["k"].type.shape[2]
    live = np.arange(keys) < lengths[:, None]
    if not maps:
        return ~live
    dead = np.ones(at["k"].type.shape[0], bool)
    dead[maps[0][live]] = False
    return dead
