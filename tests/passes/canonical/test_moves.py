"""Moves merged, and gone where they move nothing."""

from __future__ import annotations

from poot.passes.canonical.moves import MOVES
from tests.support.rewrites import checker

check = checker(*MOVES)


def test_two_transposes_become_one():
    check(
        """
        in v0: f32[2,3,4]
        v1: f32[4,3,2] = transpose(v0) perm=(2, 1, 0)
        v2: f32[4,2,3] = transpose(v1) perm=(0, 2, 1)
        out v2
        """,
        """
        in v0: f32[2,3,4]
        v1: f32[4,2,3] = transpose(v0) perm=(2, 0, 1)
        out v1
        """,
    )


def test_a_transpose_there_and_back_is_gone():
    check(
        """
        in v0: f32[2,3]
        v1: f32[3,2] = transpose(v0) perm=(1, 0)
        v2: f32[2,3] = transpose(v1) perm=(1, 0)
        out v2
        """,
        "in v0: f32[2,3]\nout v0",
    )


def test_reshapes_and_broadcasts_merge_each_with_its_kind():
    check(
        """
        in v0: f32[6]
        v1: f32[2,3] = reshape(v0) shape=(2, 3)
        v2: f32[3,2,1] = reshape(v1) shape=(3, 2, 1)
        v3: f32[3,2,4] = broadcast(v2) shape=(3, 2, 4)
        v4: f32[5,3,2,4] = broadcast(v3) shape=(5, 3, 2, 4)
        out v4
        """,
        """
        in v0: f32[6]
        v1: f32[3,2,1] = reshape(v0) shape=(3, 2, 1)
        v2: f32[5,3,2,4] = broadcast(v1) shape=(5, 3, 2, 4)
        out v2
        """,
    )


def test_a_transpose_of_axes_of_extent_1_is_a_reshape():
    check(
        """
        in v0: f32[1,2,1,3]
        v1: f32[1,2,3,1] = transpose(v0) perm=(0, 1, 3, 2)
        v2: f32[2,1,3,1] = transpose(v1) perm=(1, 0, 2, 3)
        out v2
        """,
        """
        in v0: f32[1,2,1,3]
        v1: f32[2,1,3,1] = reshape(v0) shape=(2, 1, 3, 1)
        out v1
        """,
    )


def test_a_broadcast_that_repeats_nothing_is_a_reshape():
    check(
        """
        in v0: f32[2,3]
        v1: f32[1,2,3] = broadcast(v0) shape=(1, 2, 3)
        out v1
        """,
        """
        in v0: f32[2,3]
        v1: f32[1,2,3] = reshape(v0) shape=(1, 2, 3)
        out v1
        """,
    )


def test_a_reduction_keeps_its_axes():
    check(
        """
        in v0: f32[2,3]
        v1: f32[2] = reduce(v0) axis=(1,) keepdim=False kind=sum
        v2: f32[2,1] = reshape(v1) shape=(2, 1)
        out v2, v1
        """,
        """
        in v0: f32[2,3]
        v1: f32[2,1] = reduce(v0) axis=(1,) keepdim=True kind=sum
        v2: f32[2] = reshape(v1) shape=(2,)
        out v1, v2
        """,
    )


def test_a_reduction_over_no_axis_is_its_operand():
    check(
        """
        in v0: f32[2,3]
        v1: f32[2,3] = reduce(v0) axis=() keepdim=False kind=sum
        out v1
        """,
        "in v0: f32[2,3]\nout v0",
    )
