"""The rows of block-selected attention against its definition in loops."""

from __future__ import annotations

import numpy as np
import pytest

from poot.ir.text import parse
from poot.ops.expand import expand_all
from poot.oracle import run
from tests.support import selected
from tests.support.check import plain
from tests.support.evaluate import one
from tests.support.selected_forms import ALONE, NARROW, PREFILL, Form, best_inputs, form_text


@pytest.mark.parametrize("always", ["tail", "own"])
@pytest.mark.parametrize("ratio, k", [(1, 7), (4, 5), (4, 13), (16, 2)])
def test_block_topk_is_the_definitions(always, ratio, k):
    scores, at = best_inputs((2, 3, 4, 13), ratio, ties=True)
    got = one("block_topk", scores, at, k=k, ratio=ratio, always=always)
    np.testing.assert_array_equal(got, selected.topk_ids(scores, at, k, ratio, always))


def test_a_nan_score_is_taken_before_a_block_that_is_no_candidate():
    scores = np.array([[[[np.nan, -np.inf, np.nan, 9.0]]]], np.float32)
    got = one("block_topk", scores, np.array([[11]], np.int32), k=3, ratio=4)
    np.testing.assert_array_equal(got, [[[[0, 1, 2]]]])
    got = one("block_topk", scores, np.array([[11]], np.int32), k=2, ratio=4)
    np.testing.assert_array_equal(got, [[[[0, 1]]]])


def test_a_position_before_the_first_has_no_candidates():
    scores = np.ones((1, 1, 1, 4), np.float32)
    got = one("block_topk", scores, np.array([[-9]], np.int32), k=2, ratio=4)
    np.testing.assert_array_equal(got, -1)


def reference(form: Form, feed: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    at = {n: plain(x) for n, x in feed.items()}
    k, v = at["k"], at["v"]
    if form.paged:
        k, v = (x[feed["read"]].transpose(0, 2, 1, 3) for x in (k, v))
    if form.shared:
        shared = np.broadcast_to(at["k_shared"], (*k.shape[:3], form.shared))
        k = np.concatenate([k, shared], -1)
    return selected.attend(
        at["q"], k, v, feed["ids"], feed["positions"], form.ratio, 0.25, form.always,
        form.softcap, at.get("sink"),
    )  # fmt: skip


@pytest.mark.parametrize("form", [*ALONE, *PREFILL, *NARROW], ids=str)
def test_selected_attention_is_the_definitions(form):
    text, feed = form_text(form)
    outputs = run(parse(text), feed).outputs
    within = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}[form.dtype]
    for got, want in zip(outputs, reference(form, feed), strict=False):
        np.testing.assert_allclose(plain(got), want, atol=within)


@pytest.mark.parametrize("form", [*ALONE, *PREFILL], ids=str)
def test_a_fused_eqn_is_what_it_expands_to(form):
    text, feed = form_text(form)
    graph = parse(text)
    want, got = (run(g, feed, f64=True).outputs for g in (expand_all(graph), graph))
    for x, y in zip(want, got, strict=True):
        np.testing.assert_allclose(y, x, atol=1e-6)


def test_nan_in_keys_that_no_row_visits_never_shows():
    text, feed = form_text(Form(keys=30, listed=2, positions=(17, 25)))
    want = run(parse(text), feed).outputs[0]
    for b in range(2):
        blocks = selected.list_of(feed["ids"][b, 0, 0])
        seen = selected.visited(blocks, int(feed["positions"][b, 0]), 4)
        dead = np.setdiff1d(np.arange(30), seen)
        feed["k"][b, :, dead], feed["v"][b, :, dead] = np.nan, np.nan
    np.testing.assert_array_equal(run(parse(text), feed).outputs[0], want)


def test_block_scores_are_their_primitives():
    text = """slot v0: bf16[2,4,3,32] "q"
              slot v1: bf16[2,9,32] "keys"
              slot v2: f32[2,4,3] "w"
              v3: f32[2,1,3,9] = block_scores(v0, v1, v2) scale=0.5
              out v3"""
    graph = parse(text)
    rng = np.random.default_rng(0)
    feed = {i.name: rng.normal(size=i.var.type.shape) for i in graph.inputs}
    (one_,), (other,) = (run(g, feed, f64=True).outputs for g in (graph, expand_all(graph)))
    np.testing.assert_allclose(one_, other, rtol=1e-9)
    share = np.maximum(np.einsum("bhld,bnd->bhln", feed["q"], feed["keys"]), 0)
    want = 0.5 * (share * feed["w"][..., None]).sum(1, keepdims=True)
    np.testing.assert_allclose(plain(one_), want, rtol=2e-2, atol=2e-2)
