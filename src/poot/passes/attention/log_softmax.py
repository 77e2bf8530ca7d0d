"""Softmax over the last axis by way of a logarithm.

    exp(x - log(sum(exp(x))))               as exp(log_softmax(scores)) is, x the scores or the
                                            scores less their maximum
    exp(x - (m + log(sum(exp(x - m)))))     as exp(scores - logsumexp(scores)) is, m made of each
                                            row's maximum

m may be what a select leaves of the maximum (0 where that is infinite), and the sum may stand under
an abs, which it doesn't need.
"""

from __future__ import annotations

from dataclasses import replace

from poot.ir.graph import Eqn, Var
from poot.passes.attention.softmax import (
    Chain,
    Softmax,
    folded,
    match_exps,
    passed,
    same_rows,
    spread,
)
from poot.passes.attention.views import View, lies_by_rows, view_of
from poot.passes.engine import Scope

# What may stand between a row's maximum and what is taken away from the scores.
_PLAIN = ("abs", "lt", "le", "gt", "ge", "eq", "ne", "select", "and", "or", "not", "neg", "cast",
          "reshape", "broadcast", "transpose")  # fmt: skip
_DEEPEST = 16


def match_log_softmax(scope: Scope, probs: Var, chain: Chain) -> Softmax | None:
    """The softmax whose result probs is, spelled by a logarithm, or None. Raises Decline where it
    is one, but over another axis than the last."""
    inner = Chain()
    power = scope.producer(passed(scope, probs, inner))
    if power is None or power.op != "exp":
        return None
    shift = scope.producer(passed(scope, power.ins[0], inner))
    if shift is None or shift.op != "sub":
        return None
    x, taken = shift.ins
    base = _aligned(scope, taken, shift.out.type.shape, inner)
    made = scope.producer(base) if base is not None else None
    if made is None or x.type.shape != shift.out.type.shape:
        return None
    for eqn in (power, shift, made):
        inner.add(eqn)
    found = _of_total(scope, x, made, None, inner) if made.op == "log" else None
    for a, m in (made.ins, made.ins[::-1]) if made.op == "add" else ():
        base = _row_base(scope, a, inner)
        log = scope.producer(base) if base is not None else None
        if found is None and log is not None and log.op == "log":
            inner.add(log)
            found = _of_total(scope, x, log, m, inner)
    if found is None:
        return None
    chain.eqns.update(inner.eqns)
    return replace(found, exps=power.out, loc=power.loc)


def _of_total(scope: Scope, x: Var, log: Eqn, m: Var | None, chain: Chain) -> Softmax | None:
    """softmax(x), where log is of the sum of exp(x), or with m of exp(x - m)."""
    total = log.ins[0]
    size = scope.producer(total)
    if size is not None and size.op == "abs":
        chain.add(size)
        total = size.ins[0]
    summed = _row_fold(scope, total, "sum", chain)
    power = scope.producer(passed(scope, summed, chain)) if summed is not None else None
    if summed is None or power is None or power.op != "exp":
        return None
    if m is None:
        found = match_exps(scope, summed, chain)
        return found if same_rows(scope, power.ins[0], x, chain) else None
    chain.add(power)
    lowered = scope.producer(passed(scope, power.ins[0], chain))
    if lowered is None or lowered.op != "sub":
        return None
    chain.add(lowered)
    if not same_rows(scope, lowered.ins[0], x, chain):
        return None
    if not _is_one_row_value(scope, lowered.ins[1], m, x.type.shape, chain):
        return None
    if not _is_of_top(scope, m, x, chain):
        return None
    return Softmax(x, summed, 1.0, log.loc, lowered.ins[1])


def _aligned(scope: Scope, var: Var, shape: tuple[int, ...], chain: Chain) -> Var | None:
    """What var, broadcast to that shape, gives each row one element of; None where it doesn't."""
    view = view_of(scope, var, rounded=True)
    if not lies_by_rows(view, shape):
        log = scope.producer(view.base)
        if log is not None and log.op == "log":
            total = scope.producer(spread(scope, log.ins[0], Chain()))
            if total is not None:
                folded(total, "sum", Chain())  # where it is over another axis, that is the reason
        return None
    spread(scope, var, chain)
    return view.base


def _row_base(scope: Scope, var: Var, chain: Chain) -> Var | None:
    """What var has the elements of, in their order."""
    view = view_of(scope, var, rounded=True)
    if not lies_by_rows(View(view.base, (*view.axes, ())), (*var.type.shape, 1)):
        return None
    spread(scope, var, chain)
    return view.base


def _is_one_row_value(scope: Scope, a: Var, b: Var, shape: tuple[int, ...], chain: Chain) -> bool:
    """Whether a, broadcast to that shape, and b have one value for each row."""
    base = _aligned(scope, a, shape, chain)
    return base is not None and base == _row_base(scope, b, chain)


def _is_of_top(scope: Scope, m: Var, x: Var, chain: Chain) -> bool:
    """Whether m is made of each row's maximum of x and of numbers alone; notes how in the chain."""
    stack, seen, tops = [m], 0, 0
    while stack and seen < _DEEPEST:
        seen += 1
        var = stack.pop()
        eqn = scope.producer(var)
        if eqn is None:
            return False
        if eqn.op == "const":
            continue
        chain.add(eqn)
        if eqn.op == "reduce":
            of = _row_fold(scope, var, "max", chain)
            if of is None or not same_rows(scope, of, x, chain):
                return False
            tops += 1
        elif eqn.op in _PLAIN:
            stack.extend(eqn.ins)
        else:
            return False
    return tops > 0 and not stack


def _row_fold(scope: Scope, var: Var, kind: str, chain: Chain) -> Var | None:
    """What var has each row's reduction of, in the rows' order."""
    base = _row_base(scope, var, chain)
    eqn = scope.producer(base) if base is not None else None
    return folded(eqn, kind, chain) if eqn is not None else None
