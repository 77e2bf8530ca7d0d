"""Every half of a value's last axis, and sums of products of such pieces.

A piece is `count` elements of the last axis of a value, from `start` in steps of `step`: the first
or second half, or the even or odd elements, whether they were sliced, split off by a reshape, or
both.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.ir.attrs import ints_attr
from poot.ir.graph import Eqn, Var
from poot.passes.engine import Scope

_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class Piece:
    """Elements start, start + step, ... of the last axis of x, `count` of them."""

    x: Var
    start: int
    step: int
    count: int


def piece_of(scope: Scope, v: Var) -> Piece | None:
    """The piece that v is, of shape [..., count] or [..., count, 1]; None where it is none."""
    eqn = scope.producer(v)
    while eqn is not None and eqn.op == "reshape":
        eqn = scope.producer(eqn.ins[0])
    if eqn is None or eqn.op != "slice":
        return None
    x, whole = eqn.ins[0], eqn.ins[0].type.shape
    starts, steps = ints_attr(eqn, "start"), ints_attr(eqn, "step")
    cut = [a for a, (n, m) in enumerate(zip(whole, eqn.out.type.shape, strict=True)) if n != m]
    split = scope.producer(x)
    rank = len(whole)
    piece: Piece | None = None
    if split is not None and split.op == "reshape" and _splits_last(split):
        base, (outer, inner) = split.ins[0], whole[-2:]
        if cut == [rank - 1] and eqn.out.type.shape[-1] == 1:
            piece = Piece(base, starts[-1], inner, outer)
        elif cut == [rank - 2] and eqn.out.type.shape[-2] == 1:
            piece = Piece(base, starts[-2] * inner, 1, inner)
    if piece is None and cut == [rank - 1]:
        piece = Piece(x, starts[-1], steps[-1], eqn.out.type.shape[-1])
    if piece is None:
        return None
    lead = piece.x.type.shape[:-1]
    return piece if v.type.shape in ((*lead, piece.count), (*lead, piece.count, 1)) else None


def _splits_last(eqn: Eqn) -> bool:
    """Whether a reshape only makes two axes of the last."""
    before, after = eqn.ins[0].type.shape, eqn.out.type.shape
    return len(after) == len(before) + 1 and bool(before) and after[:-2] == before[:-1]


@dataclass(frozen=True, slots=True)
class Term:
    """sign times the product of the factors."""

    sign: int
    factors: tuple[Var, ...]


def terms(scope: Scope, v: Var, depth: int = 0) -> tuple[Term, ...]:
    """v as a sum of at most two products of at most two factors; as itself where it is none."""
    alone = (Term(1, (v,)),)
    eqn = scope.producer(v)
    if eqn is None or depth > _DEEPEST:
        return alone
    if eqn.op == "neg":
        return tuple(Term(-t.sign, t.factors) for t in terms(scope, eqn.ins[0], depth + 1))
    if eqn.op in ("add", "sub"):
        a, b = (terms(scope, x, depth + 1) for x in eqn.ins)
        sign = 1 if eqn.op == "add" else -1
        both = (*a, *(Term(sign * t.sign, t.factors) for t in b))
        return both if len(both) == 2 else alone
    if eqn.op == "mul":
        a, b = (terms(scope, x, depth + 1) for x in eqn.ins)
        if len(a) == len(b) == 1 and len(a[0].factors) == len(b[0].factors) == 1:
            return (Term(a[0].sign * b[0].sign, (*a[0].factors, *b[0].factors)),)
    return alone
