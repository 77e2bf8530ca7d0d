"""What depends on Weights and constants alone is computed once, not at every step."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from poot.ir.graph import Const, Eqn, Graph, Input, Var, Weight
from poot.ir.walk import results
from poot.oracle.run import arrays_of, evaluate

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Folded:
    """Values that graphs over the same weights have folded, so that one graph takes what another
    has computed. A value's number stands for how it is computed, not for its name."""

    numbers: dict[Key, int] = field(default_factory=dict[Key, int])
    values: dict[int, np.ndarray] = field(default_factory=dict[int, np.ndarray])

    def number(self, key: Key) -> int:
        return self.numbers.setdefault(key, len(self.numbers))


def fold(
    graph: Graph,
    weights: Mapping[str, object],
    *,
    f64: bool = False,
    shared: Folded | None = None,
) -> tuple[Graph, dict[str, np.ndarray]]:
    """(the graph left to run at each step, the Weights that it takes in place of the old ones).

    A folded value becomes a Weight called "=v<id>"; Weights and constants that nothing else reads
    go. `run` on both gives what it gave before, bit for bit. The new arrays may be views of the
    given ones, which must not change. Graphs that are folded with one `shared`, over the same
    weights and in the same mode, share equal values. Raises BindError as `run` does."""
    fixed = {i.var for i in graph.inputs if isinstance(i.storage, Weight | Const)}
    folded: list[Eqn] = []
    rest: list[Eqn] = []
    for eqn in graph.eqns:
        is_fixed = fixed.issuperset(eqn.ins)
        (folded if is_fixed else rest).append(eqn)
        fixed.update(eqn.outs if is_fixed else ())
    read = dict.fromkeys(v for eqn in rest for v in eqn.ins) | dict.fromkeys(results(graph))
    made = tuple(v for eqn in folded for v in eqn.outs if v in read)
    known = shared if shared is not None else Folded()
    numbers = _numbers(graph, folded, known)
    missing = tuple(v for v in made if numbers[v.id] not in known.values)
    values = _values(graph, folded, missing, weights, f64)
    known.values.update((numbers[v.id], x) for v, x in zip(missing, values, strict=True))
    inputs = [i for i in graph.inputs if i.var in read or i.var not in fixed]
    inputs += [Input(v, f"={v}", Weight()) for v in made]
    left = replace(graph, inputs=tuple(inputs), eqns=tuple(rest))
    kept = {i.name for i in inputs if isinstance(i.storage, Weight)}
    given = {name: np.asarray(x) for name, x in weights.items() if name in kept}
    return left, given | {f"={v}": known.values[numbers[v.id]] for v in made}


def _numbers(graph: Graph, folded: list[Eqn], known: Folded) -> dict[int, int]:
    """For each fixed value's id, the number of how it is computed."""
    numbers: dict[int, int] = {}
    for i in graph.inputs:
        if isinstance(i.storage, Weight):
            numbers[i.var.id] = known.number(("weight", i.name))
        elif isinstance(i.storage, Const):
            digest = hashlib.sha256(i.storage.data).digest()
            numbers[i.var.id] = known.number(("const", i.var.type, digest))
    for eqn in folded:
        ins = tuple(numbers[v.id] for v in eqn.ins)
        for n, v in enumerate(eqn.outs):
            numbers[v.id] = known.number((eqn.op, ins, repr(eqn.attrs), n))
    return numbers


def _values(
    graph: Graph,
    folded: list[Eqn],
    made: tuple[Var, ...],
    weights: Mapping[str, object],
    f64: bool,
) -> tuple[np.ndarray, ...]:
    """The folded results that are wanted, in numpy's own layout: a transposed Weight stays a
    view."""
    needed = {v.id for v in made}
    cone: list[Eqn] = []
    for eqn in reversed(folded):
        if any(v.id in needed for v in eqn.outs):
            cone.append(eqn)
            needed.update(v.id for v in eqn.ins)
    inputs = tuple(i for i in graph.inputs if isinstance(i.storage, Weight | Const))
    part = Graph(inputs, tuple(reversed(cone)), made)
    arrays = arrays_of(part, weights, f64)
    got = evaluate(part, {i.var.id: x for i, x in zip(inputs, arrays, strict=True)}, f64)
    return tuple(got[v.id] for v in made)
