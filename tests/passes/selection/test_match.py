"""Selected attention from primitives: what fuses, what is declined and why, and that nothing
changes its meaning."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot import ops
from poot.ir.text import parse, show
from poot.ir.verify import verify
from poot.ir.walk import renumber
from poot.limits import profile
from poot.oracle import run
from poot.passes.pipeline import PIPELINE, run_pipeline
from poot.passes.selection.match import fuse_selection
from tests.support.check import assert_same

REWRITES = PIPELINE[: [p.name for p in PIPELINE].index("selection") + 1]
LIMITS = profile("lavapipe")
B, HQ, HKV, LQ, LK, D, K = 2, 4, 2, 3, 22, 8, 2


def specs(lists=1, ratio=4, ids=False, dtype="f32", rows=LQ):
    last = (
        poot.slot((B, lists, rows, K), "i32")
        if ids
        else poot.slot((B, lists, rows, -(-LK // ratio)), dtype)
    )
    kv = poot.slot((B, HKV, LK, D), dtype)
    return (
        poot.slot((B, HQ, rows, D), dtype), kv, kv, last,
        poot.slot((B, rows), "i32", range=(0, LK)),
    )  # fmt: skip


def feed_of(graph, seed=0):
    rng = np.random.default_rng(seed)
    feed = {}
    for i in graph.inputs:
        if i.name == "at":
            rows = i.var.type.shape[1]
            feed["at"] = (np.arange(rows) + rng.integers(0, LK - rows + 1, (B, 1))).astype(np.int32)
        elif i.name == "ids":
            feed["ids"] = np.full(i.var.type.shape, -1, np.int32)
        elif i.name == "n":
            feed["n"] = np.full(B, LK, np.int32)
        else:
            feed[i.name] = rng.normal(size=i.var.type.shape).astype(
                np.float32 if i.var.type.dtype == "f32" else np.float16
            )
    return feed


def fused(fn, given):
    """(graph after the passes, reasons noted against more); the meaning is kept."""
    graph = poot.trace(fn, given)
    after, reports = run_pipeline(graph, LIMITS, REWRITES, check=True)
    verify(after)
    again = fuse_selection(after, LIMITS).graph
    assert show(renumber(again)) == show(renumber(after))
    assert parse(show(after)) == after
    feed = feed_of(graph)
    assert_same(run(graph, feed, f64=True), run(after, feed, f64=True), 4e-6)
    return after, [n.what for r in reports if r.name == "selection" for n in r.declined]


def ops_of(graph):
    return [e.op for e in graph.eqns]


@pytest.mark.parametrize("always", ["tail", "own"])
@pytest.mark.parametrize("ratio", [1, 4, 5, 11, 128])
@pytest.mark.parametrize("lists", [1, 2, 4])
def test_selection_and_attention_become_two_eqns(lists, ratio, always):
    def fn(q, k, v, s, at):
        ids = ops.block_topk(s, at, K, ratio, always)
        return ops.attention_selected(q, k, v, ids, at, ratio=ratio, scale=0.5, always=always)

    after, declined = fused(fn, specs(lists, ratio))
    assert ops_of(after) == ["block_topk", "selected_attention"], declined
    topk, attention = after.eqns
    assert topk.attr("ratio") == attention.attr("ratio") == ratio
    assert (attention.attr("always") or "tail") == (topk.attr("always") or "tail") == always


def test_softcap_sink_log_sum_exp_and_length_come_along():
    def fn(q, k, v, s, at, sink, n):
        ids = ops.block_topk(s, at, K, 4)
        return ops.attention_selected(
            q, k, v, ids, at, ratio=4, scale=0.5, softcap=3.0, sink=sink, return_lse=True, length=n
        )

    given = (*specs(), poot.slot((HQ,), "f32"), poot.slot((B,), "i32", range=(1, LK + 1)))
    after, _ = fused(fn, given)
    (eqn,) = (e for e in after.eqns if e.op == "selected_attention")
    assert eqn.attr("operands") == ("q", "k", "v", "ids", "positions", "len", "sink")
    assert (eqn.attr("softcap"), eqn.attr("lse")) == (3.0, True)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_a_paged_cache_is_read_where_it_lies(dtype):
    def fn(q, k, v, s, at, read):
        ids = ops.block_topk(s, at, K, 4)
        k, v = (ops.take(x, read).transpose(0, 2, 1, 3) for x in (k, v))
        return ops.attention_selected(q, k, v, ids, at, ratio=4, scale=0.5)

    pool = poot.slot((60, HKV, D), dtype)
    q, _, _, s, at = specs(dtype=dtype)
    graph = poot.trace(fn, (q, pool, pool, s, at, poot.slot((B, LK), "i32", range=(0, 60))))
    after, _ = run_pipeline(graph, LIMITS, REWRITES, check=True)
    (eqn,) = (e for e in after.eqns if e.op == "selected_attention")
    assert eqn.attr("operands") == ("q", "k", "v", "ids", "positions", "read")
    assert eqn.ins[1].type.shape == (60, HKV, D)


@pytest.mark.parametrize("rows", [1, LQ])
def test_ids_of_the_users_fuse_under_their_guard(rows):
    def fn(q, k, v, ids, at):
        return ops.attention_selected(q, k, v, ids, at, ratio=4, scale=0.5)

    after, declined = fused(fn, specs(ids=True, rows=rows))
    assert declined == []
    assert "selected_attention" in ops_of(after)
    assert "attention" not in ops_of(after)
    assert len(after.validations) == 2


def test_positions_that_are_computed_fuse_under_their_guard():
    def fn(q, k, v, s, at):
        at = at + 1
        ids = ops.block_topk(s, at, K, 4)
        return ops.attention_selected(q, k, v, ids, at, ratio=4, scale=0.5)

    graph = poot.trace(fn, specs())
    after, _ = run_pipeline(graph, LIMITS, REWRITES, check=True)
    assert "selected_attention" in ops_of(after)
    assert len(after.validations) == 1


def near(change, given=None, **kind):
    """The attention of a mask that `change` makes of (ids, at), and what was declined."""

    def fn(q, k, v, s, at):
        ids = ops.block_topk(s, at, K, 4)
        return ops.attention_masked(q, k, v, mask=change(ids, at), scale=0.5)

    return fused(fn, given or specs(**kind))


def parts(ids, at, ratio=4):
    blocks, one = -(-LK // ratio), ops.full((), 1, "i32")
    chosen = ops.max(
        ops.where(ids.reshape(B, 1, LQ, K, 1) == ops.iota((1, 1, 1, 1, blocks), 4), one, 0), 3
    )
    wide = ops.repeat(chosen > 0, ratio, 3)[..., :LK]
    t, p = ops.iota((1, 1, 1, LK), 3), at.reshape(B, 1, LQ, 1)
    start = (p + 1) // 4 * 4
    return wide, t, p, start


def test_a_mask_written_by_hand_fuses():
    def mask(ids, at):
        wide, t, p, start = parts(ids, at)
        return (p >= t) & (start <= t) | wide

    after, declined = near(mask)
    assert "selected_attention" in ops_of(after), declined


@pytest.mark.parametrize(
    "name, words",
    [
        ("no tail", "stand alone, whatever the row's position is"),
        ("tail of another ratio", "counted apart"),
        ("tail from the position", "counted apart"),
        ("tail one block early", "does not begin at a block"),
        ("tail from the block before", "does not begin at the row's own block"),
        ("everything before", "is not [C * ratio, position]"),
        ("blocks of another ratio", "counted apart"),
        ("finite", "a number other than -inf"),
    ],
)
def test_near_misses_are_declined_with_their_reason(name, words):
    def mask(ids, at):
        wide, t, p, start = parts(ids, at)
        tail = (t >= start) & (t <= p)
        match name:
            case "no tail":
                return wide
            case "tail of another ratio":
                return wide | ((t >= (p + 1) // 8 * 8) & (t <= p))
            case "tail from the position":
                return wide | ((t >= p) & (t <= p))
            case "tail one block early":
                return wide | ((t >= (p - 3) // 4 * 4) & (t <= p))
            case "tail from the block before":
                return wide | ((t >= (p + 5) // 4 * 4) & (t <= p))
            case "everything before":
                return wide | (t <= p)
            case "blocks of another ratio":
                return parts(ids, at, 2)[0] | tail
            case _:
                return ops.additive_mask(wide | tail, "f32", -1e9)

    after, declined = near(mask)
    assert "selected_attention" not in ops_of(after)
    if name == "finite":
        return
    assert any(words in d for d in declined), declined


def test_ids_that_nothing_proves_are_declined():
    def fn(q, k, v, ids, at):
        mask = ops.selected_attention_mask(ids, at, 4, LK)
        return ops.attention_masked(q, k, v, mask=mask, scale=0.5)

    after, declined = fused(fn, specs(ids=True))
    assert "selected_attention" not in ops_of(after)
    assert any("write ops.checked_blocks" in d for d in declined)


def test_ids_whose_guard_is_not_declared_are_declined():
    def fn(q, k, v, ids, at):
        return ops.attention_selected(q, k, v, ids, at, ratio=4, scale=0.5)

    graph = poot.trace(fn, specs(ids=True))
    silent = parse("\n".join(x for x in show(graph).splitlines() if not x.startswith("validate")))
    after, reports = run_pipeline(silent, LIMITS, REWRITES, check=True)
    assert "selected_attention" not in ops_of(after)
    assert any("write ops.validate" in n.what for n in reports[-1].declined)


def test_a_list_for_other_positions_is_declined():
    def fn(q, k, v, s, at):
        ids = ops.block_topk(s, ops.minimum(at, 7), K, 4)
        mask = ops.selected_attention_mask(ids, at, 4, LK)
        return ops.attention_masked(q, k, v, mask=mask, scale=0.5)

    after, declined = fused(fn, specs())
    assert ops_of(after).count("block_topk") == 1
    assert "selected_attention" not in ops_of(after)
    assert any("counted apart" in d for d in declined)


def test_a_mask_that_is_read_elsewhere_stays():
    def fn(q, k, v, s, at):
        ids = ops.block_topk(s, at, K, 4)
        mask = ops.selected_attention_mask(ids, at, 4, LK)
        return ops.attention_masked(q, k, v, mask=mask, scale=0.5), mask

    after, declined = fused(fn, specs())
    assert "selected_attention" not in ops_of(after)
    assert any("the mask is read elsewhere" in d for d in declined)


def test_causal_attention_beside_it_is_left_alone():
    def fn(q, k, v, s, at):
        return ops.attention_masked(
            q, k, v, mask=ops.iota((LK,), 0) <= at.reshape(B, 1, LQ, 1), scale=0.5
        )

    after, declined = fused(fn, specs())
    assert declined == []
    assert "attention" in ops_of(after)


def test_when_everything_is_selected_it_is_dense_causal_attention():
    def selected(q, k, v, s, at):
        ids = ops.block_topk(s, at, 6, 4)
        return ops.attention_selected(q, k, v, ids, at, ratio=4, scale=0.5)

    def dense(q, k, v, s, at):
        mask = ops.iota((LK,), 0) <= at.reshape(B, 1, LQ, 1)
        return ops.attention_masked(q, k, v, mask=mask, scale=0.5)

    after, _ = fused(selected, specs())
    assert "selected_attention" in ops_of(after)
    other = poot.trace(dense, specs())
    one, two = (run(g, feed_of(after)).outputs[0] for g in (after, other))
    np.testing.assert_allclose(one, two, atol=1e-5)
