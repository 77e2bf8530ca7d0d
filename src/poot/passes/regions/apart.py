"""Regions taken apart again, where no generator writes them: what a compile falls back to.

before   out = region(a, b) body={ h = exp(a); out = mul(h, b) }
after    h = exp(a)
         out = mul(h, b)
Each primitive is a step of its own. Every step that regions form is one that generators write; the
compile takes one apart all the same, rather than fail, and says so.
"""

from __future__ import annotations

from poot.ir.attrs import graph_attr
from poot.ir.graph import Eqn, Graph
from poot.ops.expand import expand_where
from poot.passes.engine import Note
from poot.passes.pipeline import PassReport

APART = "apart"  # the name of the report


def take_apart(graph: Graph, why: dict[int, str]) -> tuple[Graph, PassReport] | None:
    """The graph without the regions of several eqns that make one of those values (var id -> why),
    and what is told of it; None where none of them is such a region."""
    chosen: set[int] = set()  # ids of regions' first outs

    def is_chosen(eqn: Eqn) -> bool:
        return eqn.op == "region" and eqn.outs[0].id in chosen

    notes: list[Note] = []
    for eqn in graph.eqns:
        found = next((why[v.id] for v in eqn.outs if v.id in why), None)
        if found is not None and eqn.op == "region" and len(graph_attr(eqn).eqns) > 1:
            chosen.add(eqn.outs[0].id)
            many = len(graph_attr(eqn).eqns)
            notes.append(
                Note("declined", f"a step of {many} eqns runs as {many} steps: {found}", eqn.loc)
            )
    if not chosen:
        return None
    apart = expand_where(graph, is_chosen)
    return apart, PassReport(APART, apart, (("steps", len(notes)),), tuple(notes))
