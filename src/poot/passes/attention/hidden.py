"""Conditions on positions: which comparisons of iotas hide the same keys as `causal` and `window`.

A value made of iotas and numbers by sums, differences and moves is affine in its indices: one whole
coefficient an axis, and a constant. A comparison of two such values bounds the key index by the row
index.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.ir.attrs import int_attr, ints_attr
from poot.ir.graph import Eqn, Var
from poot.passes.engine import Scope
from poot.passes.facts import number_of

_DEEPEST = 32


@dataclass(frozen=True, slots=True)
class Affine:
    """sum(coefs[a] * index of axis a) + const, exactly."""

    coefs: tuple[int, ...]
    const: int

    def padded(self, rank: int) -> Affine:
        """The same value with axes of extent 1 before its own."""
        return Affine((0,) * (rank - len(self.coefs)) + self.coefs, self.const)


def affine(scope: Scope, var: Var, depth: int = 0) -> Affine | None:
    """var as such a sum, or None. An axis of extent 1 has coefficient 0."""
    eqn = scope.producer(var)
    if eqn is None or depth > _DEEPEST or var.type.dtype != "i32":
        return None
    rank = len(var.type.shape)
    if eqn.op == "const":
        return Affine((0,) * rank, int(number_of(scope, var) or 0))
    if eqn.op == "iota":
        axis = int_attr(eqn, "axis")
        wide = var.type.shape[axis] > 1
        return Affine(tuple(int(a == axis and wide) for a in range(rank)), 0)
    parts = [affine(scope, v, depth + 1) for v in eqn.ins]
    known = [p for p in parts if p is not None]
    return _combined(scope, eqn, known) if len(known) == len(parts) and known else None


def _combined(scope: Scope, eqn: Eqn, parts: list[Affine]) -> Affine | None:
    x, shape = parts[0], eqn.out.type.shape
    match eqn.op:
        case "add" | "sub":
            sign = 1 if eqn.op == "add" else -1
            a, b = (p.padded(len(shape)) for p in parts)
            coefs = tuple(m + sign * n for m, n in zip(a.coefs, b.coefs, strict=True))
            return Affine(coefs, a.const + sign * b.const)
        case "mul":
            by = number_of(scope, eqn.ins[1])
            if by is None:
                return None
            return Affine(tuple(int(by) * c for c in x.coefs), int(by) * x.const).padded(len(shape))
        case "neg":
            return Affine(tuple(-c for c in x.coefs), -x.const)
        case "broadcast":
            return x.padded(len(shape))
        case "transpose":
            return Affine(tuple(x.coefs[p] for p in ints_attr(eqn, "perm")), x.const)
        case "reshape":
            return _reshaped(x, eqn.ins[0].type.shape, shape)
        case _:
            return None


def _reshaped(x: Affine, before: tuple[int, ...], after: tuple[int, ...]) -> Affine | None:
    """x where only axes of extent 1 come or go."""
    wide = [c for c, n in zip(x.coefs, before, strict=True) if n != 1]
    if [n for n in before if n != 1] != [n for n in after if n != 1]:
        return None
    left = list(reversed(wide))
    return Affine(tuple(left.pop() if n != 1 else 0 for n in after), x.const)


@dataclass(frozen=True, slots=True)
class Bound:
    """key <= row + at if `is_upper`, else key >= row + at."""

    is_upper: bool
    at: int


_LESS = {"le": (1, 0), "lt": (1, 1), "ge": (-1, 0), "gt": (-1, 1)}
_OPPOSITE = {"le": "gt", "lt": "ge", "ge": "lt", "gt": "le"}


def bound_of(scope: Scope, cond: Var, holds: bool, shape: tuple[int, ...]) -> Bound | None:
    """What a condition says of keys (the last axis of shape) and rows (the one before), where it
    holds, or where it doesn't; None where that is no such bound."""
    eqn = scope.producer(cond)
    while eqn is not None and eqn.op in ("reshape", "broadcast"):
        if eqn.op == "reshape" and not only_leads(eqn):
            return None
        eqn = scope.producer(eqn.ins[0])
    if eqn is None or eqn.op not in _LESS:
        return None
    a, b = (affine(scope, v) for v in eqn.ins)
    rank = len(shape)
    if a is None or b is None or max(len(a.coefs), len(b.coefs)) > rank:
        return None
    sign, gap = _LESS[eqn.op if holds else _OPPOSITE[eqn.op]]
    a, b = a.padded(rank), b.padded(rank)
    coefs = [sign * (m - n) for m, n in zip(a.coefs, b.coefs, strict=True)]
    const = sign * (a.const - b.const) + gap  # coefs . index + const <= 0
    if any(coefs[:-2]):
        return None
    row, key = coefs[-2:] if rank >= 2 else (0, coefs[-1])
    if rank < 2 or (shape[-2] > 1 and row != -key):
        return None
    if key == 1:
        return Bound(True, -const)
    return Bound(False, const) if key == -1 else None


def only_leads(eqn: Eqn) -> bool:
    """Whether a reshape only adds or takes axes of extent 1 in front."""
    before, after = eqn.ins[0].type.shape, eqn.out.type.shape
    n = min(len(before), len(after))
    short = before[: len(before) - n] + after[: len(after) - n]
    return before[len(before) - n :] == after[len(after) - n :] and all(e == 1 for e in short)


def conjuncts(scope: Scope, cond: Var, holds: bool) -> list[tuple[Var, bool]]:
    """The claims that together say that cond holds (or doesn't): ands are taken apart, and nots."""
    out: list[tuple[Var, bool]] = []
    stack = [(cond, holds)]
    while stack:
        var, wanted = stack.pop()
        eqn = scope.producer(var)
        if eqn is not None and eqn.op == "not":
            stack.append((eqn.ins[0], not wanted))
        elif eqn is not None and eqn.op == ("and" if wanted else "or"):
            stack.extend((v, wanted) for v in reversed(eqn.ins))
        else:
            out.append((var, wanted))
    return out
