"""Integers and bools that no input decides: computed here, and one number where all are one.

before   i = iota()[8]  j = add(i, 1)  k = sub(j, i)  c = eq(k, 1)      after   c = const(true)[8]
before   c = concat(const(0), const(0))                                 after   c = const(0)
What is known is a value of up to 65536 elements that comes from constants and iotas alone.
"""

from __future__ import annotations

import numpy as np

from poot.ir.dtypes import DTYPES, is_float
from poot.ir.graph import Const, Eqn, Var
from poot.oracle import ROWS, At
from poot.passes.engine import Scope, rule
from poot.passes.facts import number_of
from poot.passes.regions.table import ELEMENTWISE

_MOST_ELEMS = 1 << 16
_DEEPEST = 48
_MOVES = ("reshape", "broadcast", "transpose", "slice", "concat", "const", "iota", "reduce")


def integers_of(scope: Scope, var: Var) -> np.ndarray | None:
    """The integers or bools that var is, where no input but constants decides them."""
    return _known(scope, var, 0, {})


def _known(
    scope: Scope, var: Var, depth: int, memo: dict[int, np.ndarray | None]
) -> np.ndarray | None:
    if var.id not in memo:
        memo[var.id] = _computed(scope, var, depth, memo)
    return memo[var.id]


def _computed(
    scope: Scope, var: Var, depth: int, memo: dict[int, np.ndarray | None]
) -> np.ndarray | None:
    if var.type.elems > _MOST_ELEMS or is_float(var.type.dtype):
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
    got = _run(scope, eqn, depth, memo)
    return got[eqn.outs.index(var)] if got is not None else None


def _run(
    scope: Scope, eqn: Eqn, depth: int, memo: dict[int, np.ndarray | None]
) -> tuple[np.ndarray, ...] | None:
    """The results of an eqn whose operands are all known."""
    if eqn.op not in _MOVES and eqn.op not in ELEMENTWISE:
        return None
    arrays: list[np.ndarray] = []
    for v in eqn.ins:
        array = _known(scope, v, depth + 1, memo)
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
    got = _run(scope, eqn, 0, {}) if out.elems <= _MOST_ELEMS else None
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
