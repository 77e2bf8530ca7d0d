"""The op table: one row an op, holding its name, arity, attributes, typing rule and meaning.

A rule takes the operands' types and the attributes by name, and returns a TensorType or a tuple of
them. Its docstring is the op's semantics: docs/ops.md is made from it. Rows live in `ir/rules/`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from poot.errors import TypeRuleError
from poot.ir.graph import Graph, TensorType

Rule = Callable[..., "TensorType | tuple[TensorType, ...]"]


@dataclass(frozen=True, slots=True)
class OpRow:
    """One op. `ins` is its operand count, or None where it varies; `fused` ops are formed only by
    passes. `kinds` has (attribute, annotation, required) for each attribute of the rule."""

    name: str
    ins: int | None
    attrs: tuple[str, ...]
    rule: Rule
    fused: bool = False
    kinds: tuple[tuple[str, str, bool], ...] = ()

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.rule) or ""


OPS: dict[str, OpRow] = {}


def op(
    name: str, ins: int | None, attrs: tuple[str, ...] = (), *, fused: bool = False
) -> Callable[[Rule], Rule]:
    """Adds a row to the table."""

    def add(rule: Rule) -> Rule:
        assert name not in OPS, name
        by_name = inspect.signature(rule).parameters
        kinds = tuple(
            (a, str(by_name[a].annotation), by_name[a].default is inspect.Parameter.empty)
            for a in sorted(attrs)
        )
        assert all(annotation in _KINDS for _, annotation, _ in kinds), (name, kinds)
        OPS[name] = OpRow(name, ins, tuple(sorted(attrs)), rule, fused, kinds)
        return rule

    return add


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_float(value: object) -> bool:
    return isinstance(value, float) or _is_int(value)


def _each(value: object, claim: Callable[[object], bool]) -> bool:
    if not isinstance(value, tuple):
        return False
    items = cast("tuple[object, ...]", value)  # isinstance says no more
    return all([claim(v) for v in items])


def _are_ints(value: object) -> bool:
    if not isinstance(value, tuple):
        return False
    items = cast("tuple[object, ...]", value)  # isinstance says no more
    return _INTS.issuperset(map(type, items)) or _each(items, _is_int)


def _is_pair(value: object) -> bool:
    if not isinstance(value, tuple):
        return False
    return len(cast("tuple[object, ...]", value)) == 2  # isinstance says no more


_INTS = frozenset((int,))
# What a rule's annotation admits. An annotation without a row here can't be registered.
_KINDS: dict[str, Callable[[object], bool]] = {
    "int": _is_int,
    "bool": lambda v: isinstance(v, bool),
    "str": lambda v: isinstance(v, str),
    "float": _is_float,
    "float | None": lambda v: v is None or _is_float(v),
    "int | None": lambda v: v is None or _is_int(v),
    "float | int | bool": lambda v: isinstance(v, (int, float)),
    "tuple[int, ...]": _are_ints,
    "tuple[str, ...]": lambda v: _each(v, lambda s: isinstance(s, str)),
    "tuple[tuple[int, int], ...]": lambda v: _each(v, lambda p: _is_pair(p) and _each(p, _is_int)),
    "Graph": lambda v: isinstance(v, Graph),
}


def _check_attrs(row: OpRow, attrs: dict[str, object], loc: str) -> None:
    """Every attribute known, of its annotation's kind, and none missing that has no default."""
    if not attrs and not row.attrs:
        return
    unknown = sorted(attrs.keys() - set(row.attrs))
    if unknown:
        raise TypeRuleError(f"{row.name} has no attribute {', '.join(unknown)}", loc)
    for name, annotation, required in row.kinds:
        if name not in attrs:
            if required:
                raise TypeRuleError(f"{row.name} needs the attribute {name}: {annotation}", loc)
        elif not _KINDS[annotation](attrs[name]):
            what = f"{row.name} needs {name} as {annotation}: {name}={attrs[name]!r}"
            raise TypeRuleError(what, loc)


def out_types(
    name: str, ins: tuple[TensorType, ...], attrs: tuple[tuple[str, object], ...], loc: str = ""
) -> tuple[TensorType, ...]:
    """Runs an op's rule. Raises TypeRuleError with the op's name and the user's line."""
    row = OPS.get(name)
    if row is None:
        raise TypeRuleError(f"there is no op {name!r}", loc)
    if row.ins is not None and len(ins) != row.ins:
        raise TypeRuleError(f"{name} needs {row.ins} operands: got {len(ins)}", loc)
    by_name = dict(attrs)
    _check_attrs(row, by_name, loc)
    try:
        got = row.rule(*ins, **by_name)
    except TypeRuleError as e:
        raise TypeRuleError(f"{name} {e.message}", e.loc or loc) from None
    return got if isinstance(got, tuple) else (got,)
