"""What is proved of integers in a graph, and what the proof rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from poot.ir.graph import Graph, Var
from poot.ir.ranges import Known, ranges


@dataclass(frozen=True, slots=True)
class Proofs:
    """The interval of each value by id, and the ids of the declared validations."""

    known: Mapping[int, Known]
    declared: frozenset[int]

    def why_not(self, var: Var, lo: int, hi: int, plus: int = 0) -> str | None:
        """Why it is not proved that every element of var + plus lies in lo..hi, both included; None
        where it is. A proof that rests on an index guard's clamp holds only if that guard's witness
        is a declared validation."""
        got = self.known.get(var.id)
        if got is None:
            return f"nothing proves it in {lo}..{hi}: declare its slot's range, or guard it"
        if not lo <= got.lo + plus <= got.hi + plus <= hi:
            return f"it may be {got.lo + plus}..{got.hi + plus}, not only {lo}..{hi}"
        if not got.guards <= self.declared:
            return "its index guard's witness is no declared validation; write ops.validate"
        return None


def proofs_of(graph: Graph) -> Proofs:
    """What is proved in a graph."""
    return Proofs(ranges(graph), frozenset(v.id for v in graph.validations))
