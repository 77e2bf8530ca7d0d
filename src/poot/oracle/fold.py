"""What depends on Weights and constants alone is computed once, not at every step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from poot.ir.graph import Const, Eqn, Graph, Input, Var, Weight
from poot.ir.walk import results
from poot.oracle.run import arrays_of, evaluate


def fold(
    graph: Graph, weights: Mapping[str, object], *, f64: bool = False
) -> tuple[Graph, dict[str, np.ndarray]]:
    """(the graph left to run at each step, the Weights that it takes in place of the old ones).

    A folded value becomes a Weight called "=v<id>"; Weights and constants that nothing else reads
    go. `run` on both gives what it gave before, bit for bit. The new arrays may be views of the
    given ones, which must not change. Raises BindError as `run` does."""
    fixed = {i.var for i in graph.inputs if isinstance(i.storage, Weight | Const)}
    folded: list[Eqn] = []
    rest: list[Eqn] = []
    for eqn in graph.eqns:
        is_fixed = fixed.issuperset(eqn.ins)
        (folded if is_fixed else rest).append(eqn)
        fixed.update(eqn.outs if is_fixed else ())
    read = dict.fromkeys(v for eqn in rest for v in eqn.ins) | dict.fromkeys(results(graph))
    made = tuple(v for eqn in folded for v in eqn.outs if v in read)
    values = _values(graph, folded, made, weights, f64)
    inputs = [i for i in graph.inputs if i.var in read or i.var not in fixed]
    inputs += [Input(v, f"={v}", Weight()) for v in made]
    left = replace(graph, inputs=tuple(inputs), eqns=tuple(rest))
    kept = {i.name for i in inputs if isinstance(i.storage, Weight)}
    given = {name: np.asarray(x) for name, x in weights.items() if name in kept}
    return left, given | {f"={v}": x for v, x in zip(made, values, strict=True)}


def _values(
    graph: Graph,
    folded: list[Eqn],
    made: tuple[Var, ...],
    weights: Mapping[str, object],
    f64: bool,
) -> tuple[np.ndarray, ...]:
    """The folded results that are read, in numpy's own layout: a transposed Weight stays a view."""
    inputs = tuple(i for i in graph.inputs if isinstance(i.storage, Weight | Const))
    part = Graph(inputs, tuple(folded), made)
    arrays = arrays_of(part, weights, f64)
    got = evaluate(part, {i.var.id: x for i, x in zip(inputs, arrays, strict=True)}, f64)
    return tuple(got[v.id] for v in made)
