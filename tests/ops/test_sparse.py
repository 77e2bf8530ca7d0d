"""Block-selected attention as primitives, against its definition in plain numpy."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot import ops
from poot.errors import TypeRuleError, ValidationError
from tests.support import selected
from tests.support.selected_forms import best_inputs
from tests.support.traced import evaluate, graph_of, normal, value


def positions_of(batch, rows, last):
    return np.tile(np.arange(last - rows + 1, last + 1, dtype=np.int32), (batch, 1))


@pytest.mark.parametrize("always", ["tail", "own", "none", "window(6)"])
@pytest.mark.parametrize("ratio", [1, 4, 16])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_the_best_blocks_are_those_of_the_definition(always, ratio, dtype):
    scores, at = best_inputs((2, 2, 3, 13), ratio, dtype, ties=True)
    got = value(lambda s, p: ops.block_topk(s, p, 5, ratio, always), scores, at)
    np.testing.assert_array_equal(got, selected.topk_ids(scores, at, 5, ratio, always))


def test_more_blocks_than_there_are_is_all_of_them():
    scores, at = normal(0, 1, 1, 1, 3), np.array([[11]], np.int32)
    got = value(lambda s, p: ops.block_topk(s, p, 99, 4), scores, at)
    np.testing.assert_array_equal(got, [[[[0, 1, 2]]]])


def test_scores_are_the_relu_of_products_summed_over_heads():
    q, keys = normal(0, 2, 3, 4, 8), normal(1, 2, 7, 8)
    got = value(ops.block_scores, q, keys)
    want = selected.block_scores(q, keys)[:, None]
    np.testing.assert_allclose(got, want, atol=1e-5)
    weighed = value(
        lambda q, k, w: ops.block_scores(q, k, w), q, keys, np.full((2, 3, 4), 2, np.float32)
    )
    np.testing.assert_allclose(weighed, 2 * want, atol=1e-5)


@pytest.mark.parametrize("lists", [1, 2, 4])
@pytest.mark.parametrize("always", ["tail", "own", "none", "window(6)"])
@pytest.mark.parametrize("ratio", [1, 3, 4])
def test_attention_over_selected_blocks_is_that_of_the_definition(lists, always, ratio):
    q, k, v = normal(0, 2, 4, 3, 8), normal(1, 2, 2, 23, 8), normal(2, 2, 2, 23, 6)
    at = positions_of(2, 3, 19)
    scores, sink = normal(3, 2, lists, 3, -(-23 // ratio)), normal(4, 4)

    def attention(q, k, v, s, at, sink):
        ids = ops.block_topk(s, at, 3, ratio, always)
        return ops.attention_selected(
            q, k, v, ids, at, ratio=ratio, scale=0.5, always=always, softcap=3.0, sink=sink,
            return_lse=True,
        )  # fmt: skip

    got, lse = evaluate(attention, q, k, v, scores, at, sink)
    ids = selected.topk_ids(scores, at, 3, ratio, always)
    want = selected.attend(q, k, v, ids, at, ratio, 0.5, always, 3.0, sink)
    np.testing.assert_allclose(got, want[0], atol=2e-5)
    np.testing.assert_allclose(lse, want[1], atol=2e-5)


def test_what_follows_the_first_negative_id_is_ignored():
    ids = np.array([[[[2, -1, 0, 1]]]], np.int32)
    got = value(
        lambda i, p: ops.selected_attention_mask(i, p, 4, 14), ids, np.array([[13]], np.int32)
    )
    np.testing.assert_array_equal(np.flatnonzero(got), [8, 9, 10, 11, 12, 13])


def session(rows=2, listed=3):
    q, kv = (1, 2, rows, 8), (1, 1, 20, 8)

    def step(kept, q, k, v, ids, at):
        out = ops.attention_selected(q, k, v, ids, at, ratio=4, scale=1.0)
        return out, kept + 1.0

    specs = (
        poot.state((2,)), poot.slot(q, "f32"), poot.slot(kv, "f32"), poot.slot(kv, "f32"),
        poot.slot((1, 1, rows, listed), "i32"), poot.slot((1, rows), "i32", range=(0, 20)),
    )  # fmt: skip
    return poot.compile(poot.trace(step, specs), "oracle").bind()


@pytest.mark.parametrize(
    "ids, index, id_",
    [
        ([[0, 1, 2], [0, 1, 5]], (0, 0, 1, 2), 5),
        ([[0, 1, 2], [0, 1, 4]], (0, 0, 1, 2), 4),
        ([[0, 3, -1], [0, 1, -1]], (0, 0, 0, 1), 3),
        ([[0, 1, 2], [2, 1, 2]], (0, 0, 1, 2), 2),
        ([[1, 1, 0], [2, 1, 0]], (0, 0, 0, 1), 1),
        ([[0, -2, -1], [0, -1, -1]], (0, 0, 0, 1), -2),
    ],
)
def test_a_bad_id_of_the_users_is_named_with_its_row_and_nothing_is_published(ids, index, id_):
    s = session()
    x = np.ones((1, 2, 2, 8), np.float32), np.ones((1, 1, 20, 8), np.float32)
    feed = {"q": x[0], "k": x[1], "v": x[1], "at": np.array([[13, 18]], np.int32)}
    with pytest.raises(ValidationError) as e:
        s.step(ids=np.array([[ids]], np.int32), **feed)
    assert (e.value.index, e.value.value) == (index, id_)
    np.testing.assert_array_equal(s.state["kept"], 0.0)
    s.step(ids=np.array([[[[0, 2, -1], [3, 0, -1]]]], np.int32), **feed)
    np.testing.assert_array_equal(s.state["kept"], 1.0)


def test_the_error_says_what_ids_have_to_be():
    s = session(rows=1, listed=2)
    x = np.ones((1, 2, 1, 8), np.float32), np.ones((1, 1, 20, 8), np.float32)
    with pytest.raises(ValidationError, match="needs unique ids of blocks that are complete") as e:
        s.step(q=x[0], k=x[1], v=x[1], at=np.array([[9]]), ids=np.array([[[[1, 1]]]]))
    assert "test_sparse.py" in e.value.loc


def test_shapes_that_do_not_fit_are_refused():
    q, k, ids = normal(0, 1, 4, 2, 8), normal(1, 1, 2, 9, 8), np.zeros((1, 3, 2, 2), np.int32)
    at = np.zeros((1, 2), np.int32)

    def attention(q, k, ids, at, **kind):
        return ops.attention_selected(q, k, k, ids, at, scale=1.0, **{"ratio": 4, **kind})

    with pytest.raises(TypeRuleError, match="lists for 1, Hkv or Hq heads"):
        graph_of(attention, q, k, ids, at)
    with pytest.raises(TypeRuleError, match=r"positions i32 \[B,Lq\]"):
        graph_of(attention, q, k, ids[:, :1], at[:, :1])
    with pytest.raises(TypeRuleError, match="a ratio of 1 or more"):
        graph_of(lambda *x: attention(*x, ratio=0), q, k, ids[:, :1], at)
    with pytest.raises(TypeRuleError, match="block_topk needs scores"):
        graph_of(lambda s, p: ops.block_topk(s, p, 0, 4), normal(0, 1, 1, 2, 3), at)
    with pytest.raises(TypeRuleError, match="block_scores needs q"):
        graph_of(ops.block_scores, q, k)
    with pytest.raises(TypeRuleError, match="ids i32"):
        graph_of(lambda i, p: ops.selected_attention_mask(i, p, 4, 0), ids[:, :1], at)


def test_a_length_hides_what_lies_past_it_even_if_nan():
    q, k, v = normal(0, 1, 2, 1, 8), normal(1, 1, 1, 20, 8), normal(2, 1, 1, 20, 8)
    at, n = np.array([[13]], np.int32), np.array([14], np.int32)
    scores = normal(3, 1, 1, 1, 5)

    def attention(q, k, v, s, at, n):
        ids = ops.block_topk(s, at, 2, 4)
        return ops.attention_selected(q, k, v, ids, at, ratio=4, scale=0.5, length=n)

    want = value(attention, q, k, v, scores, at, n)
    k[:, :, 14:], v[:, :, 14:] = np.nan, np.nan
    np.testing.assert_array_equal(value(attention, q, k, v, scores, at, n), want)
    ids = selected.topk_ids(scores, at, 2, 4)
    ref, _ = selected.attend(q, k, v, ids, at, 4, 0.5)
    np.testing.assert_allclose(want, ref, atol=2e-5)
