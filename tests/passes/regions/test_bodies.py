"""Bodies: their order, their inputs, and launches of too many buffers."""

from __future__ import annotations

from poot.ir.attrs import graph_attr
from poot.ir.graph import Slot
from poot.ir.text import show
from tests.support.regions import formed, outline


def test_a_body_is_numbered_by_itself_and_names_no_one():
    got = formed(
        """
        in v0: f32[4]
        weight v1: f32[4] "w.layers.7.gain"
        v2: f32[4] = exp(v0)
        v3: f32[4] = mul(v2, v1)
        out v3
        """
    )
    body = graph_attr(got.eqns[0])
    assert [i.name for i in body.inputs] == ["i0", "i1"]
    assert "gain" not in show(body)
    assert [v.id for e in body.eqns for v in e.outs] == [2, 3]


def test_ranges_of_slots_go_into_the_body():
    got = formed(
        """
        in v0: f32[4,2]
        slot v1: i32[3] "at" kind=tokens range=(0, 4)
        v2: f32[3,2] = gather(v0, v1) axis=0
        out v2
        """
    )
    storages = [i.storage for i in graph_attr(got.eqns[0]).inputs]
    assert storages == [Slot(), Slot("user", (0, 4))]


def test_a_region_says_the_line_of_its_anchor():
    got = formed(
        """
        in v0: f32[2,2]
        v1: f32[2,2] = exp(v0)  # model.py:1
        v2: f32[2,2] = matmul(v1, v0)  # model.py:2
        v3: f32[2,2] = neg(v2)  # model.py:3
        out v3
        """
    )
    assert [e.loc for e in got.eqns] == ["model.py:2"]


def test_the_order_of_a_body_does_not_hang_on_who_else_reads_its_constants():
    got = formed(
        """
        in v0: f32[2,2]
        in v1: f32[2,2]
        v2: f32[] = const() dtype=f32 shape=() value=0.5
        v3: f32[] = const() dtype=f32 shape=() value=3.0
        v4: f32[2,2] = matmul(v0, v1)
        v5: f32[2,2] = add(v4, v3)
        v6: f32[2,2] = mul(v5, v2)
        v7: f32[2,2] = matmul(v6, v1)
        v8: f32[2,2] = add(v7, v3)
        v9: f32[2,2] = mul(v8, v2)
        out v9
        """
    )
    first, second = (graph_attr(e) for e in got.eqns)
    assert first == second


def test_a_launch_of_too_many_buffers_falls_apart():
    ins = "\n".join(f"in v{n}: f32[4,4]" for n in range(6))
    text = f"""
        {ins}
        v6: f32[4,4] = matmul(v0, v1)
        v7: f32[4,4] = exp(v6)
        v8: f32[4,4] = add(v6, v2)
        v9: f32[4,4] = mul(v6, v3)
        v10: f32[4,4] = sub(v6, v4)
        v11: f32[4,4] = max(v6, v5)
        out v6, v7, v8, v9, v10, v11
        """
    assert len(formed(text).eqns) == 1
    assert len(formed(text, buffers=7).eqns) > 1


def test_values_that_inputs_decide_share_a_launch_with_their_like():
    got = formed(
        """
        slot v0: i32[199] "p" kind=pos range=(0, 9)
        weight v1: f32[8] "w"
        v2: f32[199] = cast(v0) dtype=f32
        v3: f32[199,1] = reshape(v2) shape=(199, 1)
        v4: f32[199,8] = mul(v3, v1)
        v5: f32[199,8] = cos(v4)
        v6: f32[199,8] = sin(v4)
        v7: f32[199,1] = reduce(v5) axis=(1,) keepdim=True kind=sum
        v8: f32[199,1] = reduce(v6) axis=(1,) keepdim=True kind=max
        v9: f32[199,8] = mul(v5, v7)
        v10: f32[199,8] = mul(v6, v8)
        v11: f32[8,199] = transpose(v5) perm=(1, 0)
        v12: f32[199,199] = matmul(v6, v11)
        out v9, v10, v12
        """
    )
    assert "cos" in outline(got)[0]
    assert "sin" in outline(got)[0]


def test_equal_layers_share_the_one_body():
    text = """weight v0: f32[4,4] "w0"
weight v1: f32[4,4] "w1"
in v2: f32[1,4]
v3: f32[1,4] = matmul(v2, v0)
v4: f32[1,4] = exp(v3)
v5: f32[1,4] = matmul(v4, v1)
v6: f32[1,4] = exp(v5)
out v6
"""
    first, second = formed(text).eqns
    assert graph_attr(first) is graph_attr(second)
