"""Whole graphs into regions."""

from __future__ import annotations

from random import Random

import pytest

from poot.ir.attrs import graph_attr
from poot.ir.build import Builder
from poot.ir.graph import Graph, Slot, TensorType
from poot.ir.text import parse
from poot.limits import profile
from poot.oracle import run
from poot.passes.regions.form import form_regions, launch_buffers
from tests.support.check import assert_same
from tests.support.contract import check_regions
from tests.support.graphs import random_graph, random_inputs
from tests.support.regions import device, formed, outline


def test_an_elementwise_chain_is_one_region():
    got = formed(
        """
        in v0: f32[4]
        in v1: f32[4]
        v2: f32[4] = exp(v0)
        v3: f32[4] = mul(v2, v1)
        v4: f32[4] = add(v3, v0)
        out v4
        """
    )
    assert outline(got) == ["none: exp mul add"]


def test_softmax_is_one_region_anchored_by_its_reductions():
    got = formed(
        """
        in v0: f32[3,5]
        v1: f32[3,1] = reduce(v0) axis=(1,) keepdim=True kind=max
        v2: f32[3,5] = sub(v0, v1)
        v3: f32[3,5] = exp(v2)
        v4: f32[3,1] = reduce(v3) axis=(1,) keepdim=True kind=sum
        v5: f32[3,5] = div(v3, v4)
        out v5
        """
    )
    assert outline(got) == ["reduce: reduce sub exp reduce div"]


def test_a_matmul_takes_its_residual_and_the_layout_of_its_weight():
    got = formed(
        """
        in v0: f32[3,4]
        weight v1: f32[5,4] "w"
        in v2: f32[3,5]
        v3: f32[4,5] = transpose(v1) perm=(1, 0)
        v4: f32[3,5] = matmul(v0, v3)
        v5: f32[3,5] = add(v2, v4)
        out v5
        """
    )
    assert outline(got) == ["matmul: transpose matmul add"]


def test_gate_and_up_share_a_launch_with_what_joins_them():
    got = formed(
        """
        in v0: f32[3,4]
        weight v1: f32[4,6] "gate"
        weight v2: f32[4,6] "up"
        weight v3: f32[6,4] "down"
        v4: f32[3,6] = matmul(v0, v1)
        v5: f32[3,6] = matmul(v0, v2)
        v6: f32[3,6] = tanh(v4)
        v7: f32[3,6] = mul(v6, v5)
        v8: f32[3,4] = matmul(v7, v3)
        out v8
        """
    )
    assert outline(got) == ["matmul: matmul matmul tanh mul", "matmul: matmul"]


def test_a_state_update_ends_the_launch_that_computes_it_in_place():
    got = formed(
        """
        in v0: f32[2,4]
        weight v1: f32[4,3] "w"
        state v2: f32[8,3] "cache" -> v5
        slot v3: i32[] "pos" kind=pos range=(0, 7)
        v4: f32[2,3] = matmul(v0, v1)
        v5: f32[8,3] = dynamic_update_slice(v2, v4, v3) axis=0
        v6: f32[8,3] = exp(v5)
        out v6
        """
    )
    assert outline(got) == ["matmul: matmul dynamic_update_slice", "none: exp"]
    (update,) = got.eqns[0].attr("updates")  # pyright: ignore[reportGeneralTypeIssues]
    assert got.eqns[0].ins[update[1]] == got.inputs[2].var
    assert got.eqns[0].outs[update[0]] == got.states[0][1]


def test_an_update_of_a_state_that_is_read_later_is_not_done_in_place():
    got = formed(
        """
        in v0: f32[2,3]
        state v1: f32[8,3] "cache" -> v3
        slot v2: i32[] "pos" kind=pos range=(0, 7)
        v3: f32[8,3] = dynamic_update_slice(v1, v0, v2) axis=0
        v4: f32[8,3] = sub(v3, v1)
        v5: f32[3] = reduce(v4) axis=(0,) keepdim=False kind=sum
        out v5
        """
    )
    assert all(e.attr("updates") == () for e in got.eqns)


def test_an_old_state_is_read_before_it_is_written_over():
    got = formed(
        """
        in v0: f32[8,3]
        state v1: f32[8,3] "s" -> v4
        slot v2: i32[] "pos" kind=pos range=(0, 1)
        v3: f32[8,3] = exp(v1)
        v4: f32[8,3] = dynamic_update_slice(v1, v0, v2) axis=0
        v5: f32[8,1] = reduce(v4) axis=(1,) keepdim=True kind=sum
        v6: f32[8,3] = add(v5, v3)
        out v6
        """
    )
    assert outline(got)[:2] == ["none: exp", "none: dynamic_update_slice"]


def test_rows_scattered_over_a_value_that_stays_are_copied_first():
    got = formed(
        """
        in v0: f32[4,2]
        in v1: f32[2,2]
        slot v2: i32[2] "rows" kind=write_map range=(-1, 4)
        v3: f32[4,2] = scatter_update(v0, v1, v2)
        out v3, v0
        """
    )
    assert outline(got) == ["none: reshape", "none: scatter_update"]
    assert got.eqns[1].attr("updates") == ((0, 0),)


