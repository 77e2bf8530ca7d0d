"""Block-selected attention on every target: the cases that catch wrong kernels, fused and as it is
written, against the definition in plain numpy."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot import ops
from poot.errors import ValidationError
from poot.ir.graph import Graph
from tests.support import selected
from tests.support.captured import captured_or_refused
from tests.support.check import plain
from tests.support.everywhere import bind_feed, compile_on, fused_count, on, run_program
from tests.support.traced import normal

HQ, HKV, D = 4, 2, 16
WITHIN = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}


def graph_of(
    positions: np.ndarray, keys: int, ratio: int, k: int, lists: int = 1, always: str = "tail",
    dtype: str = "f32",
) -> Graph:  # fmt: skip
    """block_topk and attention_selected over slots q, k, v, s and at."""
    batch, rows = positions.shape
    kv = poot.slot((batch, HKV, keys, D), dtype)
    specs = (
        poot.slot((batch, HQ, rows, D), dtype), kv, kv,
        poot.slot((batch, lists, rows, -(-keys // ratio)), "f32"),
        poot.slot((batch, rows), "i32", range=(0, keys)),
    )  # fmt: skip

    def fn(q, k_, v, s, at):
        ids = ops.block_topk(s, at, k, ratio, always)
        return ops.attention_selected(
            q, k_, v, ids, at, ratio=ratio, scale=0.25, always=always
        ), ids

    return poot.trace(fn, specs)


def feed_of(graph: Graph, positions: np.ndarray) -> dict[str, np.ndarray]:
    feed = {
        i.name: normal(n, *i.var.type.shape, dtype=i.var.type.dtype)
        for n, i in enumerate(graph.inputs)
        if i.var.type.dtype != "i32"
    }
    return {**feed, "at": positions.astype(np.int32)}


def check(
    target: str, positions: list[list[int]], keys: int, ratio: int, k: int, **kind: object
) -> tuple[np.ndarray, np.ndarray]:
    """Runs the fused program; asserts ids and output to be the definition's; gives both."""
    at = np.array(positions)
    graph = graph_of(at, keys, ratio, k, **kind)
    feed = feed_of(graph, at)
    program = compile_on(target, graph)
    assert fused_count(program, "selected_attention") == fused_count(program, "block_topk") == 1
    out, ids = run_program(program, feed).outputs
    always = str(kind.get("always", "tail"))
    want_ids = selected.topk_ids(feed["s"], at, min(k, feed["s"].shape[3]), ratio, always)
    np.testing.assert_array_equal(ids, want_ids)
    wide = [plain(feed[n]) for n in ("q", "k_", "v")]
    want, _ = selected.attend(*wide, ids, at, ratio, 0.25, always)
    np.testing.assert_allclose(plain(out), want, atol=WITHIN[str(kind.get("dtype", "f32"))])
    return out, ids


@on()
def test_a_row_whose_block_is_just_complete_may_leave_it_out(target: str):
    """Case 1: the tail is empty; the row's own block is a candidate like any; "own" has it."""
    _, ids = check(target, [[39], [38]], 64, 4, 2)
    assert 9 not in ids[1]
    check(target, [[39], [36]], 64, 4, 2, always="own")


@on()
@pytest.mark.parametrize("ratio, always", [(4, "window(9)"), (1, "window(16)"), (1, "none")])
def test_a_window_or_nothing_is_visited_besides_the_list(target: str, ratio: int, always: str):
    check(target, [[39, 40], [20, 21]], 64, ratio, 3, always=always)
    if always != "none":
        check(target, [[5], [17]], 64, ratio, 3, always=always)


@on()
def test_where_all_blocks_are_selected_it_is_dense_causal_attention(target: str):
    """Case 2."""
    at = np.array([[20, 21, 22], [3, 4, 5]])
    graph = graph_of(at, 24, 4, 6)
    feed = feed_of(graph, at)
    out = run_program(compile_on(target, graph), feed).outputs[0]

    def dense(q, k_, v, s, at):
        mask = ops.iota((24,), 0) <= at.reshape(2, 1, 3, 1)
        return ops.attention_masked(q, k_, v, mask=mask, scale=0.25)

    specs = [poot.slot(i.var.type.shape, i.var.type.dtype) for i in graph.inputs]
    other = run_program(compile_on(target, poot.trace(dense, tuple(specs))), feed).outputs[0]
    np.testing.assert_allclose(out, other, atol=2e-5)


