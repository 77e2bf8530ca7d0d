"""Rows that see no key, and get 0 for it: weights that are selected to zero where every score of a
row is -inf, before they meet the values.

before   w = select(eq(reduce(s) kind=max, -inf), 0, softmax(s))
         o = matmul(w, v)
after    a, lse = attention(q, k, v, mask)
         o = select(eq(lse, -inf), 0, a)
The test is spelled by the row's maximum, or by how many scores are not -inf.
"""

from __future__ import annotations

import math

from poot.ir.graph import Var
from poot.passes.attention.declines import Decline
from poot.passes.attention.softmax import Chain, fold_of, passed
from poot.passes.engine import Scope
from poot.passes.facts import number_of


def match_dead_rows(scope: Scope, weights: Var, chain: Chain) -> tuple[Var, Var | None]:
    """(the weights before such a select, the scores that it tests); the weights as they are, and
    None, where there is none."""
    inner = Chain()
    eqn = scope.producer(passed(scope, weights, inner))
    if eqn is None or eqn.op != "select":
        return weights, None
    cond, a, b = eqn.ins
    for kept, other, is_dead in ((b, a, True), (a, b, False)):
        if number_of(scope, other) != 0.0 or kept.type != eqn.out.type:
            continue
        scores = _tested(scope, cond, is_dead, eqn.out.type.shape, inner)
        if scores is not None:
            inner.add(eqn)
            chain.eqns.update(inner.eqns)
            return kept, scores
    return weights, None


def _tested(
    scope: Scope, cond: Var, is_dead: bool, shape: tuple[int, ...], chain: Chain
) -> Var | None:
    """The scores of which cond says, where it holds or where it doesn't, that all of a row are
    -inf."""
    eqn = scope.producer(cond)
    if eqn is None or eqn.op != ("eq" if is_dead else "ne"):
        return None
    number = number_of(scope, eqn.ins[1])
    inner = Chain()
    inner.add(eqn)
    try:
        if number == -math.inf:
            found = fold_of(scope, eqn.ins[0], "max", shape, inner)
        elif number == 0.0:
            found = _counted(scope, fold_of(scope, eqn.ins[0], "sum", shape, inner), inner)
        else:
            return None
    except Decline:  # a fold over another axis is none of a row
        return None
    if found is not None:
        chain.eqns.update(inner.eqns)
    return found


def _counted(scope: Scope, ones: Var | None, chain: Chain) -> Var | None:
    """s where the ones that are counted stand where s is not -inf."""
    count = scope.producer(ones) if ones is not None else None
    test = scope.producer(count.ins[0]) if count is not None and count.op == "cast" else None
    if count is None or test is None or test.op != "ne":
        return None
    if number_of(scope, test.ins[1]) != -math.inf:
        return None
    chain.add(count)
    chain.add(test)
    return test.ins[0]


def without_dead_rows(scope: Scope, out: Var, log_sum: Var) -> Var:
    """out [B,Hq,Lq,Dv] with 0 in the rows whose log-sum-exp [B,Hq,Lq] is -inf."""
    low = scope.emit("const", shape=(), dtype="f32", value=-math.inf)
    zero = scope.emit("const", shape=(), dtype=out.type.dtype, value=0.0)
    dead = scope.emit("eq", log_sum, low)
    dead = scope.emit("reshape", dead, shape=(*dead.type.shape, 1))
    return scope.emit("select", dead, zero, out)
