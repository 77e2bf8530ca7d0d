"""Attributes by type."""

from __future__ import annotations

import pytest

from poot.ir.attrs import (
    bool_attr,
    graph_attr,
    int_attr,
    ints_attr,
    number_attr,
    str_attr,
    subgraphs,
)
from poot.ir.graph import Eqn, Graph, TensorType, Var

BODY = Graph((), (), ())
EQN = Eqn(
    "region",
    (),
    (Var(0, TensorType("f32", ())),),
    (("axis", 1), ("body", BODY), ("dims", (1, 2)), ("keep", True), ("kind", "sum"), ("x", 0.5)),
)


def test_each_kind_comes_back_as_it_is():
    assert int_attr(EQN, "axis") == 1
    assert ints_attr(EQN, "dims") == (1, 2)
    assert bool_attr(EQN, "keep") is True
    assert bool_attr(EQN, "absent") is False
    assert str_attr(EQN, "kind") == "sum"
    assert number_attr(EQN, "x") == 0.5
    assert graph_attr(EQN) is BODY
    assert subgraphs(EQN) == (BODY,)


def test_another_kind_is_poots_own_fault():
    with pytest.raises(AssertionError):
        int_attr(EQN, "kind")
