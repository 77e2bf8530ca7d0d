"""A row norm before a matmul of few rows moves into the matmul's launch.

The norm is one reduction over the matmul's left rows, whose scaled rows only that matmul (or those
that share its left operand) reads. Each workgroup of the matmul then computes it again, which for a
few rows costs less than a launch and a trip through memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.ir.graph import Eqn, Graph, Var
from poot.ir.walk import results
from poot.passes.regions.groups import FULL, Grouping
from poot.passes.regions.table import ELEMENTWISE, FEW_ROWS, rows_of


@dataclass(frozen=True, slots=True)
class _Parts:
    """Each group's eqns by position, and the positions that read each value."""

    members: dict[int, list[int]]
    readers: dict[int, list[int]]


def absorb_norms(graph: Graph, grouping: Grouping, buffers: int) -> None:
    """Moves the members of such norms into the groups of their matmuls."""
    at = {v.id: n for n, eqn in enumerate(graph.eqns) for v in eqn.outs}
    parts = _Parts({}, {})
    for position, eqn in enumerate(graph.eqns):
        parts.members.setdefault(grouping.home[position], []).append(position)
        for v in eqn.ins:
            parts.readers.setdefault(v.id, []).append(position)
    leaving = {v.id for v in results(graph)}
    for number, group in enumerate(grouping.groups):
        if group.anchor != "matmul":
            continue
        products = [graph.eqns[p] for p in parts.members[number] if graph.eqns[p].op == "matmul"]
        left = products[0].ins[0]
        norm = grouping.home[at[left.id]] if left.id in at else -1
        if norm < 0 or rows_of(products[0].out.type) > FEW_ROWS:
            continue
        leaves = (group.leaves - {left.id}) | grouping.groups[norm].leaves
        leaves = _without_derived(graph, at, leaves)
        if not _is_row_norm(graph, grouping, norm, left, parts):
            continue
        if len(leaves) + group.outs > buffers or not _is_own(
            graph, parts, norm, number, left, leaving, grouping
        ):
            continue
        group.leaves = leaves
        for position in parts.members[norm]:
            grouping.home[position] = number


def _without_derived(graph: Graph, at: dict[int, int], leaves: set[int]) -> set[int]:
    """The leaves without those that are computed, element by element, from other leaves alone: a
    square is read as what it is the square of."""

    def is_derived(id: int) -> bool:
        eqn = graph.eqns[at[id]] if id in at else None
        if eqn is None or eqn.op not in ELEMENTWISE:
            return False
        return all(
            v.id in leaves or (v.id in at and graph.eqns[at[v.id]].op == "const") for v in eqn.ins
        )

    return {id for id in leaves if not is_derived(id)}


def _is_row_norm(graph: Graph, grouping: Grouping, norm: int, left: Var, parts: _Parts) -> bool:
    """Whether the group is one reduction over the rows of left, and left is made of whole rows."""
    group = grouping.groups[norm]
    folds = [p for p in parts.members[norm] if graph.eqns[p].op == "reduce"]
    return (
        group.anchor == "reduce"
        and len(folds) == 1
        and grouping.tags.get(left.id) == FULL
        and group.rows > 0
        and group.elems // group.rows == left.type.shape[-1]
    )


def _is_own(
    graph: Graph,
    parts: _Parts,
    norm: int,
    number: int,
    left: Var,
    leaving: set[int],
    grouping: Grouping,
) -> bool:
    """Whether nothing of the norm is read outside but left, as the left operand of the matmuls,
    and it reads no State that is written over later."""

    def reads_left(eqn: Eqn) -> bool:
        return eqn.op == "matmul" and eqn.ins[0] == left and eqn.ins[1] != left

    for position in parts.members[norm]:
        if any(v.id in grouping.updated for v in graph.eqns[position].ins):
            return False
        for v in graph.eqns[position].outs:
            outside = [p for p in parts.readers.get(v.id, []) if grouping.home[p] != norm]
            if v.id in leaving:
                return False
            if outside and v != left:
                return False
            if any(grouping.home[p] != number or not reads_left(graph.eqns[p]) for p in outside):
                return False
    return True
