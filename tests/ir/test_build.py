"""The builder and what it does to attribute values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from poot.errors import TypeRuleError
from poot.ir.build import Builder, freeze
from poot.ir.graph import Slot, TensorType, Weight
from poot.ir.verify import verify

F2 = TensorType("f32", (2,))


def test_a_built_graph_verifies_and_counts_its_ids():
    b = Builder()
    x = b.input(F2, "x", Slot())
    values, indices = b.emit("topk", x, k=1, loc="m.py:1")
    y = b.one("neg", values)
    graph = b.graph((y, indices))
    verify(graph)
    assert [v.id for e in graph.eqns for v in e.outs] == [1, 2, 3]
    assert graph.eqns[0].loc == "m.py:1"


def test_a_taken_name_is_refused():
    b = Builder()
    b.input(F2, "x", Slot())
    with pytest.raises(TypeRuleError, match="an input 'x' already"):
        b.input(F2, "x", Weight())


def test_a_bad_eqn_cannot_be_built_and_names_the_line():
    b = Builder()
    x = b.input(F2, "x", Slot())
    with pytest.raises(TypeRuleError, match=r"matmul needs .*\n  at m\.py:2"):
        b.emit("matmul", x, x, loc="m.py:2")
    assert b.eqns == []


def test_attribute_values_become_plain_hashable_data():
    frozen = freeze([np.int64(3), [np.float32(0.5), True], "a"])
    assert frozen == (3, (0.5, True), "a")
    assert hash(frozen) == hash((3, (0.5, True), "a"))


def test_every_nan_is_the_same_object():
    assert freeze(np.float32("nan")) is math.nan
    assert freeze([float("nan")]) == (math.nan,)