def test_a_mask_of_positions_is_computed_where_it_is_read():
    got = formed(
        """
        in v0: f32[64,64]
        slot v1: i32[] "pos" kind=pos range=(0, 9)
        weight v2: f32[64,2] "w"
        v3: i32[64,1] = iota() axis=0 dtype=i32 shape=(64, 1)
        v4: i32[64,1] = add(v3, v1)
        v5: i32[1,64] = iota() axis=1 dtype=i32 shape=(1, 64)
        v6: bool[64,64] = le(v5, v4)
        v7: f32[] = const() dtype=f32 shape=() value=0.0
        v8: f32[64,64] = select(v6, v0, v7)
        v9: f32[64,2] = matmul(v8, v2)
        v10: f32[64,1] = reduce(v8) axis=(1,) keepdim=True kind=max
        out v9, v10
        """
    )
    assert not any(v.type.dtype == "bool" for e in got.eqns for v in e.outs)


def test_an_expensive_value_is_stored_once_for_many_readers():
    got = formed(
        """
        in v0: f32[64,64]
        weight v1: f32[64,2] "w"
        v2: f32[64,64] = tanh(v0)
        v3: f32[64,2] = matmul(v2, v1)
        v4: f32[64,1] = reduce(v2) axis=(1,) keepdim=True kind=max
        out v3, v4
        """
    )
    assert outline(got) == ["none: tanh", "matmul: matmul", "reduce: reduce"]


def test_a_square_is_not_stored_beside_what_it_is_the_square_of():
    got = formed(
        """
        in v0: f32[16,4]
        weight v1: f32[4,4] "w"
        in v2: f32[16,4]
        v3: f32[16,4] = matmul(v0, v1)
        v4: f32[16,4] = add(v2, v3)
        v5: f32[16,4] = mul(v4, v4)
        v6: f32[16,1] = reduce(v5) axis=(1,) keepdim=True kind=sum
        v7: f32[16,4] = mul(v4, v6)
        out v7, v4
        """
    )
    assert outline(got) == ["matmul: matmul add", "reduce: mul reduce mul"]


def test_a_wide_sum_is_cut_to_the_buffers_of_the_device():
    ins = "\n".join(f"in v{n}: f32[4]" for n in range(20))
    adds = [f"v{20 + n}: f32[4] = add(v{19 + n if n else 0}, v{n + 1})" for n in range(19)]
    formed("\n".join((ins, *adds, "out v38")), buffers=8)


def test_a_wide_concat_becomes_concats_of_what_a_launch_binds():
    ins = "\n".join(f"in v{n}: f32[1,2]" for n in range(20))
    names = ", ".join(f"v{n}" for n in range(20))
    text = f"{ins}\nv20: f32[20,2] = concat({names}) axis=0\nout v20"
    graph, limits = parse(text), device(8)
    got = form_regions(graph, limits).graph
    check_regions(got, 7)
    feed = random_inputs(graph, 0)
    assert_same(run(graph, feed), run(got, feed))


def test_a_device_of_eight_buffers_keeps_one_for_immediates():
    assert launch_buffers(profile("webgpu-baseline")) == 7
    assert launch_buffers(profile("lavapipe")) == profile("lavapipe").storage_buffers


def test_a_witness_shares_no_launch_with_a_state_update():
    got = formed(
        """
        in v0: f32[1,3]
        state v1: f32[8,3] "cache" -> v6
        in v2: i32[]
        v3: i32[], v4: bool[] = index_guard(v2) hi=8 lo=0
        v5: f32[1,3] = exp(v0)
        v6: f32[8,3] = dynamic_update_slice(v1, v5, v3) axis=0
        validate v4
        out v5
        """
    )
    writers = [e for e in got.eqns if e.attr("updates")]
    assert len(writers) == 1
    assert not set(writers[0].outs) & set(got.validations)


def layered(layers: int) -> Graph:
    """Each layer: a norm, a matmul and a residual, so that values are read twice."""
    build = Builder()
    x = build.input(TensorType("f32", (2, 8)), "x", Slot())
    for n in range(layers):
        w = build.input(TensorType("f32", (8, 8)), f"w{n}", Slot())
        total = build.one("reduce", build.one("mul", x, x), kind="sum", axis=(1,), keepdim=True)
        h = build.one("mul", x, build.one("rsqrt", total))
        x = build.one("add", x, build.one("matmul", h, w))
    return build.graph((x,))


def test_equal_layers_have_equal_bodies():
    bodies = [
        {graph_attr(e) for e in form_regions(layered(n), device()).graph.eqns} for n in (3, 9)
    ]
    assert bodies[0] == bodies[1]
    assert len(bodies[0]) == 1


@pytest.mark.parametrize("name", ["lavapipe", "webgpu-baseline"])
def test_random_graphs_mean_the_same_in_regions(name: str):
    limits = profile(name)
    for seed in range(60):
        graph = random_graph(Random(seed), eqns=16, dtypes=("f32", "f16"))
        got = form_regions(graph, limits).graph
        check_regions(got, launch_buffers(limits))
        feed = random_inputs(graph, seed, edges=seed % 2 == 1)
        assert_same(run(graph, feed), run(got, feed))
