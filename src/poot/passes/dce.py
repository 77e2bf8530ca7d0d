"""Eqns that nothing needs go. Inputs stay: a caller binds them by name.

before   b = exp(a)      after   out a
         out a
Needs nothing. Leaves no eqn without a reader among eqns, outputs, states and validations.
"""

from __future__ import annotations

from dataclasses import replace

from poot.ir.graph import Eqn, Graph
from poot.ir.walk import results


def dce(graph: Graph) -> Graph:
    """The graph without the eqns that no result needs, in one backward walk."""
    live = {v.id for v in results(graph)}
    kept: list[Eqn] = []
    for eqn in reversed(graph.eqns):
        if any([o.id in live for o in eqn.outs]):
            kept.append(eqn)
            live.update([v.id for v in eqn.ins])
    return graph if len(kept) == len(graph.eqns) else replace(graph, eqns=tuple(reversed(kept)))
