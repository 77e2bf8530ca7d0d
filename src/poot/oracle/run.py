"""Runs any graph in numpy: what every target's result is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from poot.errors import BindError
from poot.ir.dtypes import DTYPES, is_float
from poot.ir.graph import Const, Graph, Input, Slot, State
from poot.ir.walk import results
from poot.oracle.rows import ROWS, At, held_dtype
from poot.slots import WRITE_MAP, ForwardSlotMap, check_array, check_slot

_ANY_POOL = 2**31 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """What one step gives: outputs in order, the new value of every State by name (one without a
    pair keeps its value), and the validations in order, each true where its guard held."""

    outputs: tuple[np.ndarray, ...]
    states: dict[str, np.ndarray]
    witnesses: tuple[np.ndarray, ...]


def run(graph: Graph, feed: Mapping[str, object], *, f64: bool = False) -> Result:
    """Runs the graph on an array for each Weight and Slot by name, and for each State or zeros.

    Every result rounds to its dtype as written; 16-bit sums are held in f32. With f64, floats are
    computed and given back in float64, unrounded, from the same inputs (it takes float64 too).
    A failed guard is a false witness, not an error. Raises BindError, RangeError, SlotMapError.
    """
    given = {i.var.id: x for i, x in zip(graph.inputs, arrays_of(graph, feed, f64), strict=True)}
    fed = {id(x) for x in given.values()}
    values = evaluate(graph, given, f64)
    after = dict(graph.states)
    states = {
        i.name: _own(values[after.get(i.var, i.var).id], fed)
        for i in graph.inputs
        if isinstance(i.storage, State)
    }
    outputs = tuple(_own(values[v.id], fed) for v in graph.outputs)
    return Result(outputs, states, tuple(_own(values[v.id], fed) for v in graph.validations))


def arrays_of(graph: Graph, feed: Mapping[str, object], f64: bool) -> tuple[np.ndarray, ...]:
    """Each input's array, checked, as the oracle holds it."""
    names = {i.name for i in graph.inputs if not isinstance(i.storage, Const)}
    extra = sorted(feed.keys() - names)
    if extra:
        known = ", ".join(sorted(names))
        raise BindError(f"there is no input {extra[0]!r}; the inputs are {known}")
    return tuple(_given(i, feed, f64) for i in graph.inputs)


def evaluate(graph: Graph, given: Mapping[int, np.ndarray], f64: bool) -> dict[int, np.ndarray]:
    """The arrays of every input and result by id, views of one another where numpy makes views."""
    values = dict(given)
    with np.errstate(all="ignore"):
        _evaluate(graph, values, f64)
    return values


def _own(x: np.ndarray, fed: set[int]) -> np.ndarray:
    """x, or a copy where it is a view, or what was fed."""
    is_own = x.flags.owndata and x.flags.c_contiguous and id(x) not in fed
    return x if is_own else np.array(x, order="C")


def _given(i: Input, feed: Mapping[str, object], f64: bool) -> np.ndarray:
    """An input's array as the oracle holds it."""
    type = i.var.type
    held = held_dtype(type.dtype, f64)
    match i.storage:
        case Const(data):
            array = np.frombuffer(data, DTYPES[type.dtype].numpy).reshape(type.shape)
        case State() if i.name not in feed:
            array = np.zeros(type.shape, held)
        case _ if i.name not in feed:
            raise BindError(f"input {i.name!r} needs {type}, and nothing was given")
        case storage:
            array = _checked(i, storage, feed[i.name], f64)
    return array.astype(held, copy=False)


def _checked(i: Input, storage: object, given: object, f64: bool) -> np.ndarray:
    type = i.var.type
    if f64 and is_float(type.dtype):
        array = np.asarray(given)
        if array.dtype == np.float64 and array.shape == type.shape:
            return array
    if not isinstance(storage, Slot):
        return check_array(i, given)
    if storage.kind == WRITE_MAP and not isinstance(given, ForwardSlotMap):
        pool = storage.range[1] if storage.range else _ANY_POOL
        return check_slot(i, ForwardSlotMap(np.asarray(given), pool))
    return check_slot(i, given)


def _evaluate(graph: Graph, values: dict[int, np.ndarray], f64: bool) -> None:
    """Adds every result of the graph to values; drops the rest after their last reader."""

    def run_body(body: Graph, ins: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        inner = {i.var.id: x for i, x in zip(body.inputs, ins, strict=True)}
        _evaluate(body, inner, f64)
        return tuple(inner[v.id] for v in body.outputs)

    last = {v.id: n for n, eqn in enumerate(graph.eqns) for v in (*eqn.ins, *eqn.outs)}
    kept = {v.id for v in results(graph)} | {before.id for before, _ in graph.states}
    kept |= {i.var.id for i in graph.inputs if isinstance(i.storage, State)}
    for n, eqn in enumerate(graph.eqns):
        ins = tuple(values[v.id] for v in eqn.ins)
        at = At(tuple(v.type for v in eqn.ins), tuple(v.type for v in eqn.outs), f64, run_body)
        got = ROWS[eqn.op](at, *ins, **dict(eqn.attrs))
        arrays = got if isinstance(got, tuple) else (got,)
        for v, x in zip(eqn.outs, arrays, strict=True):
            array = np.asarray(x)
            dtype = held_dtype(v.type.dtype, f64)
            assert array.shape == v.type.shape, (eqn, array.shape)
            assert array.dtype == dtype, (eqn, array.dtype)
            values[v.id] = array
        for v in (*eqn.ins, *eqn.outs):
            if last[v.id] == n and v.id not in kept:
                values.pop(v.id, None)
