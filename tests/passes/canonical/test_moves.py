"""Moves merged, and gone where they move nothing."""

from __future__ import annotations

import pytest

from poot.passes.canonical.moves import MOVES
from tests.support.rewrites import checker, stays

check, stay = checker(*MOVES), stays(*MOVES)


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


SPLIT = """
    in v0: f32[2,3,4,5]
    in v1: f32[6,5,6]
    v2: f32[6,4,5] = reshape(v0) shape=(6, 4, 5)
    v4: f32[6,4,6] = matmul(v2, v1)
    v5: f32[2,3,4,6] = reshape(v4) shape=(2, 3, 4, 6)
    """


def test_batch_axes_made_one_for_a_matmul_stay_two():
    check(
        SPLIT + "out v5",
        """
        in v0: f32[2,3,4,5]
        in v1: f32[6,5,6]
        v6: f32[2,3,5,6] = reshape(v1) shape=(2, 3, 5, 6)
        v7: f32[2,3,4,6] = matmul(v0, v6)
        out v7
        """,
    )


@pytest.mark.parametrize(
    "before, after",
    [
        ("out v5", "out v5, v4"),
        ("shape=(2, 3, 4, 6)", "shape=(3, 2, 4, 6)"),
        ("in v0: f32[2,3,4,5]", "in v0: f32[3,2,4,5]"),
        ("in v1: f32[6,5,6]", "in v1: f32[1,5,6]"),
    ],
)
def test_a_matmul_that_is_read_in_another_form_stays(before: str, after: str):
    text = (SPLIT + "out v5").replace(before, after)
    stay(
        text.replace(
            "v5: f32[2,3,4,6] = reshape(v4) shape=(3", "v5: f32[3,2,4,6] = reshape(v4) shape=(3"
        )
    )
