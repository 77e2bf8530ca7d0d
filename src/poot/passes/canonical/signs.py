"""Negations, complements and selects, each written one way.

before   y = add(x, neg(z))              after   y = sub(x, z)
before   y = select(not(c), a, b)        after   y = select(c, b, a)
before   y = not(lt(i, j))  (integers)   after   y = ge(i, j)
"""

from __future__ import annotations

from poot.ir.dtypes import is_float
from poot.ir.graph import Eqn, Var
from poot.passes.engine import Scope, rule
from poot.passes.facts import number_of

_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}


def _made_by(scope: Scope, v: Var, op: str) -> Eqn | None:
    maker = scope.producer(v)
    return maker if maker is not None and maker.op == op else None


@rule("neg", "not")
def twice_is_nothing(eqn: Eqn, scope: Scope) -> Var | None:
    """neg(neg(x)) and not(not(x)) are x."""
    inner = _made_by(scope, eqn.ins[0], eqn.op)
    return inner.ins[0] if inner is not None else None


@rule("add", "sub")
def take_away(eqn: Eqn, scope: Scope) -> Var | None:
    """x + -z is x - z, -x + z is z - x, x - -z is x + z."""
    a, b = eqn.ins
    right = _made_by(scope, b, "neg")
    if right is not None:
        return scope.emit("sub" if eqn.op == "add" else "add", a, right.ins[0])
    left = _made_by(scope, a, "neg") if eqn.op == "add" else None
    return scope.emit("sub", b, left.ins[0]) if left is not None else None


@rule("not")
def opposite_comparison(eqn: Eqn, scope: Scope) -> Var | None:
    """not(i < j) is i >= j, but of floats only equality has an opposite: NaN is in no order."""
    inner = scope.producer(eqn.ins[0])
    if inner is None or inner.op not in _OPPOSITE:
        return None
    if is_float(inner.ins[0].type.dtype) and inner.op not in ("eq", "ne"):
        return None
    return scope.emit(_OPPOSITE[inner.op], *inner.ins)


@rule("select")
def plain_condition(eqn: Eqn, scope: Scope) -> Var | None:
    """A select takes no negated condition, no constant one, and no two equal branches."""
    cond, a, b = eqn.ins
    inner = _made_by(scope, cond, "not")
    if inner is not None:
        return scope.emit("select", inner.ins[0], b, a)
    if a == b and a.type == eqn.out.type:
        return a
    known = number_of(scope, cond)
    if known is None:
        return None
    chosen = a if known else b
    return chosen if chosen.type == eqn.out.type else None


SIGNS = (twice_is_nothing, take_away, opposite_comparison, plain_condition)
