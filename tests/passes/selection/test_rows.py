"""Positions and counts of blocks, read off sums and quotients."""

from __future__ import annotations

from poot.ir.graph import TensorType, Var
from poot.ir.text import parse
from poot.passes.engine import Rule, rewrite
from poot.passes.selection.rows import count_of, is_one_a_row, place_of, start_of

TEXT = """
in v0: i32[2,3]
v1: i32[] = const() dtype=i32 shape=() value=1
v2: i32[2,3] = add(v0, v1)
v3: i32[2,3], v4: bool[2,3] = index_guard(v2) lo=0 hi=9
v5: i32[2,3] = add(v3, v1)
v6: i32[2,1,3,1] = reshape(v5) shape=(2, 1, 3, 1)
v7: i32[] = const() dtype=i32 shape=() value=4
v8: i32[2,1,3,1] = div(v6, v7)
v9: i32[2,1,3,1] = mul(v8, v7)
v10: i32[2,1,3,1] = neg(v9)
validate v4
out v10
"""


def asked(question):
    """question(scope, {name: value}) at the graph's last eqn."""
    graph, got = parse(TEXT), []
    named = {f"v{v.id}": v for e in graph.eqns for v in e.outs} | {"v0": graph.inputs[0].var}
    rewrite(graph, (Rule("ask", ("neg",), lambda e, s: got.append(question(s, named))),))
    return got[0]


def test_a_place_is_a_base_and_a_number_and_a_root_past_guards():
    place = asked(lambda s, v: place_of(s, v["v6"]))
    assert (place.base.id, place.plus, place.root.id, place.total) == (3, 1, 0, 2)


def test_a_count_is_a_place_over_a_ratio():
    count = asked(lambda s, v: count_of(s, v["v8"]))
    assert (count.place.total, count.ratio) == (2, 4)
    assert asked(lambda s, v: count_of(s, v["v6"])).ratio == 1


def test_what_is_always_visited_is_told_from_the_rows_place():
    def ask(name):
        return asked(lambda s, v: count_of(s, v["v8"]).always(place_of(s, v[name])))

    assert (ask("v3"), ask("v5"), ask("v0")) == ("tail", "own", None)


def test_a_start_is_a_count_times_its_ratio():
    assert asked(lambda s, v: start_of(s, v["v9"])).ratio == 4
    assert asked(lambda s, v: start_of(s, v["v8"])) is None
    same = asked(lambda s, v: start_of(s, v["v9"]).is_like(count_of(s, v["v8"])))
    assert same


def test_a_value_one_a_row_has_an_axis_for_each():
    assert is_one_a_row(Var(0, TensorType("i32", (2, 1, 3, 1))), 2, 3)
    assert not is_one_a_row(Var(0, TensorType("i32", (1, 1, 3, 1))), 2, 3)
    assert is_one_a_row(Var(0, TensorType("i32", (3, 1))), 1, 3)
