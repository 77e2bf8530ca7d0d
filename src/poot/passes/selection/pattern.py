"""Patterns as data: what a value may be made of, matched backwards through its producers.

A pattern binds names to values and numbers; a name that stands twice stands for one value. Sums,
products, ands, ors and equalities match in either order of their operands, comparisons from either
side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from poot.ir.attrs import int_attr, ints_attr, str_attr
from poot.ir.graph import Eqn, Var
from poot.passes.engine import Scope
from poot.passes.facts import number_of

Found = Mapping[str, "Var | float"]


@dataclass(frozen=True, slots=True)
class Bind:
    """Any value, bound to a name."""

    name: str


@dataclass(frozen=True, slots=True)
class Number:
    """One number in every element: this one, or any that a name is bound to."""

    value: float | str


@dataclass(frozen=True, slots=True)
class Index:
    """Each element's index along an axis, counted from the end; other axes have extent 1."""

    axis: int = -1


@dataclass(frozen=True, slots=True)
class Of:
    """An eqn of an op. `out` is which of its results, `kind` and `axis` a reduction's; its operands
    match `ins` in order."""

    op: str
    ins: tuple[Pattern, ...]
    out: int = 0
    kind: str = ""
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class Reshaped:
    """Any number of reshapes of what matches; the value itself is bound to the name, if there is
    one."""

    inner: Pattern
    name: str = ""


@dataclass(frozen=True, slots=True)
class Either:
    """The first of several patterns that fits."""

    ways: tuple[Pattern, ...]


Pattern = Bind | Number | Index | Of | Reshaped | Either

_EITHER_ORDER = ("add", "mul", "and", "or", "eq", "ne", "min", "max")
_TURNED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


def match(scope: Scope, var: Var, pattern: Pattern, found: Found | None = None) -> Found | None:
    """What the names stand for where var fits the pattern, given what is found already."""
    return next(_ways(scope, var, pattern, found or {}), None)


def match_eqn(scope: Scope, eqn: Eqn, pattern: Of) -> Found | None:
    """The same of an eqn that is under rewrite, whose result no one has yet."""
    return next(_of_eqn(scope, eqn, pattern, {}), None)


def _ways(scope: Scope, var: Var, pattern: Pattern, found: Found) -> Iterator[Found]:
    match pattern:
        case Bind(name):
            yield from _bound(found, name, var)
        case Number(value):
            number = number_of(scope, var)
            if number is not None and isinstance(value, str):
                yield from _bound(found, value, number)
            elif number is not None and (number == value or (number != number and value != value)):
                yield found
        case Index(axis):
            if is_index(scope, var, axis):
                yield found
        case Of():
            yield from _of(scope, var, pattern, found)
        case Reshaped(inner, name):
            for after in _bound(found, name, var) if name else iter((found,)):
                yield from _ways(scope, unshaped(scope, var), inner, after)
        case Either(ways):
            for way in ways:
                yield from _ways(scope, var, way, found)


def _bound(found: Found, name: str, value: Var | float) -> Iterator[Found]:
    if name not in found:
        yield {**found, name: value}
    elif found[name] == value:
        yield found


def _of(scope: Scope, var: Var, pattern: Of, found: Found) -> Iterator[Found]:
    eqn = scope.producer(var)
    if eqn is not None and eqn.outs[min(pattern.out, len(eqn.outs) - 1)] == var:
        yield from _of_eqn(scope, eqn, pattern, found)


def _of_eqn(scope: Scope, eqn: Eqn, pattern: Of, found: Found) -> Iterator[Found]:
    if len(eqn.ins) != len(pattern.ins):
        return
    if eqn.op == pattern.op and _fits(eqn, pattern):
        yield from _all(scope, eqn.ins, pattern.ins, found)
        if eqn.op in _EITHER_ORDER and len(eqn.ins) == 2:
            yield from _all(scope, eqn.ins[::-1], pattern.ins, found)
    elif _TURNED.get(eqn.op) == pattern.op:
        yield from _all(scope, eqn.ins[::-1], pattern.ins, found)


def _fits(eqn: Eqn, pattern: Of) -> bool:
    """Whether a reduction is of the pattern's kind and axis."""
    if eqn.op != "reduce":
        return True
    axis = (len(eqn.ins[0].type.shape) + (pattern.axis or 0),)
    return str_attr(eqn, "kind") == pattern.kind and ints_attr(eqn, "axis") == axis


def _all(
    scope: Scope, ins: tuple[Var, ...], patterns: tuple[Pattern, ...], found: Found
) -> Iterator[Found]:
    if not ins:
        yield found
        return
    for after in _ways(scope, ins[0], patterns[0], found):
        yield from _all(scope, ins[1:], patterns[1:], after)


def is_index(scope: Scope, var: Var, axis: int) -> bool:
    """Whether var is an index along that axis alone."""
    eqn = scope.producer(unshaped(scope, var))
    shape = var.type.shape
    if eqn is None or eqn.op != "iota" or -axis > len(shape):
        return False
    extent = shape[axis]
    own = eqn.out.type.shape[int_attr(eqn, "axis")]
    return own == extent == var.type.elems == eqn.out.type.elems


def unshaped(scope: Scope, var: Var) -> Var:
    """var before reshapes."""
    while (eqn := scope.producer(var)) is not None and eqn.op == "reshape":
        var = eqn.ins[0]
    return var


def var_at(found: Found, name: str) -> Var:
    """The value that a name stands for."""
    got = found[name]
    assert isinstance(got, Var), name
    return got


def number_at(found: Found, name: str) -> float:
    """The number that a name stands for."""
    got = found[name]
    assert isinstance(got, (int, float)), name
    return got
