"""Softmax over the last axis, in its spellings.

    exp(x - max(x)) / sum(exp(x - max(x)))      with the maximum taken away or not
    e * recip(sum(e))                           for the division
    exp((x - max(x)) * c), c a number           as exp2 is written; c goes to the scores
    reductions with keepdim or without, casts that lose nothing, reshapes that keep the last axis

The sum may divide after the product with the values: div(matmul(e, v), sum(e)). A sink, a logit
that has no key, stands in the maximum and the sum, or is a last column that is cut off again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from poot.ir.attrs import ints_attr, str_attr
from poot.ir.graph import Eqn, Var
from poot.passes.attention.declines import Decline
from poot.passes.attention.views import MOVES, factor_of, lies_by_rows, view_of
from poot.passes.engine import Scope
from poot.passes.facts import is_float_cast


@dataclass(frozen=True, slots=True)
class Chain:
    """The eqns that a rewrite would replace, in no order."""

    eqns: dict[int, Eqn] = field(default_factory=dict[int, Eqn])

    def add(self, eqn: Eqn) -> None:
        self.eqns[eqn.outs[0].id] = eqn


@dataclass(frozen=True, slots=True)
class Softmax:
    """softmax(scores * factor) over the last axis of `scores`; `exps` are its numerators. `top` is
    what was taken away from the scores, and `sink` a logit that stands beside them, or None. Where
    `is_lowered` the scores' own maximum had been taken away once before: `top` is not theirs."""

    scores: Var
    exps: Var
    factor: float
    loc: str
    top: Var | None = None
    sink: Var | None = None
    is_lowered: bool = False


def passed(scope: Scope, var: Var, chain: Chain) -> Var:
    """var before casts between floats and reshapes that keep the last axis; notes them in chain."""
    while (eqn := scope.producer(var)) is not None and passes(eqn):
        chain.add(eqn)
        var = eqn.ins[0]
    return var


def passes(eqn: Eqn) -> bool:
    """Whether eqn is a cast between floats, or a reshape that keeps the last axis."""
    if eqn.op == "reshape":
        x, out = eqn.ins[0].type.shape, eqn.out.type.shape
        return bool(x) and bool(out) and x[-1] == out[-1]
    return is_float_cast(eqn)


def match_softmax(scope: Scope, probs: Var, chain: Chain) -> Softmax | None:
    """The softmax whose result probs is, or None. Raises Decline where it is one, but over another
    axis than the last."""
    eqn = scope.producer(passed(scope, probs, chain))
    if eqn is not None and eqn.op == "slice":
        return match_sink_column(scope, eqn, chain)
    return _divided(scope, eqn, chain) if eqn is not None else None


def _divided(scope: Scope, eqn: Eqn, chain: Chain) -> Softmax | None:
    split = _division(scope, eqn, chain)
    if split is None:
        return None
    exps, total = split
    found = match_exps(scope, exps, chain)
    if found is None or not match_total(scope, total, found, chain, exps.type.shape):
        return None
    chain.add(eqn)
    return found


def match_sink_column(scope: Scope, cut: Eqn, chain: Chain) -> Softmax | None:
    """softmax(concat(scores, sink)) without its last column: the sink has no value to weigh."""
    shape, width = cut.out.type.shape, cut.ins[0].type.shape[-1]
    starts = ints_attr(cut, "start")
    if shape != (*cut.ins[0].type.shape[:-1], width - 1) or any(starts):
        return None
    inner = Chain()
    eqn = scope.producer(passed(scope, cut.ins[0], inner))
    found = _divided(scope, eqn, inner) if eqn is not None else None
    if found is None or found.factor != 1.0 or found.sink is not None:
        return None
    both = scope.producer(passed(scope, found.scores, inner))
    if both is None or both.op != "concat" or len(both.ins) != 2:
        return None
    scores, sink = both.ins
    if (scores.type.shape[-1], sink.type.shape[-1]) != (width - 1, 1):
        return None
    for e in (cut, both):
        inner.add(e)
    wide = scope.producer(sink)
    if wide is not None and wide.op == "broadcast":
        sink = wide.ins[0]
    chain.eqns.update(inner.eqns)
    return replace(found, scores=scores, sink=sink)


def numerators(scope: Scope, probs: Var) -> tuple[Var, str]:
    """(what probs divides by something, the line of the division); probs itself, and an empty
    line, where it is no division."""
    eqn = scope.producer(passed(scope, probs, Chain()))
    split = _division(scope, eqn, Chain()) if eqn is not None else None
    return (split[0], eqn.loc) if split is not None and eqn is not None else (probs, "")


def _division(scope: Scope, eqn: Eqn, chain: Chain) -> tuple[Var, Var] | None:
    """(a, b) where eqn is a / b or a * recip(b)."""
    if eqn.op == "div":
        return eqn.ins[0], eqn.ins[1]
    if eqn.op != "mul":
        return None
    for a, b in (eqn.ins, eqn.ins[::-1]):
        inner = Chain()
        by = scope.producer(spread(scope, b, inner))
        if by is not None and by.op == "recip":
            chain.eqns.update(inner.eqns)
            chain.add(by)
            return a, by.ins[0]
    return None


def spread(scope: Scope, var: Var, chain: Chain) -> Var:
    """var before the casts and moves that give a row's number to its elements."""
    while (eqn := scope.producer(var)) is not None and (eqn.op in MOVES or is_float_cast(eqn)):
        chain.add(eqn)
        var = eqn.ins[0]
    return var


