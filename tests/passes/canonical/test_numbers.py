"""Constants folded, single, and on the right."""

from __future__ import annotations

import math

import pytest

from poot.ir.text import parse, show
from poot.passes.canonical.numbers import NUMBERS, numbers_from_arrays
from tests.support.check import check_kept
from tests.support.rewrites import checker, stays

check, stay = checker(*NUMBERS), stays(*NUMBERS)


def test_an_op_of_constants_is_what_the_oracle_says():
    check(
        """
        v0: f32[2] = const() dtype=f32 shape=(2,) value=3.0
        v1: f32[] = const() dtype=f32 shape=() value=0.1
        v2: f32[2] = mul(v0, v1)
        v3: f32[2] = sqrt(v2)
        out v3
        """,
        """
        v0: f32[2] = const() dtype=f32 shape=(2,) value=0.547722578048706
        out v0
        """,
    )


@pytest.mark.parametrize("op", ["add", "mul", "max", "min"])
def test_a_constant_stands_right(op: str):
    check(
        f"""
        in v0: f32[2]
        v1: f32[] = const() dtype=f32 shape=() value=3.0
        v2: f32[2] = {op}(v1, v0)
        out v2
        """,
        f"""
        in v0: f32[2]
        v1: f32[] = const() dtype=f32 shape=() value=3.0
        v2: f32[2] = {op}(v0, v1)
        out v2
        """,
    )


def test_a_comparison_with_a_constant_is_mirrored():
    check(
        """
        in v0: f32[2]
        v1: f32[] = const() dtype=f32 shape=() value=3.0
        v2: bool[2] = le(v1, v0)
        out v2
        """,
        """
        in v0: f32[2]
        v1: f32[] = const() dtype=f32 shape=() value=3.0
        v2: bool[2] = ge(v0, v1)
        out v2
        """,
    )


def test_what_cannot_be_mirrored_stays():
    stay(
        """
        in v0: f32[2]
        v1: f32[] = const() dtype=f32 shape=() value=3.0
        v2: f32[2] = sub(v1, v0)
        out v2
        """
    )


def test_operands_are_stretched_by_the_op_itself():
    check(
        """
        in v0: f32[3]
        in v1: f32[2,3]
        v2: f32[1,3] = reshape(v0) shape=(1, 3)
        v3: f32[2,3] = broadcast(v2) shape=(2, 3)
        v4: f32[2,3] = const() dtype=f32 shape=(2, 3) value=2.0
        v5: f32[2,3] = mul(v1, v4)
        v6: f32[2,3] = add(v5, v3)
        out v6
        """,
        """
        in v0: f32[3]
        in v1: f32[2,3]
        v2: f32[] = const() dtype=f32 shape=() value=2.0
        v3: f32[2,3] = mul(v1, v2)
        v4: f32[2,3] = add(v3, v0)
        out v4
        """,
    )


def test_a_stretch_that_gives_the_result_its_shape_stays():
    stay(
        """
        in v0: f32[1,3]
        v1: f32[2,3] = broadcast(v0) shape=(2, 3)
        v2: f32[2,3] = exp(v1)
        out v2
        """
    )


@pytest.mark.parametrize("by, want", [(4.0, 0.25), (0.5, 2.0), (-8.0, -0.125)])
def test_a_division_by_a_power_of_two_multiplies(by: float, want: float):
    check(
        f"""
        in v0: f32[2]
        v1: f32[] = const() dtype=f32 shape=() value={by}
        v2: f32[2] = div(v0, v1)
        out v2
        """,
        f"""
        in v0: f32[2]
        v1: f32[] = const() dtype=f32 shape=() value={want}
        v2: f32[2] = mul(v0, v1)
        out v2
        """,
    )


@pytest.mark.parametrize("by", [3.0, 2.0**127, math.inf, 0.0])
def test_other_divisions_stay(by: float):
    stay(
        f"""
        in v0: f32[2]
        v1: f32[] = const() dtype=f32 shape=() value={by}
        v2: f32[2] = div(v0, v1)
        out v2
        """
    )


