"""The planner's own small regions, by what the oracle makes of them."""

from __future__ import annotations

import numpy as np
import pytest

from poot.ir.graph import Eqn, Graph, Input, Slot, TensorType, Var
from poot.ir.text import parse
from poot.ir.transaction import RECORD
from poot.ir.verify import verify
from poot.oracle import run
from poot.planner.entry import updatable
from poot.planner.steps import regions_of
from poot.planner.words import (
    WORD,
    Ids,
    copy_region,
    new_elems,
    not_region,
    restore_region,
    save_region,
    verdict_regions,
)


def evaluate(regions: list[Eqn], feed: dict[Var, object], *wanted: Var) -> list[np.ndarray]:
    inputs = tuple(Input(v, f"i{v.id}", Slot()) for v in feed)
    graph = Graph(inputs, tuple(regions), wanted)
    verify(graph)
    return list(run(graph, {f"i{v.id}": x for v, x in feed.items()}).outputs)


@pytest.mark.parametrize("bad", [None, 0, 4, 8])
@pytest.mark.parametrize("before", [None, True, False])
def test_a_verdict_holds_where_every_record_counts_none(bad: int | None, before: bool | None):
    records = tuple(Var(n, RECORD) for n in range(9))
    word = None if before is None else Var(9, WORD)
    regions = verdict_regions(records, word, Ids(20))
    feed: dict[Var, object] = {r: np.array([0, 5, 7], np.int32) for r in records}
    if bad is not None:
        feed[records[bad]] = np.array([2, 0, 0], np.int32)
    if word is not None:
        feed[word] = np.array(before)
    (got,) = evaluate(regions, feed, regions[-1].outs[0])
    assert got == (bad is None and before is not False)
    assert all(len(r.ins) <= 5 for r in regions)


def test_a_word_turns_round_and_a_value_is_copied():
    x, turned = Var(0, WORD), Var(1, WORD)
    (got,) = evaluate([not_region(x, turned)], {x: np.array(True)}, turned)
    assert not got
    y, out = Var(0, TensorType("f32", (2, 2))), Var(1, TensorType("f32", (2, 2)))
    (got,) = evaluate([copy_region(y, out)], {y: np.eye(2, dtype=np.float32)}, out)
    np.testing.assert_array_equal(got, np.eye(2))


SLICE = """
state v0: f32[2,8,3] "a" -> v4
slot  v1: f32[2,2,3] "x"
slot  v2: i32[2] "at"
v3: i32[2] = add(v2, v2)
v4: f32[2,8,3] = dynamic_update_slice(v0, v1, v3) axis=1
out v1
"""
SCATTER = """
state v0: f32[8,3] "a" -> v4
slot  v1: f32[3,3] "x"
slot  v2: i32[3] "at"
v4: f32[8,3] = scatter_update(v0, v1, v2)
out v1
"""


@pytest.mark.parametrize(
    "text, at",
    [(SLICE, [0, 1]), (SLICE, [-3, 4]), (SCATTER, [5, -1, 0]), (SCATTER, [8, 7, 1 << 30])],
)
def test_what_an_update_replaces_is_kept_and_put_back(text: str, at: list[int]):
    graph = parse(text)
    in_place = updatable(graph)
    regions = regions_of(graph, lambda e: e.out.id in in_place)
    write = next(r for r in regions if r.attr("updates"))
    (pair,) = write.attr("updates")
    ids = Ids(50)
    save = save_region(write, *pair, ids)
    state = write.outs[0]
    restored = ids.var(state.type)
    back = restore_region(write, 0, state, save, restored)
    rng = np.random.default_rng(0)
    feed = {i.var: rng.random(i.var.type.shape).astype(np.float32) for i in graph.inputs[:2]}
    old = feed[graph.inputs[0].var]
    feed[graph.inputs[2].var] = np.array(at, np.int32)
    others = [r for r in regions if r is not write]
    written, got = evaluate([*others, save, write, back], feed, state, restored)
    assert not np.array_equal(written, old)
    np.testing.assert_array_equal(got, old)
    assert save.outs[0].type == graph.inputs[1].var.type  # as large as the update, not the State
    assert new_elems(write, 0) == graph.inputs[1].var.type.elems
