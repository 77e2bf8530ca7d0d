"""The forward step: who may share a launch."""

from __future__ import annotations

from poot.ir.text import parse
from poot.passes.regions.groups import FULL, ROW, SOURCE, Grouper, Grouping


def grouped(text: str, buffers: int = 16) -> Grouping:
    return Grouper(parse(text), buffers).run()


def test_what_only_inputs_decide_is_in_no_group():
    got = grouped("in v0: f32[2]\nv1: f32[2] = exp(v0)\nv2: f32[2] = neg(v1)\nout v2")
    assert got.home == [SOURCE, SOURCE]


def test_a_group_is_never_below_its_operands():
    got = grouped(
        """
        in v0: f32[4,4]
        v1: f32[4,4] = matmul(v0, v0)
        v2: f32[4,1] = reduce(v1) axis=(1,) keepdim=True kind=sum
        v3: f32[4,4] = add(v1, v2)
        v4: f32[4,4] = matmul(v3, v1)
        v5: f32[4,4] = add(v4, v1)
        out v5
        """
    )
    assert got.home == [0, 1, 1, 2, 2]


def test_results_apply_index_by_index_or_open_a_group():
    got = grouped(
        """
        in v0: f32[3,3]
        v1: f32[3,3] = matmul(v0, v0)
        v2: f32[3,3] = transpose(v1) perm=(1, 0)
        v3: f32[3,3] = exp(v2)
        v4: f32[3,3] = add(v3, v1)
        v5: f32[1,3] = slice(v1) start=(0, 0) step=(1, 1) stop=(1, 3)
        out v4, v5
        """
    )
    assert got.home == [0, 0, 0, 1, 2]
    assert got.tags[1] != got.tags[2]
    assert got.tags[2] == got.tags[3]


def test_matmuls_of_one_left_operand_share_a_group_unless_one_waits_for_the_other():
    got = grouped(
        """
        in v0: f32[3,3]
        in v1: f32[3,3]
        v2: f32[3,3] = matmul(v0, v1)
        v3: f32[3,3] = matmul(v0, v0)
        v4: f32[3,3] = matmul(v0, v2)
        v5: f32[3,3] = add(v2, v3)
        out v4, v5
        """
    )
    assert got.home == [0, 0, 1, 0]


def test_matmuls_share_no_group_that_has_too_few_buffers():
    text = """
        in v0: f32[3,3]
        in v1: f32[3,3]
        in v2: f32[3,3]
        in v3: f32[3,3]
        v4: f32[3,3] = matmul(v0, v1)
        v5: f32[3,3] = matmul(v0, v2)
        v6: f32[3,3] = matmul(v0, v3)
        out v4, v5, v6
        """
    assert grouped(text).home == [0, 0, 0]
    assert grouped(text, 7).home == [0, 0, 1]


def test_reductions_of_the_same_rows_share_a_group():
    got = grouped(
        """
        in v0: f32[3,4]
        v1: f32[3,4] = mul(v0, v0)
        v2: f32[3,1] = reduce(v0) axis=(1,) keepdim=True kind=sum
        v3: f32[3,1] = reduce(v1) axis=(1,) keepdim=True kind=sum
        v4: f32[3,4] = sub(v0, v2)
        v5: f32[3,1] = reduce(v4) axis=(1,) keepdim=True kind=max
        v6: f32[3,4] = mul(v4, v5)
        v7: f32[3] = reshape(v3) shape=(3,)
        out v6, v7
        """
    )
    assert got.home == [SOURCE, 0, 0, 0, 0, 0, 0]
    assert (got.tags[2], got.tags[4], got.tags[6], got.tags[7]) == (ROW, FULL, FULL, ROW)


def test_a_row_that_meets_columns_leaves_the_group():
    got = grouped(
        """
        in v0: f32[3,3]
        v1: f32[3] = reduce(v0) axis=(1,) keepdim=False kind=sum
        v2: f32[3,3] = add(v0, v1)
        out v2
        """
    )
    assert got.home == [0, 1]


def test_a_reduction_of_leading_axes_keeps_to_its_results():
    got = grouped(
        """
        in v0: f32[3,4]
        v1: f32[1,4] = reduce(v0) axis=(0,) keepdim=True kind=sum
        v2: f32[1,4] = exp(v1)
        v3: f32[3,4] = sub(v0, v2)
        out v3
        """
    )
    assert got.home == [0, 0, 1]


UPDATE = """
    in v0: f32[1,4]
    state v1: f32[8,4] "s" -> v3
    slot v2: i32[] "p" kind=pos range=(0, 8)
    v3: f32[8,4] = dynamic_update_slice(v1, v0, v2) axis=0
    {}
    """


def test_an_update_of_a_state_that_nothing_reads_later_is_in_place():
    assert grouped(UPDATE.format("out v0")).in_place == {0}
    later = UPDATE.format("v4: f32[8,4] = exp(v1)\nout v4")
    assert grouped(later).in_place == set()
    result = UPDATE.format("out v1")
    assert grouped(result).in_place == set()


def test_updates_of_updates_are_in_place():
    got = grouped(
        """
        in v0: f32[1,4]
        state v1: f32[8,4] "s" -> v4
        slot v2: i32[] "p" kind=pos range=(0, 8)
        v3: f32[8,4] = dynamic_update_slice(v1, v0, v2) axis=0
        v4: f32[8,4] = dynamic_update_slice(v3, v0, v2) axis=0
        out v0
        """
    )
    assert got.in_place == {0, 1}
    assert got.updated == {1: 0, 3: 1}


def test_a_state_without_a_new_value_is_not_written_over():
    got = grouped(
        """
        in v0: f32[1,4]
        state v1: f32[8,4] "s"
        slot v2: i32[] "p" kind=pos range=(0, 8)
        v3: f32[8,4] = dynamic_update_slice(v1, v0, v2) axis=0
        out v3
        """
    )
    assert got.in_place == set()


def test_operands_are_stored_where_a_launch_would_read_too_many():
    ins = "\n".join(f"in v{n}: f32[4]" for n in range(8))
    adds = [f"v{8 + n}: f32[4] = add(v{7 + n if n else 0}, v{n + 1})" for n in range(7)]
    got = grouped("\n".join((ins, *adds, "out v14")), 5)
    assert got.cut == {2, 5}
