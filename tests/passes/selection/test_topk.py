"""The best blocks from two rankings: in text, with near misses."""

from __future__ import annotations

import pytest

from poot.ir.text import parse
from poot.limits import profile
from poot.passes.selection.match import fuse_selection
from tests.support.check import check_pass

BEFORE = """
slot v0: f32[2,1,3,9] "s"
slot v1: i32[2,3] "p" range=(0, 40)
v2: i32[] = const() dtype=i32 shape=() value=1
v3: i32[2,3] = add(v1, v2)
v4: i32[2,1,3,1] = reshape(v3) shape=(2, 1, 3, 1)
v5: i32[] = const() dtype=i32 shape=() value=4
v6: i32[2,1,3,1] = div(v4, v5)
v7: i32[1,1,1,9] = iota() axis=3 dtype=i32 shape=(1, 1, 1, 9)
v8: bool[2,1,3,9] = lt(v7, v6)
v9: f32[] = const() dtype=f32 shape=() value=nan
v10: f32[2,1,3,9] = select(v8, v0, v9)
v11: f32[2,1,3,4], v12: i32[2,1,3,4] = topk(v10) k=4
v13: bool[2,1,3,4] = lt(v12, v6)
v14: i32[2,1,3,4] = neg(v12)
v15: i32[] = const() dtype=i32 shape=() value=-9
v16: i32[2,1,3,4] = select(v13, v14, v15)
v17: i32[2,1,3,4], v18: i32[2,1,3,4] = topk(v16) k=4
v19: bool[2,1,3,4] = gt(v17, v15)
v20: i32[2,1,3,4] = neg(v17)
v21: i32[] = const() dtype=i32 shape=() value=-1
v22: i32[2,1,3,4] = select(v19, v20, v21)
out v22
"""
AFTER = """
slot v0: f32[2,1,3,9] "s"
slot v1: i32[2,3] "p" range=(0, 40)
v2: i32[2,1,3,4] = block_topk(v0, v1) k=4 ratio=4
out v2
"""


def fuse(graph):
    return fuse_selection(graph, profile("lavapipe")).graph


def test_two_rankings_become_one_eqn():
    check_pass(fuse, BEFORE, AFTER)


def test_the_same_with_the_last_select_turned():
    turned = BEFORE.replace("gt(v17, v15)", "le(v17, v15)").replace(
        "select(v19, v20, v21)", "select(v19, v21, v20)"
    )
    check_pass(fuse, turned, AFTER)


def test_blocks_before_the_rows_own_are_of_the_kind_own():
    own = BEFORE.replace("reshape(v3)", "reshape(v1)")
    check_pass(fuse, own, AFTER.replace("k=4 ratio=4", "always=own k=4 ratio=4"))


@pytest.mark.parametrize(
    "old, new",
    [
        ("value=nan", "value=-inf"),  # a NaN candidate would stand behind what is none
        ("value=-9", "value=-8"),  # block 8 would be lost
        ("value=-1", "value=-2"),
        ("lt(v7, v6)", "le(v7, v6)"),
        ("lt(v12, v6)", "le(v12, v6)"),
    ],
)
def test_near_misses_stay(old, new):
    graph = parse(BEFORE.replace(old, new))
    assert [e.op for e in fuse(graph).eqns].count("topk") == 2


def test_a_ranking_that_is_read_elsewhere_stays():
    outcome = fuse_selection(parse(BEFORE.replace("out v22", "out v22, v12")), profile("lavapipe"))
    assert [e.op for e in outcome.graph.eqns].count("topk") == 2
    assert "no block_topk: an intermediate (found) is read elsewhere" in [
        n.what for n in outcome.notes
    ]
