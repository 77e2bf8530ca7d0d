"""Moves followed back, and written again from where they lead."""

from __future__ import annotations

from random import Random

from poot.ir.build import Builder
from poot.ir.graph import Graph, Slot, TensorType
from poot.ir.text import parse
from poot.oracle import run
from poot.passes.attention.views import View, lies_by_rows, view_of, whole, written
from poot.passes.engine import Scope
from tests.support.check import assert_same
from tests.support.graphs import random_inputs


def view(text: str, *, scaled: bool = False) -> tuple[View, Scope]:
    graph = parse(text)
    scope = Scope(graph)
    scope.sweep(())
    return view_of(scope, graph.outputs[0], scaled=scaled), scope


def test_a_value_is_itself_in_row_major_order():
    graph = parse("in v0: f32[2,1,3]\nout v0")
    assert whole(graph.inputs[0].var).axes == (((2, 3),), (), ((3, 1),))


def test_repeated_heads_are_an_axis_of_stride_0():
    got, _ = view(
        """
        in v0: f32[2,3,4]
        v1: f32[2,1,3,4] = reshape(v0) shape=(2, 1, 3, 4)
        v2: f32[2,5,3,4] = broadcast(v1) shape=(2, 5, 3, 4)
        v3: f32[10,3,4] = reshape(v2) shape=(10, 3, 4)
        v4: f32[10,4,3] = transpose(v3) perm=(0, 2, 1)
        out v4
        """
    )
    assert got.base.id == 0
    assert got.axes == (((2, 12), (5, 0)), ((4, 1),), ((3, 4),))


def test_exact_casts_are_followed_and_rounding_ones_are_not():
    text = "in v0: {} [2,3]\nv1: {} [2,3] = cast(v0) dtype={}\nout v1"
    wide, _ = view(text.format("f16", "f32", "f32").replace(" [", "["))
    narrow, _ = view(text.format("f32", "f16", "f16").replace(" [", "["))
    assert (wide.base.id, narrow.base.id) == (0, 1)


def test_numbers_are_gathered_only_where_asked():
    text = """
        in v0: f32[2,3]
        v1: f32[] = const() dtype=f32 shape=() value=4.0
        v2: f32[2,3] = mul(v0, v1)
        v3: f32[3,2] = transpose(v2) perm=(1, 0)
        v4: f32[3,2] = div(v3, v1)
        out v4
        """
    assert view(text)[0].base.id == 4
    got, _ = view(text, scaled=True)
    assert (got.base.id, got.factor) == (0, 1.0)


def test_a_reshape_that_mixes_repeats_begins_a_view_of_its_own():
    got, _ = view(
        """
        in v0: f32[2,1]
        v1: f32[2,3] = broadcast(v0) shape=(2, 3)
        v2: f32[3,2] = reshape(v1) shape=(3, 2)
        v3: f32[2,3] = transpose(v2) perm=(1, 0)
        out v3
        """
    )
    assert got.base.id == 2
    assert got.axes == (((2, 1),), ((3, 2),))


def test_rows_are_told_from_columns():
    text = "in v0: f32[4]\nv1: f32[4,{}] = {}\nout v1"
    column, _ = view(text.format(1, "reshape(v0) shape=(4, 1)"))
    assert lies_by_rows(column, (4, 4))
    assert not lies_by_rows(whole(column.base), (4, 4))
    assert not lies_by_rows(column, (3, 4, 4))


def test_any_moves_are_written_again_from_the_base():
    """Random moves of one value: the view, written out, is the same value."""
    for seed in range(150):
        rng = Random(seed)
        build = Builder()
        shape = tuple(rng.choice((1, 2, 3, 4)) for _ in range(rng.randint(1, 4)))
        x = build.input(TensorType("f32", shape), "x", Slot())
        for _ in range(rng.randint(1, 6)):
            shape = x.type.shape
            kind = rng.choice(("transpose", "reshape", "broadcast"))
            if kind == "transpose":
                perm = tuple(rng.sample(range(len(shape)), len(shape)))
                x = build.one("transpose", x, perm=perm)
            elif kind == "reshape":
                flat = [f for n in shape for f in ((2, 2) if n == 4 else (n,))]
                cut = rng.randint(0, len(flat))
                left = 1
                for n in flat[:cut]:
                    left *= n
                x = build.one("reshape", x, shape=(left, 1, *flat[cut:]))
            elif x.type.elems < 200:
                wide = tuple(rng.choice((1, 3)) if n == 1 else n for n in shape)
                x = build.one("broadcast", x, shape=wide)
        graph = build.graph((x,))
        scope = Scope(graph)
        eqns = scope.sweep(())
        got = view_of(scope, x)
        scope.fresh = []
        out = written(scope, got.base, x.type.shape, tuple(p for a in got.axes for p in a))
        again = Graph(graph.inputs, (*eqns, *scope.fresh), (out,))
        feed = random_inputs(graph, seed)
        assert_same(run(graph, feed), run(again, feed))
