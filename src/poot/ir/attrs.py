"""An eqn's attributes by type. The typing rule has seen them: a wrong type here is poot's fault."""

from __future__ import annotations

from typing import cast

from poot.ir.graph import Eqn, Graph


def int_attr(eqn: Eqn, name: str) -> int:
    value = eqn.attr(name)
    assert isinstance(value, int), (eqn.op, name, value)
    return value


def ints_attr(eqn: Eqn, name: str) -> tuple[int, ...]:
    value = eqn.attr(name)
    assert isinstance(value, tuple), (eqn.op, name, value)
    return cast("tuple[int, ...]", value)  # the rule's annotation, checked by ops.out_types


def strs_attr(eqn: Eqn, name: str) -> tuple[str, ...]:
    value = eqn.attr(name)
    assert isinstance(value, tuple), (eqn.op, name, value)
    return cast("tuple[str, ...]", value)  # the rule's annotation, checked by ops.out_types


def str_attr(eqn: Eqn, name: str) -> str:
    value = eqn.attr(name)
    assert isinstance(value, str), (eqn.op, name, value)
    return value


def bool_attr(eqn: Eqn, name: str, default: bool = False) -> bool:
    value = eqn.attr(name, default)
    assert isinstance(value, bool), (eqn.op, name, value)
    return value


def number_attr(eqn: Eqn, name: str) -> float | int | bool:
    value = eqn.attr(name)
    assert isinstance(value, (int, float)), (eqn.op, name, value)
    return value


def graph_attr(eqn: Eqn, name: str = "body") -> Graph:
    value = eqn.attr(name)
    assert isinstance(value, Graph), (eqn.op, name, value)
    return value


def subgraphs(eqn: Eqn) -> tuple[Graph, ...]:
    """The Graphs among an eqn's attributes, in the order of their names."""
    return tuple(value for _, value in eqn.attrs if isinstance(value, Graph))
