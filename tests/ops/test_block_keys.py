"""The cache of block keys: chunks, padding, open blocks, rollback."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot import ops
from poot.errors import TypeRuleError
from tests.support.traced import evaluate, graph_of, normal

B, N, D, R = 2, 6, 4, 4


def finish(means, first):
    return means * 2.0 + first.astype("f32").reshape(*first.shape, 1)


def append(keys, total, count, raw, positions, valid=None):
    cache = ops.append_block_keys(
        ops.BlockKeys(keys, total, count), raw, positions, R, finish, valid
    )
    return cache.keys, cache.total, cache.count


def run(lengths, chunks, raw, valid=None):
    """The cache after the tokens of `raw` [B,T,D] in those chunks, from an empty one."""
    keys, total = np.zeros((B * N, D), np.float32), np.zeros((B, D), np.float32)
    count, at = np.zeros(B, np.int32), 0
    for size in chunks:
        positions = np.tile(np.arange(at, at + size, dtype=np.int32), (B, 1))
        keys, total, count = evaluate(append, keys, total, count, raw[:, at : at + size], positions)
        at += size
    return keys, total, count


def wanted(raw):
    """Block keys of the full blocks and the open block's sum and count."""
    tokens = raw.shape[1]
    keys = np.zeros((B, N, D))
    for n in range(tokens // R):
        keys[:, n] = raw[:, n * R : n * R + R].astype(float).mean(1) * 2.0 + n * R
    return keys.reshape(B * N, D), raw[:, tokens // R * R :].astype(float).sum(1), tokens % R


@pytest.mark.parametrize("chunks", [(1,) * 11, (11,), (3, 8), (4, 4, 4), (5, 1, 1, 9), (2, 2)])
def test_a_cache_holds_the_keys_of_full_blocks_whatever_the_chunks(chunks):
    raw = normal(0, B, sum(chunks), D)
    keys, total, count = run(sum(chunks), chunks, raw)
    want = wanted(raw)
    np.testing.assert_allclose(keys, want[0], atol=1e-5)
    np.testing.assert_allclose(total, want[1], atol=1e-5)
    np.testing.assert_array_equal(count, want[2])


def test_padding_tokens_are_in_no_block_even_if_nan():
    raw = normal(1, B, 7, D)
    padded = np.concatenate([raw, np.full((B, 2, D), np.nan, np.float32)], 1)
    zeros = np.zeros((B * N, D), np.float32), np.zeros((B, D), np.float32), np.zeros(B, np.int32)
    positions = np.tile(np.arange(9, dtype=np.int32), (B, 1))
    keys, total, count = evaluate(append, *zeros, padded, positions, np.full(B, 7, np.int32))
    want = wanted(raw)
    np.testing.assert_allclose(keys, want[0], atol=1e-5)
    np.testing.assert_allclose(total, want[1], atol=1e-5)
    np.testing.assert_array_equal(count, 3)


def test_a_rollback_restores_the_open_block_and_its_key_is_written_again():
    raw = normal(2, B, 10, D)
    keys, _, _ = run(10, (10,), raw)
    cached = np.zeros((B, N * R, D), np.float32)
    cached[:, :10] = raw
    back = np.array([6, 6], np.int32)
    total, count = evaluate(lambda x, n: ops.open_block(x, n, R), cached, back)
    np.testing.assert_allclose(total, raw[:, 4:6].sum(1), atol=1e-5)
    np.testing.assert_array_equal(count, 2)
    other = normal(3, B, 3, D)
    positions = np.tile(np.arange(6, 9, dtype=np.int32), (B, 1))
    keys, total, count = evaluate(append, keys, total, count, other, positions)
    want = wanted(np.concatenate([raw[:, :6], other], 1))
    np.testing.assert_allclose(keys, want[0], atol=1e-5)
    np.testing.assert_allclose(total, want[1], atol=1e-5)
    np.testing.assert_array_equal(count, want[2])


def test_the_keys_are_written_in_place_as_a_state():
    def step(cache, raw, positions):
        cache = ops.append_block_keys(cache, raw, positions, R, finish)
        return cache.total, cache

    spec = ops.BlockKeys(poot.state((B * N, D)), poot.state((B, D)), poot.state((B,), "i32"))
    graph = poot.trace(
        step, (spec, poot.slot((B, 3, D), "f32"), poot.slot((B, 3), "i32", range=(0, N * R)))
    )
    program = poot.compile(graph, "lavapipe")
    assert "update" in program.explain()
    session = poot.compile(graph, "oracle").bind()
    session.step(raw=np.ones((B, 3, D), np.float32), positions=np.tile(np.arange(3), (B, 1)))
    np.testing.assert_array_equal(session.state["cache.count"], 3)


def test_shapes_that_do_not_fit_are_refused():
    raw, at = normal(0, B, 3, D), np.zeros((B, 3), np.int32)
    total, count = np.zeros((B, D), np.float32), np.zeros(B, np.int32)
    with pytest.raises(TypeRuleError, match=r"append_block_keys needs keys \[B\*N,d\]"):
        graph_of(append, np.zeros((B * N, D + 1), np.float32), total, count, raw, at)
    with pytest.raises(TypeRuleError, match="append_block_keys needs raw"):
        graph_of(append, np.zeros((B * N, D), np.float32), total, count, raw, at[:, :2])
    with pytest.raises(TypeRuleError, match="open_block needs raw"):
        graph_of(lambda x, n: ops.open_block(x, n, R), raw, at)
