"""Slices, concats and known gathers in one spelling."""

from __future__ import annotations

from poot.passes.canonical.parts import PARTS
from tests.support.rewrites import checker, stays

check, stay = checker(*PARTS), stays(*PARTS)


def test_a_slice_of_a_slice_is_one():
    check(
        """
        in v0: f32[20]
        v1: f32[9] = slice(v0) start=(1,) step=(2,) stop=(18,)
        v2: f32[3] = slice(v1) start=(2,) step=(3,) stop=(9,)
        out v2
        """,
        """
        in v0: f32[20]
        v1: f32[3] = slice(v0) start=(5,) step=(6,) stop=(18,)
        out v1
        """,
    )


def test_equal_slices_have_equal_bounds():
    check(
        """
        in v0: f32[6]
        v1: f32[3] = slice(v0) start=(0,) step=(2,) stop=(5,)
        v2: f32[3] = slice(v0) start=(0,) step=(2,) stop=(6,)
        out v1, v2
        """,
        """
        in v0: f32[6]
        v1: f32[3] = slice(v0) start=(0,) step=(2,) stop=(5,)
        out v1, v1
        """,
    )


def test_a_slice_in_one_operand_of_a_concat_is_a_slice_of_that():
    check(
        """
        in v0: f32[2,3]
        in v1: f32[2,4]
        v2: f32[2,7] = concat(v0, v1) axis=1
        v3: f32[2,2] = slice(v2) start=(0, 4) step=(1, 1) stop=(2, 6)
        v4: f32[2,3] = slice(v2) start=(0, 0) step=(1, 1) stop=(2, 3)
        out v3, v4
        """,
        """
        in v0: f32[2,3]
        in v1: f32[2,4]
        v2: f32[2,2] = slice(v1) start=(0, 1) step=(1, 1) stop=(2, 3)
        out v2, v0
        """,
    )


def test_a_slice_over_two_operands_stays():
    stay(
        """
        in v0: f32[3]
        in v1: f32[4]
        v2: f32[7] = concat(v0, v1) axis=0
        v3: f32[2] = slice(v2) start=(2,) step=(1,) stop=(4,)
        out v3
        """
    )


def test_neighbouring_slices_join_again():
    check(
        """
        in v0: f32[2,6]
        v1: f32[2,2] = slice(v0) start=(0, 0) step=(1, 1) stop=(2, 2)
        v2: f32[2,3] = slice(v0) start=(0, 2) step=(1, 1) stop=(2, 5)
        v3: f32[2,1] = slice(v0) start=(0, 5) step=(1, 1) stop=(2, 6)
        v4: f32[2,6] = concat(v1, v2, v3) axis=1
        v5: f32[2,4] = concat(v2, v3) axis=1
        out v4, v5
        """,
        """
        in v0: f32[2,6]
        v1: f32[2,4] = slice(v0) start=(0, 2) step=(1, 1) stop=(2, 6)
        out v0, v1
        """,
    )


def test_halves_in_the_other_order_stay():
    stay(
        """
        in v0: f32[4]
        v1: f32[2] = slice(v0) start=(0,) step=(1,) stop=(2,)
        v2: f32[2] = slice(v0) start=(2,) step=(1,) stop=(4,)
        v3: f32[4] = concat(v2, v1) axis=0
        out v3
        """
    )


def test_a_concat_of_a_concat_is_flat():
    check(
        """
        in v0: f32[2]
        in v1: f32[3]
        in v2: f32[0]
        v3: f32[5] = concat(v0, v1) axis=0
        v4: f32[7] = concat(v3, v2, v0) axis=0
        out v4
        """,
        """
        in v0: f32[2]
        in v1: f32[3]
        in v2: f32[0]
        v3: f32[7] = concat(v0, v1, v0) axis=0
        out v3
        """,
    )


def test_a_gather_in_even_steps_is_a_slice():
    check(
        """
        in v0: f32[2,9]
        constant v1: i32[3] "at" 0x010000000400000007000000
        v2: f32[2,3] = gather(v0, v1) axis=1
        out v2
        """,
        """
        in v0: f32[2,9]
        constant v1: i32[3] "at" 0x010000000400000007000000
        v2: f32[2,3] = slice(v0) start=(0, 1) step=(1, 3) stop=(2, 8)
        out v2
        """,
    )


def test_a_gather_of_one_index_clamps_as_a_gather_does():
    check(
        """
        in v0: f32[2,9]
        v1: i32[] = const() dtype=i32 shape=() value=12
        v2: f32[2] = gather(v0, v1) axis=1
        out v2
        """,
        """
        in v0: f32[2,9]
        v1: f32[2,1] = slice(v0) start=(0, 8) step=(1, 1) stop=(2, 9)
        v2: f32[2] = reshape(v1) shape=(2,)
        out v2
        """,
    )


def test_a_gather_by_other_indices_stays():
    stay(
        """
        in v0: f32[3]
        constant v1: i32[3] "at" 0x010000000000000002000000
        v2: f32[3] = gather(v0, v1) axis=0
        out v2
        """
    )


def test_a_gather_by_indices_of_run_time_stays():
    stay(
        """
        in v0: f32[3]
        slot v1: i32[3] "at" kind=user range=(0, 3)
        v2: f32[3] = gather(v0, v1) axis=0
        out v2
        """
    )


def test_a_gather_by_known_indices_of_several_axes_is_a_slice_and_a_reshape():
    check(
        """
        in v0: f32[6]
        v1: i32[2,2] = iota() axis=1 dtype=i32 shape=(2, 2)
        v2: i32[2,2] = iota() axis=0 dtype=i32 shape=(2, 2)
        v3: i32[2,2] = add(v2, v2)
        v4: i32[2,2] = add(v3, v1)
        v5: f32[2,2] = gather(v0, v4) axis=0
        out v5
        """,
        """
        in v0: f32[6]
        v6: f32[4] = slice(v0) start=(0,) step=(1,) stop=(4,)
        v7: f32[2,2] = reshape(v6) shape=(2, 2)
        out v7
        """,
    )