@pytest.mark.parametrize(
    "op, dtype, value, goes",
    [
        ("mul", "f32", "1.0", True),
        ("div", "f16", "1.0", True),
        ("sub", "f32", "0.0", True),
        ("sub", "f32", "-0.0", False),
        ("add", "f32", "-0.0", True),
        ("add", "f32", "0.0", False),
        ("add", "i32", "0", True),
        ("or", "bool", "False", True),
        ("and", "bool", "True", True),
        ("and", "i32", "1", False),
        ("mul", "f32", "0.0", False),
    ],
)
def test_a_neutral_number_goes_where_it_changes_no_bit(op, dtype, value, goes):
    before = f"""
        in v0: {dtype}[2]
        v1: {dtype}[] = const() dtype={dtype} shape=() value={value}
        v2: {dtype}[2] = {op}(v0, v1)
        out v2
        """
    if goes:
        check(before, f"in v0: {dtype}[2]\nout v0")
    else:
        stay(before)


def test_a_neutral_number_that_stretches_stays():
    stay(
        """
        in v0: f32[1]
        in v1: f32[2]
        v2: f32[2] = const() dtype=f32 shape=(2,) value=1.0
        v3: f32[2] = mul(v0, v2)
        out v3
        """
    )


def test_an_array_of_one_number_is_read_as_that_number():
    graph = parse(
        """
        in v0: f32[2]
        constant v1: f32[2] "c" 0x0000003f0000003f
        constant v2: f32[2] "d" 0x0000003f0000803f
        v3: f32[2] = mul(v0, v1)
        v4: f32[2] = mul(v3, v2)
        out v4
        """
    )
    got = numbers_from_arrays(graph)
    assert [e.op for e in got.eqns] == ["const", "mul", "mul"]
    assert got.eqns[0].attr("value") == 0.5
    check_kept(numbers_from_arrays, graph)
    assert show(numbers_from_arrays(got)) == show(got)


def test_zeros_of_either_sign_are_not_one_number():
    graph = parse(
        """
        constant v0: f32[2] "c" 0x0000000000000080
        v1: f32[2] = exp(v0)
        out v1
        """
    )
    assert numbers_from_arrays(graph) is graph


def test_a_nan_is_computed_where_it_is_read_since_its_bits_have_no_number():
    stay(
        """
        v0: f16[] = const() dtype=f16 shape=() value=-inf
        v1: f16[] = sin(v0)
        v2: bf16[] = bitcast(v1) dtype=bf16
        out v2
        """
    )
    graph = parse(
        """
        constant v0: f32[1] "c" 0x0000c0ff
        v1: i32[1] = bitcast(v0) dtype=i32
        out v1
        """
    )
    assert numbers_from_arrays(graph) is graph


@pytest.mark.parametrize("op, number", [("max", "-inf"), ("min", "inf")])
def test_a_bound_that_bounds_nothing_goes(op: str, number: str):
    check(
        f"""
        in v0: f32[3]
        v1: f32[] = const() dtype=f32 shape=() value={number}
        v2: f32[3] = {op}(v0, v1)
        out v2
        """,
        """
        in v0: f32[3]
        out v0
        """,
    )


def test_a_bool_that_stretches_over_true_is_stretched():
    check(
        """
        in v0: bool[1,3]
        v1: bool[2,3] = const() dtype=bool shape=(2, 3) value=True
        v2: bool[2,3] = and(v0, v1)
        out v2
        """,
        """
        in v0: bool[1,3]
        v1: bool[2,3] = broadcast(v0) shape=(2, 3)
        out v1
        """,
    )


@pytest.mark.parametrize("a, b, after", [("True", "False", "out v0"), ("False", "True", "")])
def test_a_choice_of_true_or_false_is_the_bool_itself(a: str, b: str, after: str):
    check(
        f"""
        in v0: bool[3]
        v1: bool[] = const() dtype=bool shape=() value={a}
        v2: bool[] = const() dtype=bool shape=() value={b}
        v3: bool[3] = select(v0, v1, v2)
        out v3
        """,
        f"in v0: bool[3]\n{after or 'v1: bool[3] = not(v0)' + chr(10) + 'out v1'}",
    )


@pytest.mark.parametrize("op, after", [("ne", "out v0"), ("eq", "v1: bool[3] = not(v0)\nout v1")])
def test_whether_a_cast_bool_is_zero_is_the_bool(op: str, after: str):
    check(
        f"""
        in v0: bool[3]
        v1: f32[3] = cast(v0) dtype=f32
        v2: f32[] = const() dtype=f32 shape=() value=0.0
        v3: bool[3] = {op}(v1, v2)
        out v3
        """,
        f"in v0: bool[3]\n{after}",
    )
