"""Walks over a graph, all linear and none recursive but into the bodies of regions.

A body has ids of its own: a substitution outside does not reach into it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from poot.errors import VerifyError
from poot.ir.graph import Const, Eqn, Graph, Input, Var
from poot.ir.text import show, show_eqn


def bound_vars(graph: Graph) -> Iterator[Var]:
    """Every value that the graph binds: inputs, then outs, in order."""
    for i in graph.inputs:
        yield i.var
    for eqn in graph.eqns:
        yield from eqn.outs


def results(graph: Graph) -> Iterator[Var]:
    """Every value that leaves the graph: outputs, new states, validations."""
    yield from graph.outputs
    for _, after in graph.states:
        yield after
    yield from graph.validations


def next_id(graph: Graph) -> int:
    """The least id above every bound one."""
    return max((v.id for v in bound_vars(graph)), default=-1) + 1


def producers(graph: Graph) -> dict[int, Eqn]:
    """For each id that an eqn binds, that eqn."""
    return {v.id: eqn for eqn in graph.eqns for v in eqn.outs}


def users(graph: Graph) -> dict[int, tuple[Eqn, ...]]:
    """For each bound id, the eqns that read it, in order, each once. Results are not eqns."""
    found: dict[int, list[Eqn]] = {v.id: [] for v in bound_vars(graph)}
    for eqn in graph.eqns:
        for id in dict.fromkeys(v.id for v in eqn.ins):
            found[id].append(eqn)
    return {id: tuple(eqns) for id, eqns in found.items()}


def use_counts(graph: Graph) -> dict[int, int]:
    """For each bound id, how often eqns and results name it."""
    counts = {v.id: 0 for v in bound_vars(graph)}
    for eqn in graph.eqns:
        for v in eqn.ins:
            counts[v.id] += 1
    for v in results(graph):
        counts[v.id] += 1
    return counts


def is_ordered(graph: Graph) -> bool:
    """Whether each value is bound before an eqn reads it, and every result is bound."""
    bound = {i.var for i in graph.inputs}
    for eqn in graph.eqns:
        if not bound.issuperset(eqn.ins):
            return False
        bound.update(eqn.outs)
    return bound.issuperset(results(graph))


def ordered(graph: Graph) -> Graph:
    """The same eqns, each after those whose outs it reads, which move up no further than they must.
    Raises VerifyError where eqns read each other in a circle."""
    made_by = producers(graph)
    placed: dict[int, None] = {}  # id() of each eqn already in `order`
    open_: set[int] = set()
    order: list[Eqn] = []
    for root in graph.eqns:
        stack = [root]
        while stack:
            eqn = stack[-1]
            if id(eqn) in placed:
                stack.pop()
                continue
            waits = [made_by[v.id] for v in eqn.ins if v.id in made_by]
            waits = [e for e in waits if id(e) not in placed]
            if not waits:
                stack.pop()
                placed[id(eqn)] = None
                order.append(eqn)
                continue
            if id(eqn) in open_:
                raise VerifyError(f"eqns read each other in a circle: {show_eqn(eqn)}", eqn.loc)
            open_.add(id(eqn))
            stack.extend(reversed(waits))
    return replace(graph, eqns=tuple(order))


def _ends(mapping: Mapping[int, Var]) -> dict[int, Var]:
    """The mapping with every chain followed to its end."""
    steps = {id: v for id, v in mapping.items() if v.id != id}
    ends: dict[int, Var] = {}
    for first in steps:
        chain: list[int] = []
        at = first
        while at in steps and at not in ends:
            chain.append(at)
            assert len(chain) <= len(steps), f"a circle of substitutions through v{at}"
            at = steps[at].id
        if chain:
            end = ends[at] if at in ends else steps[chain[-1]]
            ends.update(dict.fromkeys(chain, end))
    return ends


def rebuild(graph: Graph, eqns: Iterable[Eqn], mapping: Mapping[int, Var] | None = None) -> Graph:
    """The graph over other eqns, with each use of an id in mapping replaced by what it leads to.

    Chains in the mapping are followed. Inputs and outs keep their ids."""
    flat = _ends(mapping or {})

    def to(v: Var) -> Var:
        return flat.get(v.id, v)

    def moved(eqn: Eqn) -> Eqn:
        if not any(v.id in flat for v in eqn.ins):
            return eqn
        return replace(eqn, ins=tuple(map(to, eqn.ins)))

    return replace(
        graph,
        eqns=tuple(map(moved, eqns)) if flat else tuple(eqns),
        outputs=tuple(map(to, graph.outputs)),
        states=tuple((a, to(b)) for a, b in graph.states),
        validations=tuple(map(to, graph.validations)),
    )


def substitute(graph: Graph, mapping: Mapping[int, Var]) -> Graph:
    """The graph with each use of an id in mapping replaced by what it leads to."""
    return rebuild(graph, graph.eqns, mapping)


def _holds_graph(eqn: Eqn) -> bool:
    return any([isinstance(v, Graph) for _, v in eqn.attrs])


def _is_numbered(graph: Graph) -> bool:
    """Whether `renumber` has nothing to do."""
    if any(v.id != n for n, v in enumerate(bound_vars(graph))):
        return False
    bodies = (v for e in graph.eqns for _, v in e.attrs if isinstance(v, Graph))
    return all(_is_numbered(body) for body in bodies)


def renumber(graph: Graph) -> Graph:
    """The graph with ids 0, 1, ... in the order of binding, in region bodies as well; itself, where
    it has them."""
    if _is_numbered(graph):
        return graph
    new = {v.id: v if v.id == n else Var(n, v.type) for n, v in enumerate(bound_vars(graph))}

    def to(vs: tuple[Var, ...]) -> tuple[Var, ...]:
        return tuple([new[v.id] for v in vs])

    def moved(eqn: Eqn) -> Eqn:
        attrs = eqn.attrs
        if _holds_graph(eqn):
            attrs = tuple((k, renumber(v) if isinstance(v, Graph) else v) for k, v in attrs)
        return Eqn(eqn.op, to(eqn.ins), to(eqn.outs), attrs, eqn.loc)

    return replace(
        graph,
        inputs=tuple(replace(i, var=new[i.var.id]) for i in graph.inputs),
        eqns=tuple(map(moved, graph.eqns)),
        outputs=to(graph.outputs),
        states=tuple((new[a.id], new[b.id]) for a, b in graph.states),
        validations=to(graph.validations),
    )


_LONGEST_CONST = 64


def _nameless(graph: Graph, digests: dict[int, str]) -> Graph:
    """Without names. A body of a region stands as the digest of its text, which `digests` holds by
    the body's id(): a Graph that several regions share is read once."""

    def plain(i: Input) -> Input:
        storage = i.storage
        if isinstance(storage, Const) and len(storage.data) > _LONGEST_CONST:
            storage = Const(hashlib.sha256(storage.data).digest())
        return Input(i.var, str(i.var), storage)

    def digest(body: Graph) -> str:
        if id(body) not in digests:
            text = show(_nameless(body, digests))
            digests[id(body)] = hashlib.sha256(text.encode()).hexdigest()
        return digests[id(body)]

    def inside(eqn: Eqn) -> Eqn:
        if not _holds_graph(eqn):
            return eqn
        attrs = tuple((k, digest(v) if isinstance(v, Graph) else v) for k, v in eqn.attrs)
        return Eqn(eqn.op, eqn.ins, eqn.outs, attrs, eqn.loc)

    return replace(
        graph, inputs=tuple(map(plain, graph.inputs)), eqns=tuple(map(inside, graph.eqns))
    )


def canonical_text(graph: Graph) -> str:
    """Text that is equal for graphs that differ only in ids, names of inputs and locations.

    A key, not a graph's text: a constant of more than 64 bytes stands as its SHA-256, and so does
    the text of a region's body."""
    return show(_nameless(renumber(graph), {}))
