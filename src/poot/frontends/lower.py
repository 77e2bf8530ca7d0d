"""From a foreign program to a graph, by a table of rows.

Every call is tried, also those after one that can't be done: the error lists them all. A row's
result has to be of the type that the foreign program says, or the call counts as one that can't.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from poot.errors import PootError, TraceError, Unsupported, UnsupportedOps
from poot.frontends.foreign import Call, Foreign, Given, Ref, Row, Site
from poot.frontends.imported import Imported
from poot.frontends.width import wrapping
from poot.ir.dtypes import dtype_of
from poot.ir.graph import Const, Eqn, Graph, Slot, State, Storage, TensorType, Var, Weight
from poot.ir.ranges import input_interval
from poot.ir.tree import flatten
from poot.ops.array import Array, as_array
from poot.ops.guard import checked
from poot.ops.record import Recorder, located, recording, refuse
from poot.passes.dce import dce
from poot.trace import RESERVED

Values = dict[str, Array | None]


def lower(foreign: Foreign, rows: Mapping[str, Row], who: str) -> Imported:
    """The program's graph and its arrays. Raises UnsupportedOps that lists every call that has no
    row or that its row refuses, `who` being the front end's name."""
    with recording() as recorder:
        for given in foreign.givens:
            if given.name == RESERVED:
                raise TraceError(f"{who} needs inputs of names other than {RESERVED}; rename it")
        lowering = Lowering(foreign, rows, recorder)
        misses = tuple(m.unsupported for m in lowering.misses)
        if misses:
            raise UnsupportedOps(_listed(who, misses), ops=misses)
        graph = _graph(recorder, foreign, lowering.values, who)
    held = {g.name: g for g in foreign.givens if g.array is not None}
    return Imported(
        graph,
        {
            n: g.array
            for n, g in held.items()
            if isinstance(g.storage, Weight) and g.array is not None
        },
        {
            n: g.array
            for n, g in held.items()
            if isinstance(g.storage, State) and g.array is not None
        },
    )


@dataclass(frozen=True, slots=True)
class Miss:
    """A call that can't be done, and why; `is_wide` where it could be in 64 bits."""

    call: Call
    why: str
    is_wide: bool = False

    @property
    def unsupported(self) -> Unsupported:
        return Unsupported(self.call.op, self.why, self.call.loc)


class Lowering:
    """Every call of a program tried in order. `values` has an Array for each Ref's id, or None for
    one that is known but isn't held in poot's dtypes; `known` has what was taken as a constant."""

    def __init__(self, foreign: Foreign, rows: Mapping[str, Row], recorder: Recorder) -> None:
        self.rows, self.recorder, self.limits = rows, recorder, foreign.limits
        self.values: Values = {}
        self.known: dict[str, np.ndarray] = {}
        for given in foreign.givens:
            self.values[given.ref.id] = self._given(given)
        self.misses = [m for call in foreign.calls if (m := self._call(call)) is not None]

    def _given(self, given: Given) -> Array:
        limits = self.limits.get(given.ref.id)
        if limits is None or isinstance(given.storage, (Weight, Const)):
            return _input(self.recorder, given.name, given.type, given.storage)
        if isinstance(given.storage, Slot):
            storage = Slot(given.storage.kind, _both(limits, given.storage.range))
            return _input(self.recorder, given.name, given.type, storage)
        return checked(_input(self.recorder, given.name, given.type, given.storage), *limits)

    def _call(self, call: Call) -> Miss | None:
        """Does one call, or says why it can't be done and adds stand-ins of its results' types."""
        guards = len(self.recorder.builder.validations)
        miss = Miss(call, call.problem) if call.problem else self._row(call)
        if miss is None:
            return None
        del self.recorder.builder.validations[guards:]
        if call.known is not None and self._constants(call, call.known()):
            return None
        for ref, type in zip(call.results, call.types, strict=True):
            name, limits = f"result of {call.op} {ref.id}", self.limits.get(ref.id)
            self.values[ref.id] = _input(self.recorder, name, type, Slot("user", limits))
        return miss

    def _row(self, call: Call) -> Miss | None:
        """Why the call can't be done; None where its results are among the values now."""
        row = self.rows.get(call.op)
        if row is None:
            return Miss(call, "there is no row for it")
        eqns = self.recorder.builder.eqns
        first = len(eqns)
        with located(call.loc):
            try:
                args = [_resolved(x, self.values) for x in call.args]
                options = {k: _resolved(x, self.values) for k, x in call.options.items()}
                got = row(Site(call.types), *args, **options)
            except PootError as e:
                return Miss(call, e.message)
        results = got if isinstance(got, tuple) else (got,)
        types = tuple(x.type for x in results)
        if types != call.types:
            want, have = ", ".join(map(str, call.types)), ", ".join(map(str, types))
            return Miss(call, f"its row gives {have} where the program has {want}")
        pairs = list(zip(call.results, results, strict=True))
        if call.wide:
            known = {x.var.id: x.interval for x in _arrays([args, *options.values()])}
            known |= {i.var.id: input_interval(i) for i in self.recorder.builder.inputs}
            wide = [x.var for ref, x in pairs if ref in call.wide]
            if (eqn := wrapping(eqns[first:], known, wide)) is not None:
                return Miss(call, _passes(eqn), is_wide=True)
        self.values.update({ref.id: x for ref, x in pairs})
        return None

    def _constants(self, call: Call, arrays: tuple[np.ndarray, ...]) -> bool:
        """Takes the results as they are known. Where poot holds one not, what is made of it has to
        be known too."""
        with located(call.loc):
            for ref, type, array in zip(call.results, call.types, arrays, strict=True):
                self.values[ref.id] = None
                if not _is_held(array):
                    continue
                value = as_array(np.ascontiguousarray(array), self.recorder, type.dtype, call.op)
                if value.type == type:
                    self.values[ref.id], self.known[ref.id] = value, array
        return True


