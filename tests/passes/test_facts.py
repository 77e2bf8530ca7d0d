"""Numbers as their dtype holds them, and casts between floats."""

from __future__ import annotations

import math

import pytest

from poot.ir.build import make_eqn
from poot.ir.graph import TensorType, Var
from poot.ir.text import parse
from poot.passes.engine import Scope
from poot.passes.facts import is_float_cast, is_widening, number_of


@pytest.mark.parametrize(
    "dtype, value, want",
    [
        ("f32", "0.5", 0.5),
        ("f16", "0.1", 0.0999755859375),
        ("bf16", "-1e9", -998244352.0),
        ("f16", "-1e9", -math.inf),
        ("i32", "16777217", 16777217.0),
        ("bool", "True", 1.0),
    ],
)
def test_a_constant_is_the_number_that_its_dtype_holds(dtype: str, value: str, want: float):
    graph = parse(f"v0: {dtype}[2] = const() dtype={dtype} shape=(2,) value={value}\nout v0")
    scope = Scope(graph)
    scope.sweep(())
    assert number_of(scope, graph.outputs[0]) == want


def test_the_sign_of_zero_is_kept():
    graph = parse("v0: f32[] = const() dtype=f32 shape=() value=-0.0\nout v0")
    scope = Scope(graph)
    scope.sweep(())
    assert math.copysign(1.0, number_of(scope, graph.outputs[0]) or 0.0) == 1.0
    assert str(number_of(scope, graph.outputs[0])) == "-0.0"


def test_another_value_is_no_number():
    graph = parse("in v0: f32[2]\nv1: f32[2] = exp(v0)\nout v1")
    scope = Scope(graph)
    scope.sweep(())
    assert number_of(scope, graph.inputs[0].var) is None
    assert number_of(scope, graph.outputs[0]) is None


@pytest.mark.parametrize(
    "before, after, floats, widens",
    [
        ("f16", "f32", True, True),
        ("bf16", "f32", True, True),
        ("f8e4m3", "bf16", True, True),
        ("f32", "f16", True, False),
        ("f16", "bf16", True, False),
        ("i32", "f32", False, False),
        ("f32", "bool", False, False),
    ],
)
def test_casts_between_floats_widen_or_round(before, after, floats, widens):
    eqn = make_eqn("cast", (Var(0, TensorType(before, (2,))),), 1, {"dtype": after})
    assert is_float_cast(eqn) is floats
    assert is_widening(eqn) is widens
