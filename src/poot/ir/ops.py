"""The op table: one row an op, holding its name, arity, attributes, typing rule and meaning.

A rule takes the operands' types and the attributes by name, and returns a TensorType or a tuple of
them. Its docstring is the op's semantics: docs/ops.md is made from it. Rows live in `ir/rules/`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from poot.errors import TypeRuleError
from poot.ir.graph import TensorType

Rule = Callable[..., "TensorType | tuple[TensorType, ...]"]


@dataclass(frozen=True, slots=True)
class OpRow:
    """One op. `ins` is its operand count, or None where it varies; only passes form `fused` ops."""

    name: str
    ins: int | None
    attrs: tuple[str, ...]
    rule: Rule
    fused: bool = False

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
        OPS[name] = OpRow(name, ins, tuple(sorted(attrs)), rule, fused)
        return rule

    return add


def out_types(
    name: str, ins: tuple[TensorType, ...], attrs: tuple[tuple[str, object], ...], loc: str = ""
) -> tuple[TensorType, ...]:
    """Runs an op's rule. Raises TypeRuleError with the op's name and the user's line."""
    row = OPS.get(name)
    if row is None:
        raise TypeRuleError(f"there is no op {name!r}", loc)
    if row.ins is not None and len(ins) != row.ins:
        raise TypeRuleError(f"{name} needs {row.ins} operands: got {len(ins)}", loc)
    unknown = sorted({key for key, _ in attrs} - set(row.attrs))
    if unknown:
        raise TypeRuleError(f"{name} has no attribute {', '.join(unknown)}", loc)
    try:
        got = row.rule(*ins, **dict(attrs))
    except TypeRuleError as e:
        raise TypeRuleError(f"{name} {e.message}", e.loc or loc) from None
    return got if isinstance(got, tuple) else (got,)