@on(but="simulator emulated")
@pytest.mark.parametrize("tokens", [1, 64, 100])
def test_case_85_more_blocks_asked_for_than_there_are_is_dense_attention(target: str, tokens: int):
    """16 blocks of 64 where there are two at the most."""
    at = np.array([[tokens - 1]])
    out, _ = check(target, at.tolist(), 100, 64, 16)
    feed = feed_of(graph_of(at, 100, 64, 16), at)
    whole = np.arange(tokens // 64 or 1)[None, None, None] if tokens >= 64 else np.array([[[[-1]]]])
    want, _ = selected.attend(feed["q"], feed["k_"], feed["v"], whole, at, 64, 0.25)
    np.testing.assert_allclose(out, want, atol=2e-5)


@on()
def test_before_the_first_block_is_complete_there_is_only_the_tail(target: str):
    """Case 3."""
    _, ids = check(target, [[0], [2]], 40, 4, 3)
    assert (ids == -1).all()


def guarded(listed: int, rows: int = 2) -> Graph:
    def step(kept, q, k, v, ids, at):
        out = ops.attention_selected(q, k, v, ids, at, ratio=4, scale=0.25)
        return out, kept + 1.0

    kv = poot.slot((1, HKV, 32, D), "f32")
    return poot.trace(
        step,
        (
            poot.state((3,)), poot.slot((1, HQ, rows, D), "f32"), kv, kv,
            poot.slot((1, 1, rows, listed), "i32"), poot.slot((1, rows), "i32", range=(0, 32)),
        ),
    )  # fmt: skip


@on(but="emulated")
def test_a_bad_id_of_the_users_is_named_and_publishes_nothing_under_replay_too(target: str):
    """Case 4: a duplicate, an id out of range, a block of the future."""
    graph = guarded(3)
    program = compile_on(target, graph)
    assert fused_count(program, "selected_attention") == 1
    feed = {
        n: normal(i, 1, HQ if n == "q" else HKV, 2 if n == "q" else 32, D)
        for i, n in enumerate("qkv")
    }
    session = bind_feed(program, graph, {})
    good = {
        "ids": np.array([[[[2, 0, -1], [1, 3, 0]]]], np.int32),
        "at": np.array([[13, 18]], np.int32),
    }
    bad = (([0, 1, 1], (0, 0, 1, 2), 1), ([0, 9, 1], (0, 0, 1, 1), 9), ([4, 1, 0], (0, 0, 1, 0), 4))
    try:
        steps = [lambda **slots: session.step("main", **slots)]
        want = np.asarray(steps[0](**feed, **good))
        ids = good["ids"]
        ref, _ = selected.attend(feed["q"], feed["k"], feed["v"], ids, good["at"], 4, 0.25)
        np.testing.assert_allclose(want, ref, atol=2e-5)
        steps.append(captured_or_refused(session))
        for step in steps:
            before = np.array(session.state["kept"])
            for row, index, id_ in bad:
                wrong = ids.copy()
                wrong[0, 0, 1] = row
                with pytest.raises(ValidationError) as e:
                    step(ids=wrong, at=good["at"], **feed)
                assert (e.value.index, e.value.value) == (index, id_)
                np.testing.assert_array_equal(session.state["kept"], before)
            got = np.asarray(step(**feed, **good))
            np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(session.state["kept"], before + 1)
    finally:
        session.close()


@on()
def test_what_follows_the_first_negative_id_and_nan_in_unvisited_slots_never_show(target: str):
    """Cases 5 and 6."""
    graph = guarded(4, 1)
    program = compile_on(target, graph)
    assert fused_count(program, "selected_attention") == 1
    feed = {
        n: normal(i, 1, HQ if n == "q" else HKV, 1 if n == "q" else 32, D)
        for i, n in enumerate("qkv")
    }
    feed |= {"ids": np.array([[[[3, 1, -1, 5]]]], np.int32), "at": np.array([[29]], np.int32)}
    feed["kept"] = np.zeros(3, np.float32)
    want, _ = selected.attend(feed["q"], feed["k"], feed["v"], feed["ids"], feed["at"], 4, 0.25)
    dead = np.setdiff1d(np.arange(32), selected.visited([3, 1], 29, 4))
    feed["k"][:, :, dead], feed["v"][:, :, dead] = np.nan, np.nan
    got = run_program(program, feed).outputs[0]
    np.testing.assert_allclose(got, want, atol=2e-5)


@on()
def test_a_users_list_of_one_slot_visits_its_block_alone(target: str):
    def fn(q, k, v, ids, at):
        return ops.attention_selected(q, k, v, ids, at, ratio=4, scale=0.25)

    kv = poot.slot((1, HKV, 32, D), "f32")
    specs = (poot.slot((1, HQ, 1, D), "f32"), kv, kv, poot.slot((1, 1, 1, 1), "i32"))
    program = compile_on(target, poot.trace(fn, (*specs, poot.slot((1, 1), "i32", range=(0, 32)))))
    assert fused_count(program, "selected_attention") == 1
    feed = {"q": normal(0, 1, HQ, 1, D), "k": normal(1, 1, HKV, 32, D)}
    feed |= {"v": normal(2, 1, HKV, 32, D), "ids": np.array([[[[1]]]], np.int32)}
    feed["at"] = np.array([[29]], np.int32)
    want, _ = selected.attend(feed["q"], feed["k"], feed["v"], feed["ids"], feed["at"], 4, 0.25)
    dead = np.setdiff1d(np.arange(32), selected.visited([1], 29, 4))
    feed["k"][:, :, dead], feed["v"][:, :, dead] = np.nan, np.nan
    np.testing.assert_allclose(run_program(program, feed).outputs[0], want, atol=2e-5)


@on()
@pytest.mark.parametrize("ratio", [4, 16, 32])
def test_paged_keys_are_read_where_they_lie_whatever_the_page(target: str, ratio: int):
    """Case 7: pages of 16; a block of 4 or 16 lies in one, one of 32 in two."""
    keys, pages = 96, 40
    at = np.array([[90], [41]])
    rng = np.random.default_rng(0)
    table = rng.permutation(np.arange(1, pages))[: 2 * keys // 16].reshape(2, -1)
    read = (table[..., None] * 16 + np.arange(16)).reshape(2, keys).astype(np.int32)

    def fn(q, pool_k, pool_v, s, at, read):
        ids = ops.block_topk(s, at, 2, ratio)
        k, v = (ops.take(x, read).transpose(0, 2, 1, 3) for x in (pool_k, pool_v))
        return ops.attention_selected(q, k, v, ids, at, ratio=ratio, scale=0.25), ids

    pool = poot.slot((pages * 16, HKV, D), "f32")
    graph = poot.trace(
        fn,
        (
            poot.slot((2, HQ, 1, D), "f32"), pool, pool,
            poot.slot((2, 1, 1, keys // ratio), "f32"),
            poot.slot((2, 1), "i32", range=(0, keys)),
            poot.slot((2, keys), "i32", range=(0, pages * 16)),
        ),
    )  # fmt: skip
    feed = {i.name: normal(n, *i.var.type.shape) for n, i in enumerate(graph.inputs)}
    feed |= {"at": at.astype(np.int32), "read": read}
    program = compile_on(target, graph)
    assert fused_count(program, "selected_attention") == 1
    out, ids = run_program(program, feed).outputs
    k, v = (feed[n][read].transpose(0, 2, 1, 3) for n in ("pool_k", "pool_v"))
    want, _ = selected.attend(feed["q"], k, v, ids, at, ratio, 0.25)
    np.testing.assert_allclose(out, want, atol=2e-5)


@on()
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_a_prefill_over_the_union_of_its_rows_is_the_definitions(target: str, dtype: str):
    """Case 8."""
    rows = list(range(70, 81))
    check(target, [rows], 96, 4, 5, dtype=dtype, lists=2)


@on()
@pytest.mark.parametrize("ratio, k", [(1, 20), (2, 9), (128, 1)])
def test_blocks_of_one_key_to_128(target: str, ratio: int, k: int):
    check(target, [[290, 291], [150, 151]], 300, ratio, k)


@on()
@pytest.mark.parametrize("lists", [1, HKV, HQ])
def test_one_list_a_token_a_key_head_or_a_head(target: str, lists: int):
    check(target, [[60], [33]], 64, 4, 4, lists=lists)


@on(but="simulator emulated")
def test_2048_blocks_of_32768(target: str):
    """The greatest list, with ties and NaN among the scores."""
    blocks = 32768
    graph = poot.trace(
        lambda s, at: ops.block_topk(s, at, 2048, 4),
        (poot.slot((2, 1, 1, blocks), "f32"), poot.slot((2, 1), "i32", range=(0, blocks * 4))),
    )
    scores = np.round(normal(0, 2, 1, 1, blocks) * 20) / 20
    scores[..., ::97] = np.nan
    at = np.array([[blocks * 4 - 1], [70001]], np.int32)
    (got,) = run_program(compile_on(target, graph), {"s": scores, "at": at}).outputs
    np.testing.assert_array_equal(got, selected.topk_ids(scores, at, 2048, 4))


@on(but="simulator emulated")
def test_as_it_is_written_it_gives_the_same(target: str):
    at = np.array([[30, 31], [12, 13]])
    graph = graph_of(at, 40, 4, 3, 2)
    feed = feed_of(graph, at)
    one = run_program(compile_on(target, graph), feed).outputs
    other = run_program(compile_on(target, graph, passes=()), feed).outputs
    np.testing.assert_array_equal(one[1], other[1])
    np.testing.assert_allclose(one[0], other[0], atol=2e-5)


@on()
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("batch, width", [(1, 64), (2, 128), (3, 64)])
def test_the_whole_decode_in_16_bits_at_the_widths_of_matrix_units(
    target: str, dtype: str, batch: int, width: int
):
    """Scores, best blocks and attention; on CUDA each in its schedule for the card."""
    keys, ratio, k = 200, 4, 7
    blocks, at = keys // ratio, np.array([[150], [61], [2]])[:batch]
    kv = poot.slot((batch, HKV, keys, width), dtype)

    def fn(q, k_, v, index, block_keys, at):
        scores = ops.block_scores(index, block_keys)
        ids = ops.block_topk(scores, at, k, ratio)
        out = ops.attention_selected(q, k_, v, ids, at, ratio=ratio, scale=width**-0.5)
        return out, ids, scores

    graph = poot.trace(
        fn,
        (
            poot.slot((batch, HQ, 1, width), dtype), kv, kv,
            poot.slot((batch, 3, 1, 32), dtype), poot.slot((batch, blocks, 32), dtype),
            poot.slot((batch, 1), "i32", range=(0, keys)),
        ),
    )  # fmt: skip
    feed = feed_of(graph, at)
    program = compile_on(target, graph)
    assert fused_count(program, "selected_attention") == fused_count(program, "block_topk") == 1
    out, ids, scores = run_program(program, feed).outputs
    index, held = plain(feed["index"])[:, :, 0], plain(feed["block_keys"])
    want = np.maximum(np.einsum("bhd,bnd->bhn", index, held), 0).sum(1) * 32**-0.5
    np.testing.assert_allclose(scores[:, 0, 0], want, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(ids, selected.topk_ids(scores, at, k, ratio))
    wide = [plain(feed[n]) for n in ("q", "k_", "v")]
    ref, _ = selected.attend(*wide, ids, at, ratio, width**-0.5)
    np.testing.assert_allclose(plain(out), ref, atol=WITHIN[dtype])
