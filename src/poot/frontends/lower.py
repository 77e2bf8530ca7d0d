"""From a foreign program to a graph, by a table of rows.

Every call is tried, also those after one that can't be done: the error lists them all. A row's
result has to be of the type that the foreign program says, or the call counts as one that can't.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from poot.errors import PootError, TraceError, Unsupported, UnsupportedOps
from poot.frontends.foreign import Call, Foreign, Ref, Row, Site
from poot.frontends.imported import Imported
from poot.ir.graph import Graph, Slot, State, Storage, TensorType, Var, Weight
from poot.ir.ranges import input_interval
from poot.ir.tree import flatten
from poot.ops.array import Array
from poot.ops.record import Recorder, located, recording
from poot.passes.dce import dce
from poot.trace import RESERVED

Values = dict[str, Array]


def lower(foreign: Foreign, rows: Mapping[str, Row], who: str) -> Imported:
    """The program's graph and its arrays. Raises UnsupportedOps that lists every call that has no
    row or that its row refuses, `who` being the front end's name."""
    with recording() as recorder:
        values: Values = {}
        for given in foreign.givens:
            if given.name == RESERVED:
                raise TraceError(f"{who} needs inputs of names other than {RESERVED}; rename it")
            values[given.ref.id] = _input(recorder, given.name, given.type, given.storage)
        misses = [m for call in foreign.calls if (m := run_call(recorder, call, rows, values))]
        if misses:
            raise UnsupportedOps(_listed(who, misses), ops=tuple(misses))
        graph = _graph(recorder, foreign, values, who)
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


def _input(recorder: Recorder, name: str, type: TensorType, storage: Storage) -> Array:
    var = recorder.builder.input(type, name, storage)
    return Array(recorder, var, input_interval(recorder.builder.inputs[-1]))


def run_call(
    recorder: Recorder, call: Call, rows: Mapping[str, Row], values: Values
) -> Unsupported | None:
    """Does one call and adds its results to `values`, or says why it can't be done and adds
    stand-ins of the results' types."""
    why = call.problem or _done(call, rows, values)
    if not why:
        return None
    for ref, type in zip(call.results, call.types, strict=True):
        values[ref.id] = _input(recorder, f"result of {call.op} {ref.id}", type, Slot())
    return Unsupported(call.op, why, call.loc)


def refusal(call: Call, rows: Mapping[str, Row], types: Mapping[str, TensorType]) -> str:
    """Why the call can't be done on values of these types, by their Refs' ids; empty where it
    can."""
    with recording() as recorder:
        values = {id: _input(recorder, id, type, Slot()) for id, type in types.items()}
        miss = run_call(recorder, call, rows, values)
    return miss.why if miss is not None else ""


def _done(call: Call, rows: Mapping[str, Row], values: Values) -> str:
    """Why the call can't be done; empty where its results are among the values now."""
    row = rows.get(call.op)
    if row is None:
        return "there is no row for it"
    with located(call.loc):
        try:
            args = [_resolved(x, values) for x in call.args]
            options = {k: _resolved(x, values) for k, x in call.options.items()}
            got = row(Site(call.types), *args, **options)
        except PootError as e:
            return e.message
    results = got if isinstance(got, tuple) else (got,)
    types = tuple(x.type for x in results)
    if types != call.types:
        want, have = ", ".join(map(str, call.types)), ", ".join(map(str, types))
        return f"its row gives {have} where the program has {want}"
    values.update({ref.id: x for ref, x in zip(call.results, results, strict=True)})
    return ""


def _resolved(value: object, values: Values) -> object:
    """An argument with the values in the places of their Refs."""
    if isinstance(value, Ref):
        return values[value.id]
    if isinstance(value, (tuple, list)):
        parts = [_resolved(x, values) for x in cast("list[object]", value)]
        return tuple(parts) if isinstance(value, tuple) else parts
    return value


def _listed(who: str, misses: list[Unsupported]) -> str:
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
        outputs.append(values[leaf.id].var)
    if not outputs and not foreign.states:
        raise TraceError(f"{who} needs a program with a result")
    states = dict(foreign.states)
    inputs = {i.name: i.var for i in recorder.builder.inputs}
    pairs = tuple((inputs[name], values[ref.id].var) for name, ref in states.items())
    return dce(recorder.builder.graph(tuple(outputs), pairs, tree))
