"""Norms that move into the matmul after them, and those that don't."""

from __future__ import annotations

import pytest

from tests.support.regions import formed, outline

NORM = """
    in v0: f32[{rows},4]
    weight v1: f32[4] "gain"
    weight v2: f32[4,5] "w"
    v3: f32[{rows},4] = mul(v0, v0)
    v4: f32[{rows},1] = reduce(v3) axis=(1,) keepdim=True kind=sum
    v5: f32[{rows},1] = rsqrt(v4)
    v6: f32[{rows},4] = mul(v0, v5)
    v7: f32[{rows},4] = mul(v6, v1)
    v8: f32[{rows},5] = matmul(v7, v2)
    {rest}
    """


def test_a_norm_of_few_rows_moves_into_its_matmul():
    got = formed(NORM.format(rows=2, rest="out v8"))
    assert outline(got) == ["matmul: mul reduce rsqrt mul mul matmul"]


def test_a_norm_of_many_rows_has_a_launch_of_its_own():
    got = formed(NORM.format(rows=9, rest="out v8"))
    assert outline(got) == ["reduce: mul reduce rsqrt mul mul", "matmul: matmul"]


@pytest.mark.parametrize(
    "rest",
    [
        "out v8, v7",
        "out v8, v5",
        "v9: f32[2,5] = matmul(v6, v2)\nout v8, v9",
        "v9: f32[4,2] = transpose(v7) perm=(1, 0)\nv10: f32[2,2] = matmul(v7, v9)\nout v8, v10",
    ],
)
def test_a_norm_that_something_else_reads_stays(rest: str):
    got = formed(NORM.format(rows=2, rest=rest))
    assert outline(got)[0].startswith("reduce:")


def test_a_norm_of_two_reductions_stays():
    got = formed(
        """
        in v0: f32[2,4]
        weight v1: f32[4,5] "w"
        v2: f32[2,1] = reduce(v0) axis=(1,) keepdim=True kind=sum
        v3: f32[2,4] = sub(v0, v2)
        v4: f32[2,4] = mul(v3, v3)
        v5: f32[2,1] = reduce(v4) axis=(1,) keepdim=True kind=sum
        v6: f32[2,4] = mul(v3, v5)
        v7: f32[2,5] = matmul(v6, v1)
        out v7
        """
    )
    assert [line.split(":")[0] for line in outline(got)] == ["reduce", "matmul"]


def test_a_reduction_over_part_of_the_row_stays():
    got = formed(
        """
        in v0: f32[2,4]
        weight v1: f32[4,5] "w"
        v2: f32[2,2,2] = reshape(v0) shape=(2, 2, 2)
        v3: f32[2,2,1] = reduce(v2) axis=(2,) keepdim=True kind=sum
        v4: f32[2,2,2] = mul(v2, v3)
        v5: f32[2,4] = reshape(v4) shape=(2, 4)
        v6: f32[2,5] = matmul(v5, v1)
        out v6
        """
    )
    assert [line.split(":")[0] for line in outline(got)] == ["reduce", "matmul"]


def test_a_norm_of_a_state_that_is_written_over_before_the_matmul_stays():
    got = formed(
        """
        in v0: f32[2,4]
        state v1: f32[2,4] "s" -> v6
        slot v2: i32[] "p" kind=pos range=(0, 1)
        v3: f32[2,1] = reduce(v1) axis=(1,) keepdim=True kind=sum
        v4: f32[2,4] = mul(v1, v3)
        v5: f32[2,4] = exp(v0)
        v6: f32[2,4] = dynamic_update_slice(v1, v5, v2) axis=0
        v7: f32[4,2] = transpose(v6) perm=(1, 0)
        v8: f32[2,2] = matmul(v4, v7)
        out v8
        """
    )
    assert outline(got)[0] == "reduce: reduce mul"
