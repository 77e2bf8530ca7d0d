"""Negations, complements and selects in one spelling."""

from __future__ import annotations

from poot.passes.canonical.signs import SIGNS
from tests.support.rewrites import checker, stays

check, stay = checker(*SIGNS), stays(*SIGNS)


def test_minus_a_negation_is_plus():
    check(
        """
        in v0: f32[2]
        in v1: f32[2]
        v2: f32[2] = neg(v1)
        v3: f32[2] = add(v0, v2)
        v4: f32[2] = add(v2, v0)
        v5: f32[2] = sub(v0, v2)
        out v3, v4, v5
        """,
        """
        in v0: f32[2]
        in v1: f32[2]
        v2: f32[2] = sub(v0, v1)
        v3: f32[2] = add(v0, v1)
        out v2, v2, v3
        """,
    )


def test_a_negated_condition_swaps_the_branches():
    check(
        """
        in v0: bool[2]
        in v1: f32[2]
        in v2: f32[2]
        v3: bool[2] = not(v0)
        v4: f32[2] = select(v3, v1, v2)
        out v4
        """,
        """
        in v0: bool[2]
        in v1: f32[2]
        in v2: f32[2]
        v3: f32[2] = select(v0, v2, v1)
        out v3
        """,
    )


def test_a_known_condition_chooses():
    check(
        """
        in v0: f32[2]
        in v1: f32[2]
        v2: bool[] = const() dtype=bool shape=() value=False
        v3: f32[2] = select(v2, v0, v1)
        out v3
        """,
        """
        in v0: f32[2]
        in v1: f32[2]
        out v1
        """,
    )


def test_not_of_an_integer_comparison_is_its_opposite():
    check(
        """
        in v0: i32[2]
        in v1: i32[2]
        v2: bool[2] = lt(v0, v1)
        v3: bool[2] = not(v2)
        out v3
        """,
        """
        in v0: i32[2]
        in v1: i32[2]
        v2: bool[2] = ge(v0, v1)
        out v2
        """,
    )


def test_not_of_an_order_of_floats_stays_since_nan_is_in_none():
    stay(
        """
        in v0: f32[2]
        in v1: f32[2]
        v2: bool[2] = lt(v0, v1)
        v3: bool[2] = not(v2)
        out v3
        """
    )


def test_equality_of_floats_has_an_opposite():
    check(
        """
        in v0: f32[2]
        in v1: f32[2]
        v2: bool[2] = eq(v0, v1)
        v3: bool[2] = not(v2)
        out v3
        """,
        """
        in v0: f32[2]
        in v1: f32[2]
        v2: bool[2] = ne(v0, v1)
        out v2
        """,
    )
