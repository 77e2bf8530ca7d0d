"""Casts that change nothing, and casts below moves."""

from __future__ import annotations

import pytest

from poot.passes.canonical.casts import CASTS
from tests.support.rewrites import checker, stays

check, stay = checker(*CASTS), stays(*CASTS)


@pytest.mark.parametrize(
    "first, middle, last",
    [
        ("f16", "f32", "f16"),
        ("f16", "f32", "bf16"),
        ("bf16", "f32", "i32"),
        ("i8", "i32", "u8"),
        ("u8", "f16", "f32"),
        ("bool", "i32", "bool"),
        ("f8e4m3", "f16", "f32"),
    ],
)
def test_over_a_cast_that_loses_nothing_there_is_one(first: str, middle: str, last: str):
    before = f"""
        in v0: {first}[3]
        v1: {middle}[3] = cast(v0) dtype={middle}
        v2: {last}[3] = cast(v1) dtype={last}
        out v2
        """
    one = f"in v0: {first}[3]\nv1: {last}[3] = cast(v0) dtype={last}\nout v1"
    check(before, f"in v0: {first}[3]\nout v0" if first == last else one)


@pytest.mark.parametrize(
    "first, middle, last",
    [("f32", "f16", "f32"), ("i32", "f32", "i32"), ("i8", "f32", "u8"), ("f32", "i32", "f32")],
)
def test_a_cast_that_rounds_or_saturates_stays(first: str, middle: str, last: str):
    stay(
        f"""
        in v0: {first}[3]
        v1: {middle}[3] = cast(v0) dtype={middle}
        v2: {last}[3] = cast(v1) dtype={last}
        out v2
        """
    )


def test_a_cast_sinks_below_the_moves():
    check(
        """
        in v0: f16[2,3]
        v1: f32[2,3] = cast(v0) dtype=f32
        v2: f32[3,2] = transpose(v1) perm=(1, 0)
        v3: f32[6] = reshape(v2) shape=(6,)
        out v3
        """,
        """
        in v0: f16[2,3]
        v1: f16[3,2] = transpose(v0) perm=(1, 0)
        v2: f16[6] = reshape(v1) shape=(6,)
        v3: f32[6] = cast(v2) dtype=f32
        out v3
        """,
    )


def test_a_cast_with_two_readers_stays_one():
    stay(
        """
        in v0: f16[2,3]
        v1: f32[2,3] = cast(v0) dtype=f32
        v2: f32[3,2] = transpose(v1) perm=(1, 0)
        v3: f32[2,3] = exp(v1)
        out v2, v3
        """
    )