def match_exps(scope: Scope, exps: Var, chain: Chain) -> Softmax | None:
    """exps as exp of scores, less their maximum, times a number."""
    inner = Chain()
    eqn = scope.producer(passed(scope, exps, inner))
    if eqn is None or eqn.op != "exp":
        return None
    inner.add(eqn)
    scores, factor = eqn.ins[0], 1.0
    while (by := scope.producer(passed(scope, scores, inner))) is not None:
        number = factor_of(scope, by)
        if number is None:
            break
        if not _is_shifted(scope, by.ins[0]):
            break
        inner.add(by)
        scores, factor = by.ins[0], factor * number
    shift = scope.producer(passed(scope, scores, inner))
    if shift is not None and shift.op == "sub":
        found = _top(scope, shift, inner)
        if found is not None and factor != 1.0 and found[1] is not None:
            return None
        if found is not None and same_rows(scope, found[0], shift.ins[0], inner):
            inner.add(shift)
            chain.eqns.update(inner.eqns)
            scores = _raised(scope, shift.ins[0], chain) if found[1] is None else shift.ins[0]
            lowered = scores != shift.ins[0]
            return Softmax(scores, exps, factor, eqn.loc, shift.ins[1], found[1], lowered)
    chain.eqns.update(inner.eqns)
    return Softmax(scores, exps, factor, eqn.loc)


def _raised(scope: Scope, scores: Var, chain: Chain) -> Var:
    """The scores before each row's maximum was taken away from them, which no softmax sees."""
    while True:
        inner = Chain()
        eqn = scope.producer(passed(scope, scores, inner))
        if eqn is None or eqn.op != "sub":
            return scores
        try:
            x = fold_of(scope, eqn.ins[1], "max", eqn.out.type.shape, inner)
        except Decline:  # a maximum over another axis is none of a row
            return scores
        if x is None or not same_rows(scope, x, eqn.ins[0], inner):
            return scores
        inner.add(eqn)
        chain.eqns.update(inner.eqns)
        scores = eqn.ins[0]


def _top(scope: Scope, shift: Eqn, chain: Chain) -> tuple[Var, Var | None] | None:
    """(x, sink) where shift takes away each row's maximum of x, or of x and a sink's logit."""
    plain = fold_of(scope, shift.ins[1], "max", shift.out.type.shape, chain)
    if plain is not None:
        return plain, None
    both = scope.producer(shift.ins[1])
    if both is None or both.op != "max":
        return None
    for rows, sink in (both.ins, both.ins[::-1]):
        x = fold_of(scope, rows, "max", shift.out.type.shape, chain)
        if x is not None and rows.type == both.out.type:
            chain.add(both)
            return x, sink
    return None


def _is_shifted(scope: Scope, var: Var) -> bool:
    """Whether var is scores less their maximum, times a number or not: a factor that stands before
    anything else is one of the scores."""
    eqn = scope.producer(passed(scope, var, Chain()))
    return eqn is not None and eqn.op in ("sub", "mul", "div")


def match_total(
    scope: Scope, total: Var, found: Softmax, chain: Chain, shape: tuple[int, ...]
) -> bool:
    """Whether total, broadcast to that shape, gives each row the sum of its numerators."""
    inner = Chain()
    if found.sink is not None:
        rest = _without_sink(scope, total, found, inner)
        if rest is None:
            return False
        total = rest
    summed = fold_of(scope, total, "sum", shape, inner)
    if summed is None or not same_rows(scope, summed, found.exps, inner):
        return False
    chain.eqns.update(inner.eqns)
    return True


def _without_sink(scope: Scope, total: Var, found: Softmax, chain: Chain) -> Var | None:
    """The sum over the keys, where total is that and exp(sink - top)."""
    both = scope.producer(total)
    if both is None or both.op != "add":
        return None
    for rows, share in (both.ins, both.ins[::-1]):
        power = scope.producer(share)
        shift = scope.producer(power.ins[0]) if power is not None and power.op == "exp" else None
        if power is None or shift is None or shift.op != "sub":
            continue
        if shift.ins == (found.sink, found.top) and rows.type == both.out.type:
            for eqn in (both, power, shift):
                chain.add(eqn)
            return rows
    return None


def fold_of(scope: Scope, var: Var, kind: str, shape: tuple[int, ...], chain: Chain) -> Var | None:
    """x where var, broadcast to shape, gives each row of x its own reduction of that kind. Raises
    Decline where the reduction is over another axis than the last."""
    eqn = scope.producer(spread(scope, var, chain))
    x = folded(eqn, kind, Chain()) if eqn is not None else None
    view = view_of(scope, var, rounded=True)
    if eqn is None or x is None or view.base != eqn.out or not lies_by_rows(view, shape):
        return None
    chain.add(eqn)
    return x


def folded(eqn: Eqn, kind: str, chain: Chain) -> Var | None:
    """x where eqn is its reduction of that kind over the last axis. Raises Decline where it is one
    over another axis."""
    if eqn.op != "reduce" or str_attr(eqn, "kind") != kind:
        return None
    rank, axes = len(eqn.ins[0].type.shape), ints_attr(eqn, "axis")
    if axes != (rank - 1,):
        shown = ", ".join(map(str, axes))
        what = f"the softmax is over axis {shown} of {rank}, not over the keys (the last)"
        raise Decline(what, eqn.loc)
    chain.add(eqn)
    return eqn.ins[0]


def same_rows(scope: Scope, a: Var, b: Var, chain: Chain) -> bool:
    """Whether a and b are one value but for casts and reshapes that keep the last axis."""
    return a == b or passed(scope, a, chain) == passed(scope, b, chain)
