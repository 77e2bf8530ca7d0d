"""The log-sum-exp of a row beside its attention, as a second result of the one eqn.

before   out = matmul(ex / total, v)                             after   out, l = attention(...) lse
         l = select(top == -inf, -inf, top + log(total))
`top` and `total` are the softmax's own maximum and sum; beside a sink, which is in neither, the
maximum and the sum of the same scores without it. The select has to stand after the product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from poot.ir.attrs import ints_attr, number_attr, str_attr
from poot.ir.graph import Eqn, Graph, Var
from poot.ir.walk import producers
from poot.passes.facts import is_float_cast


@dataclass(frozen=True, slots=True)
class LogSum:
    """The select, the eqns between it and the reductions, the ids of these, and its position."""

    root: Eqn
    eqns: tuple[Eqn, ...]
    total: int
    top: int
    position: int


@dataclass(frozen=True, slots=True)
class LogSums:
    """Every such select, by the id of the sum that it takes the logarithm of, and who makes what in
    the graph."""

    by_total: dict[int, LogSum]
    made: dict[int, Eqn]

    def beside_sink(self, scores: Var, tops: set[int]) -> LogSum | None:
        """The one of sum(exp(scores - top)) over the keys, top among `tops`; its sum, exps and
        difference are among its eqns."""
        for got in self.by_total.values():
            own = self._sum_of(got) if got.top in tops else None
            if own is not None and own[-1].ins[0] == scores:
                return replace(got, eqns=(*own, *got.eqns))
        return None

    def _sum_of(self, got: LogSum) -> tuple[Eqn, Eqn, Eqn] | None:
        """sum over the last axis, exp and sub that make a total, where it is the top's."""
        total = self.made.get(got.total)
        exps = self.made.get(total.ins[0].id) if total is not None else None
        shift = self.made.get(exps.ins[0].id) if exps is not None else None
        if total is None or exps is None or shift is None:
            return None
        if (total.op, exps.op, shift.op) != ("reduce", "exp", "sub"):
            return None
        shape = exps.out.type.shape
        is_sum = str_attr(total, "kind") == "sum" and ints_attr(total, "axis") == (len(shape) - 1,)
        top = shift.ins[1]
        is_own = top.id == got.top and top.type.shape == (*shape[:-1], 1)
        return (total, exps, shift) if is_sum and is_own else None


def find_log_sums(graph: Graph) -> LogSums:
    """Every such select of the graph."""
    made = producers(graph)
    found: dict[int, LogSum] = {}
    for position, eqn in enumerate(graph.eqns):
        got = _log_sum(eqn, position, made) if eqn.op == "select" else None
        if got is not None:
            found.setdefault(got.total, got)
    return LogSums(found, made)


def _log_sum(root: Eqn, position: int, made: dict[int, Eqn]) -> LogSum | None:
    cond, fill, both = (made.get(v.id) for v in root.ins)
    if cond is None or cond.op != "eq" or both is None or both.op != "add":
        return None
    if not _is_minus_inf(fill) or not _is_minus_inf(made.get(cond.ins[1].id)):
        return None
    for a, b in (both.ins, both.ins[::-1]):
        log = made.get(b.id)
        if log is None or log.op != "log":
            continue
        ways = [_back(v, made) for v in (cond.ins[0], a, log.ins[0])]
        tops, total = {ways[0][0].id, ways[1][0].id}, ways[2][0]
        if len(tops) == 1 and root.out.type.elems == total.type.elems:
            between = [e for _, eqns in ways for e in eqns]
            unique = {e.outs[0].id: e for e in (*between, log, both, cond, root)}
            return LogSum(root, tuple(unique.values()), total.id, tops.pop(), position)
    return None


def _is_minus_inf(eqn: Eqn | None) -> bool:
    return eqn is not None and eqn.op == "const" and number_attr(eqn, "value") == -math.inf


def _back(v: Var, made: dict[int, Eqn]) -> tuple[Var, list[Eqn]]:
    """v before reshapes and casts between floats, and those."""
    passed: list[Eqn] = []
    while (eqn := made.get(v.id)) is not None and (eqn.op == "reshape" or is_float_cast(eqn)):
        passed.append(eqn)
        v = eqn.ins[0]
    return v, passed
