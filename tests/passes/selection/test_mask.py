"""A selection's mask, taken apart."""

from __future__ import annotations

import pytest

import poot
from poot import ops
from poot.limits import profile
from poot.passes.attention.declines import Decline
from poot.passes.canonicalize import canonicalize
from poot.passes.engine import Rule, rewrite
from poot.passes.selection.mask import selection_of
from poot.passes.selection.match import fuse_selection

LIMITS = profile("lavapipe")
B, LQ, LK = 2, 3, 22
AT = poot.slot((B, LQ), "i32", range=(0, LK))


def taken(fn, lists=1, heads=4, ratio=4):
    """selection_of the mask that fn gives of (scores, positions)."""
    scores = poot.slot((B, lists, LQ, -(-LK // ratio)), "f32")
    graph = canonicalize(poot.trace(lambda *x: fn(*x).astype("i32"), (scores, AT)), LIMITS).graph
    graph = fuse_selection(graph, LIMITS).graph
    got = []
    rewrite(
        graph,
        (
            Rule(
                "ask",
                ("cast",),
                lambda e, s: got.append(selection_of(s, e.ins[0], heads, frozenset())),
            ),
        ),
    )
    return got[-1]


@pytest.mark.parametrize("always", ["tail", "own"])
@pytest.mark.parametrize("ratio", [1, 2, 4, 7])
@pytest.mark.parametrize("lists", [1, 2, 4])
def test_every_kind_is_found(lists, ratio, always):
    def mask(s, at):
        ids = ops.block_topk(s, at, 3, ratio, always)
        return ops.sparse.per_head(ops.selected_attention_mask(ids, at, ratio, LK, always), 4)

    found = taken(mask, lists, 4, ratio)
    assert (found.ratio, found.always) == (ratio, always)
    assert found.ids.type.shape == (B, lists, LQ, 3)


def test_another_mask_is_no_selection():
    assert taken(lambda s, at: ops.iota((1, 1, 1, LK), 3) <= at.reshape(B, 1, LQ, 1)) is None
    assert taken(lambda s, at: s > 0.0) is None


def test_lists_repeated_for_other_heads_are_declined():
    def mask(s, at):
        ids = ops.block_topk(s, at, 3, 4)
        kept = ops.selected_attention_mask(ids, at, 4, LK)
        return ops.concat([kept[:, 1:], kept[:, :1]], 1)

    assert taken(mask, 2, 2) is None

    def interleaved(s, at):
        ids = ops.block_topk(s, at, 3, 4)
        kept = ops.selected_attention_mask(ids, at, 4, LK).reshape(B, 1, 2, LQ, LK)
        return ops.broadcast_to(kept, (B, 2, 2, LQ, LK)).reshape(B, 4, LQ, LK)

    with pytest.raises(Decline, match="not repeated for the heads that share them"):
        taken(interleaved, 2, 4)
