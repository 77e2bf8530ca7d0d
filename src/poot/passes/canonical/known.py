"""Integers and bools that no input decides: computed here, and one number where all are one.

before   i = iota()[8]  j = add(i, 1)  k = sub(j, i)  c = eq(k, 1)      after   c = const(true)[8]
before   c = concat(const(0), const(0))                                 after   c = const(0)
What is known is a value of up to 65536 elements that comes from constants and iotas alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from poot.ir.dtypes import DTYPES, is_float
from poot.ir.graph import Const, Eqn, Var
from poot.oracle import ROWS, At
from poot.passes.engine import Scope, rule
from poot.passes.facts import number_of
from poot.passes.regions.table import ELEMENTWISE

_MOST_ELEMS = 1 << 16
_MOST_OF_MASKS = 1 << 24
_DEEPEST = 48
_MOVES = ("reshape", "broadcast", "transpose", "slice", "concat", "const", "iota", "reduce")


@dataclass(frozen=True, slots=True)
class _Search:
    """Values up to so many elements, of floats too or not; `memo` has what was found."""

    most: int
    floats: bool
    memo: dict[int, np.ndarray | None] = field(default_factory=dict[int, np.ndarray | None])


def integers_of(scope: Scope, var: Var) -> np.ndarray | None:
    """The integers or bools that var is, where no input but constants decides them."""
    return _known(scope, var, 0, _Search(_MOST_ELEMS, floats=False))


def values_of(scope: Scope, var: Var) -> np.ndarray | None:
    """What var is, floats among them, of up to 2^24 elements, where constants alone decide it."""
    if var.id not in scope.known:
        rests = _rests_on_constants(scope, var)
        search = _Search(_MOST_OF_MASKS, floats=True)
        scope.known[var.id] = _known(scope, var, 0, search) if rests else None
    return scope.known[var.id]


def _rests_on_constants(scope: Scope, var: Var) -> bool:
    """Whether nothing else is read: asked before anything is computed."""
    stack, seen = [var], set[int]()
    while stack:
        var = stack.pop()
        given, eqn = scope.input(var), scope.producer(var)
        if given is not None and not isinstance(given.storage, Const):
            return False
        if (given is None and eqn is None) or len(seen) > _DEEPEST:
            return False
        if var.id not in seen and eqn is not None:
            stack.extend(eqn.ins)
        seen.add(var.id)
    return True


def _known(scope: Scope, var: Var, depth: int, search: _Search) -> np.ndarray | None:
    if var.id not in search.memo:
        search.memo[var.id] = _computed(scope, var, depth, search)
    return search.memo[var.id]


def _computed(scope: Scope, var: Var, depth: int, search: _Search) -> np.ndarray | None:
    if var.type.elems > search.most or (is_float(var.type.dtype) and not search.floats):
        return None
    given = scope.input(var)
    if given is not None:
        if not isinstance(given.storage, Const):
            return None
        held = DTYPES[var.type.dtype].numpy
        return np.frombuffer(given.storage.data, held).reshape(var.type.shape)
    eqn = scope.producer(var)
    if eqn is None or depth > _DEEPEST:
        return None
    got = _run(scope, eqn, depth, search)
    return got[eqn.outs.index(var)] if got is not None else None


def _run(scope: Scope, eqn: Eqn, depth: int, search: _Search) -> tuple[np.ndarray, ...] | None:
    """The results of an eqn whose operands are all known."""
    if eqn.op not in _MOVES and eqn.op not in ELEMENTWISE:
        return None
    arrays: list[np.ndarray] = []
    for v in eqn.ins:
        array = _known(scope, v, depth + 1, search)
        if array is None:
            return None
        arrays.append(array)
    at = At(tuple(v.type for v in eqn.ins), tuple(v.type for v in eqn.outs), False, _no_body)
    with np.errstate(all="ignore"):
        got = ROWS[eqn.op](at, *arrays, **dict(eqn.attrs))
    return tuple(map(np.asarray, got)) if isinstance(got, tuple) else (np.asarray(got),)


def _no_body(_body: object, _ins: object) -> tuple[np.ndarray, ...]:
    return ()


@rule("eq", "ne", "lt", "le", "gt", "ge")
def one_number(eqn: Eqn, scope: Scope) -> Var | None:
    """A comparison that is known to hold everywhere, or nowhere, is a constant. Orders along the
    last axis stay: of keys' positions a bound says more than a mask of true."""
    out = eqn.out.type
    if not out.elems or (eqn.op not in ("eq", "ne") and out.shape and out.shape[-1] != 1):
        return None
    search = _Search(_MOST_ELEMS, floats=False)
    got = _run(scope, eqn, 0, search) if out.elems <= _MOST_ELEMS else None
    if got is None or not (got[0] == got[0].flat[0]).all():
        return None
    return scope.emit("const", shape=out.shape, dtype=out.dtype, value=got[0].flat[0].item())


@rule("concat")
def of_one_number(eqn: Eqn, scope: Scope) -> Var | None:
    """A concat of constants of one number is a constant."""
    numbers = {number_of(scope, v) for v in eqn.ins}
    maker, out = scope.producer(eqn.ins[0]), eqn.out.type
    if len(numbers) > 1 or None in numbers or maker is None:
        return None
    if numbers == {0.0} and is_float(out.dtype):  # +0 and -0 are equal
        return None
    return scope.emit("const", shape=out.shape, dtype=out.dtype, value=maker.attr("value"))


KNOWN = (one_number, of_one_number)