def _both(limits: tuple[int, int], range: tuple[int, int] | None) -> tuple[int, int]:
    """What lies within both, or the range where nothing does."""
    if range is None:
        return limits
    low, high = max(limits[0], range[0]), min(limits[1], range[1])
    return (low, high) if low < high else range


def _is_held(array: np.ndarray) -> bool:
    """Whether poot has a dtype for the elements."""
    if array.dtype != np.int64:
        return dtype_of(array.dtype) is not None
    return not array.size or bool(array.min() >= -(2**31) and array.max() < 2**31)


def _passes(eqn: Eqn) -> str:
    return (
        f"it has integers of 64 bits, and isn't proved to stay within the 32 that poot has "
        f"({eqn.op} of {', '.join(str(v.type) for v in eqn.ins)}); declare the range of what it is "
        "made of, or make it of int32, which wraps"
    )


def _input(recorder: Recorder, name: str, type: TensorType, storage: Storage) -> Array:
    var = recorder.builder.input(type, name, storage)
    return Array(recorder, var, input_interval(recorder.builder.inputs[-1]))


def refusal(call: Call, rows: Mapping[str, Row], types: Mapping[str, TensorType]) -> str:
    """Why the call can't be done on values of these types, by their Refs' ids; empty where it
    can."""
    givens = tuple(Given(Ref(id), id, type, Slot()) for id, type in types.items())
    with recording() as recorder:
        misses = Lowering(Foreign(givens, (call,), ()), rows, recorder).misses
    return misses[0].why if misses else ""


def _arrays(value: object) -> Iterable[Array]:
    """The Arrays in what a row is given."""
    if isinstance(value, Array):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in cast("list[object]", value):
            yield from _arrays(part)


def _resolved(value: object, values: Values) -> object:
    """An argument with the values in the places of their Refs."""
    if isinstance(value, Ref):
        held = values[value.id]
        if held is None:
            refuse("an operand", "numbers that poot's dtypes hold", value=value.id)
        return held
    if isinstance(value, (tuple, list)):
        parts = [_resolved(x, values) for x in cast("list[object]", value)]
        return tuple(parts) if isinstance(value, tuple) else parts
    return value


def _listed(who: str, misses: Sequence[Unsupported]) -> str:
    """One line for each op and reason, with every line of the program that calls it."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for miss in misses:
        by_reason.setdefault((miss.op, miss.why), []).append(miss.loc or "a line unknown")
    lines = [f"{who} can't do {len(misses)} of this program's calls:"]
    for (op, why), locs in by_reason.items():
        at = ", ".join(dict.fromkeys(locs))
        times = f" ({len(locs)} times)" if len(locs) > 1 else ""
        lines.append(f"  {op}{times}: {why}; at {at}")
    return "\n".join(lines)


def _graph(recorder: Recorder, foreign: Foreign, values: Values, who: str) -> Graph:
    leaves, tree = flatten(foreign.outputs, "", (Ref,))
    outputs: list[Var] = []
    for name, leaf in leaves:
        if not isinstance(leaf, Ref):
            what = f"{who} needs results that are arrays: output {name} is {leaf!r}"
            raise TraceError(what)
        outputs.append(_held(values, leaf, who).var)
    if not outputs and not foreign.states:
        raise TraceError(f"{who} needs a program with a result")
    states = dict(foreign.states)
    inputs = {i.name: i.var for i in recorder.builder.inputs}
    pairs = tuple((inputs[name], _held(values, ref, who).var) for name, ref in states.items())
    return dce(recorder.builder.graph(tuple(outputs), pairs, tree))


def _held(values: Values, ref: Ref, who: str) -> Array:
    value = values[ref.id]
    if value is None:
        raise TraceError(
            f"{who} needs results in poot's dtypes: {ref.id} is known, and passes them"
        )
    return value
