"""Integers that no input decides."""

from __future__ import annotations

import pytest

from poot.ir.text import parse
from poot.passes.canonical.known import KNOWN, values_of
from poot.passes.engine import Scope
from tests.support.rewrites import checker, stays

check, stay = checker(*KNOWN), stays(*KNOWN)


def test_a_comparison_of_known_integers_that_is_true_everywhere_is_a_constant():
    check(
        """
        v0: i32[8] = iota() axis=0 dtype=i32 shape=(8,)
        v1: i32[] = const() dtype=i32 shape=() value=3
        v2: i32[8] = add(v0, v1)
        v3: i32[8] = sub(v2, v0)
        v4: bool[8] = eq(v3, v1)
        out v4
        """,
        """
        v5: bool[8] = const() dtype=bool shape=(8,) value=True
        out v5
        """,
    )


def test_a_known_sum_that_is_nowhere_zero_is_found():
    check(
        """
        v0: i32[4,1] = iota() axis=0 dtype=i32 shape=(4, 1)
        v1: i32[1,3] = iota() axis=1 dtype=i32 shape=(1, 3)
        v2: bool[4,3] = le(v1, v0)
        v3: i32[4,3] = cast(v2) dtype=i32
        v4: i32[4,1] = reduce(v3) axis=(1,) keepdim=True kind=sum
        v5: i32[] = const() dtype=i32 shape=() value=0
        v6: bool[4,1] = ne(v4, v5)
        out v6
        """,
        """
        v7: bool[4,1] = const() dtype=bool shape=(4, 1) value=True
        out v7
        """,
    )


@pytest.mark.parametrize("op", ["le", "eq"])
def test_orders_stay_and_so_do_comparisons_of_two_answers(op: str):
    stay(
        f"""
        v0: i32[4,1] = iota() axis=0 dtype=i32 shape=(4, 1)
        v1: i32[1,4] = iota() axis=1 dtype=i32 shape=(1, 4)
        v2: bool[4,4] = {op}(v1, v0)
        out v2
        """
    )


def test_an_order_that_holds_everywhere_stays_for_the_bound_that_it_says():
    stay(
        """
        v0: i32[1,4] = iota() axis=1 dtype=i32 shape=(1, 4)
        v1: i32[] = const() dtype=i32 shape=() value=3
        v2: bool[1,4] = le(v0, v1)
        out v2
        """
    )


def test_a_comparison_with_an_input_stays():
    stay(
        """
        in v0: i32[4]
        v1: i32[4] = iota() axis=0 dtype=i32 shape=(4,)
        v2: bool[4] = eq(v0, v1)
        out v2
        """
    )


def test_a_concat_of_one_number_is_that_number():
    check(
        """
        v0: i32[2] = const() dtype=i32 shape=(2,) value=7
        v1: i32[3] = const() dtype=i32 shape=(3,) value=7
        v2: i32[5] = concat(v0, v1) axis=0
        out v2
        """,
        """
        v3: i32[5] = const() dtype=i32 shape=(5,) value=7
        out v3
        """,
    )


def test_a_concat_of_zeros_of_floats_stays_for_their_signs():
    stay(
        """
        v0: f32[2] = const() dtype=f32 shape=(2,) value=0.0
        v1: f32[3] = const() dtype=f32 shape=(3,) value=-0.0
        v2: f32[5] = concat(v0, v1) axis=0
        out v2
        """
    )


def test_an_order_of_rows_alone_that_holds_everywhere_is_a_constant():
    check(
        """
        v0: i32[4,1] = iota() axis=0 dtype=i32 shape=(4, 1)
        v1: i32[] = const() dtype=i32 shape=() value=0
        v2: bool[4,1] = ge(v0, v1)
        out v2
        """,
        """
        v3: bool[4,1] = const() dtype=bool shape=(4, 1) value=True
        out v3
        """,
    )


def test_values_of_masks_are_computed_once_where_constants_alone_decide_them():
    graph = parse(
        """
        in v0: f32[2,3]
        v1: i32[2,3] = iota() axis=1 dtype=i32 shape=(2, 3)
        v2: f32[2,3] = cast(v1) dtype=f32
        v3: f32[2,3] = mul(v2, v2)
        v4: f32[2,3] = add(v3, v0)
        out v3, v4
        """
    )
    scope = Scope(graph)
    scope.sweep(())
    known, other = graph.outputs
    values = values_of(scope, known)
    assert values is not None
    assert values.tolist() == [[0, 1, 4], [0, 1, 4]]
    assert values_of(scope, known) is values
    assert values_of(scope, other) is None
    assert values_of(scope, graph.inputs[0].var) is None
