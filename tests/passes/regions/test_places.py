"""The backward step: what is stored, and what each reader computes again."""

from __future__ import annotations

from poot.ir.text import parse
from poot.passes.regions.groups import Grouper
from poot.passes.regions.places import MANY, Placer, Places, source_place


def placed(text: str) -> Places:
    graph = parse(text)
    return Placer(graph, Grouper(graph, 16).run()).run()


def test_what_one_launch_reads_is_deferred_to_it():
    got = placed(
        """
        in v0: f32[4,4]
        v1: f32[4,4] = tanh(v0)
        v2: f32[4,4] = matmul(v1, v0)
        out v2
        """
    )
    assert got.placed == [None, 0]
    assert got.dest[0] == 0


def test_what_several_read_is_stored_if_it_costs_something():
    got = placed(
        """
        in v0: f32[99,4]
        in v1: f32[4,4]
        v2: f32[99,4] = tanh(v0)
        v3: f32[4,4] = transpose(v1) perm=(1, 0)
        v4: f32[99,4] = matmul(v2, v3)
        v5: f32[99,1] = reduce(v2) axis=(1,) keepdim=True kind=max
        v6: f32[99,4] = matmul(v4, v3)
        out v5, v6
        """
    )
    assert got.placed[0] == source_place(0)
    assert (got.placed[1], got.dest[1]) == (None, MANY)


def test_a_dear_value_before_many_rows_is_stored():
    few, many = (
        placed(
            f"""
            in v0: f32[{rows},4]
            v1: f32[{rows},4] = tanh(v0)
            v2: f32[4,{rows}] = transpose(v0) perm=(1, 0)
            v3: f32[{rows},{rows}] = matmul(v1, v2)
            out v3
            """
        )
        for rows in (2, 50)
    )
    assert few.placed[0] is None
    assert many.placed[0] == source_place(0)


def test_a_chain_is_cut_before_it_costs_too_much():
    lines = [f"v{n + 1}: f32[4] = exp(v{n})" for n in range(40)]
    got = placed("\n".join(("in v0: f32[4]", *lines, "out v40")))
    stored = [n for n, launch in enumerate(got.placed) if launch is not None]
    assert stored[-1] == 39
    assert 3 < len(stored) < 8


def test_a_value_read_at_many_indices_is_stored():
    lines = [
        f"v{2 * n + 1}: f32[4,4] = transpose(v{2 * n}) perm=(1, 0)\n"
        f"v{2 * n + 2}: f32[4,4] = add(v{2 * n}, v{2 * n + 1})"
        for n in range(12)
    ]
    got = placed("\n".join(("in v0: f32[4,4]", *lines, "out v24")))
    assert sum(launch is not None for launch in got.placed) >= 3


def test_an_old_state_is_not_read_again_after_it_is_written_over():
    got = placed(
        """
        in v0: f32[1,4]
        state v1: f32[8,4] "s" -> v4
        slot v2: i32[] "p" kind=pos range=(0, 8)
        v3: f32[4,8] = transpose(v1) perm=(1, 0)
        v4: f32[8,4] = dynamic_update_slice(v1, v0, v2) axis=0
        v5: f32[8,8] = matmul(v4, v3)
        out v5
        """
    )
    assert got.placed[0] == source_place(0)


def test_a_value_stored_anyway_is_squared_where_it_is_read():
    got = placed(
        """
        in v0: f32[99,4]
        in v1: f32[4,4]
        v2: f32[99,4] = matmul(v0, v1)
        v3: f32[99,4] = mul(v2, v2)
        v4: f32[99,1] = reduce(v3) axis=(1,) keepdim=True kind=sum
        v5: f32[99,4] = mul(v2, v4)
        out v5
        """
    )
    assert got.placed == [0, None, 1, 1]
    assert got.dest[1] == 1


def test_gathered_rows_are_stored_wide_where_several_launches_read_them_so():
    text = """in v0: bf16[50,8]
              in v1: i32[2]
              in v2: f32[8,8]
              v3: bf16[2,8] = gather(v0, v1) axis=0
              v4: f32[2,8] = cast(v3) dtype=f32
              v5: f32[2,8] = matmul(v4, v2)
              v6: f32[2,8] = add(v5, v4)
              v7: f32[2,8] = matmul(v6, v2)
              v8: f32[2,8] = add(v7, v4)
              out v8"""
    got = placed(text)
    assert got.placed[0] is None
    assert got.placed[1] is not None
    many = text.replace("[2,8]", "[5000,8]").replace("i32[2]", "i32[5000]")
    assert placed(many).placed[1] is None
