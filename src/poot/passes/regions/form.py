"""Every eqn ends in a region: one launch, anchored by the eqn whose schedule decides.

before   r = reduce(mul(x, x)) ... h = mul(mul(x, rsqrt(r)), w)    q = matmul(h, transpose(wq))
after    q = region(x, w, wq) anchor=matmul body={ all of it }
Needs a graph without dead eqns. Leaves only region eqns, and bare those that no region holds: an
update of rows that can't be done in place, and fused ops without an anchor of their own. A cheap
eqn that several launches read stands in the body of each; every other eqn stands in one. Linear.
"""

from __future__ import annotations

from dataclasses import replace

from poot.ir.attrs import int_attr
from poot.ir.graph import Eqn, Graph, Var
from poot.ir.walk import next_id
from poot.limits import DeviceLimits
from poot.passes.dce import dce
from poot.passes.engine import Note, Outcome
from poot.passes.regions.bodies import Assembler
from poot.passes.regions.groups import Grouper, Grouping
from poot.passes.regions.norms import absorb_norms
from poot.passes.regions.places import Placer

_IMMEDIATES_BELOW = 9  # a device of so few storage buffers takes immediates in one of them
_MOST_CUTS = 16  # rounds of storing one more value for each launch of too many buffers


def launch_buffers(limits: DeviceLimits) -> int:
    """How many operands and results one launch may have on the device."""
    few = limits.storage_buffers < _IMMEDIATES_BELOW
    return limits.storage_buffers - 1 if few else limits.storage_buffers


def form_regions(graph: Graph, limits: DeviceLimits) -> Outcome:
    """The graph with its eqns in regions, and how many there are of each anchor."""
    buffers = launch_buffers(limits)
    graph = _narrow_concats(dce(graph), buffers - 1)
    grouping = Grouper(graph, buffers, limits).run()
    absorb_norms(graph, grouping, buffers)
    assembler, eqns = _assembled(graph, grouping, buffers)
    for _ in range(_MOST_CUTS):
        if not assembler.to_cut - grouping.cut:
            break
        grouping.cut.update(assembler.to_cut)
        assembler, eqns = _assembled(graph, grouping, buffers)
    counts: dict[str, int] = {}
    for eqn in eqns:
        name = str(eqn.attr("anchor", eqn.op))
        counts[name] = counts.get(name, 0) + 1
    notes = (
        (Note("declined", f"{assembler.exploded} launches of too many buffers were cut up"),)
        if assembler.exploded
        else ()
    )
    return Outcome(_renumbered(graph, eqns), tuple(sorted(counts.items())), notes)


def _renumbered(graph: Graph, eqns: tuple[Eqn, ...]) -> Graph:
    """The graph of those regions, values numbered from v0. Bodies are numbered as they are made."""
    new = {i.var.id: Var(n, i.var.type) for n, i in enumerate(graph.inputs)}
    moved: list[Eqn] = []
    for eqn in eqns:
        ins = tuple(new[v.id] for v in eqn.ins)
        outs = tuple([Var(len(new) + n, v.type) for n, v in enumerate(eqn.outs)])
        new.update([(v.id, fresh) for v, fresh in zip(eqn.outs, outs, strict=True)])
        moved.append(Eqn(eqn.op, ins, outs, eqn.attrs, eqn.loc))
    return replace(
        graph,
        inputs=tuple(replace(i, var=new[i.var.id]) for i in graph.inputs),
        eqns=tuple(moved),
        outputs=tuple(new[v.id] for v in graph.outputs),
        states=tuple((new[a.id], new[b.id]) for a, b in graph.states),
        validations=tuple(new[v.id] for v in graph.validations),
    )


def _assembled(graph: Graph, grouping: Grouping, buffers: int) -> tuple[Assembler, tuple[Eqn, ...]]:
    assembler = Assembler(graph, grouping, Placer(graph, grouping).run(), buffers)
    return assembler, assembler.run()


def _narrow_concats(graph: Graph, most: int) -> Graph:
    """Concats of more operands than a launch binds, as concats of concats."""
    if all(e.op != "concat" or len(e.ins) <= most for e in graph.eqns):
        return graph
    fresh = next_id(graph)
    eqns: list[Eqn] = []
    for eqn in graph.eqns:
        ins = eqn.ins
        while eqn.op == "concat" and len(ins) > most:
            parts: list[Var] = []
            for first in range(0, len(ins), most):
                chunk = ins[first : first + most]
                if len(chunk) == 1:
                    parts.append(chunk[0])
                    continue
                axis = int_attr(eqn, "axis")
                shape = list(chunk[0].type.shape)
                shape[axis] = sum(v.type.shape[axis] for v in chunk)
                out = Var(fresh, replace(chunk[0].type, shape=tuple(shape)))
                fresh += 1
                eqns.append(replace(eqn, ins=chunk, outs=(out,)))
                parts.append(out)
            ins = tuple(parts)
        eqns.append(eqn if ins is eqn.ins else replace(eqn, ins=ins))
    return replace(graph, eqns=tuple(eqns))
