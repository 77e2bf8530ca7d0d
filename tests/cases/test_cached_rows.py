"""Hard cases of rows that come one by one over a cache, of keys that end inside a tile and of
ragged lengths, on every target."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot import ops
from poot.errors import ValidationError
from poot.ir.graph import Graph
from poot.ops import Array
from poot.session import Session
from tests.support.attention import bottom_right, qkv, reference
from tests.support.everywhere import SLOW, compile_on, fused_count, on
from tests.support.tol import assert_within
from tests.support.traced import normal


def near(got: object, want: np.ndarray, what: str = "") -> None:
    assert isinstance(got, np.ndarray)
    assert_within(got, want.astype(got.dtype), "attention", what)


# Cases 53 and 58: a decode over a fixed cache


def decode_graph(capacity: int, kv_heads: int, window: int | None) -> Graph:
    """One token written at `pos` into K and V, and its query's row over what it may see."""

    def step(q: Array, new_k: Array, new_v: Array, pos: Array, k: Array, v: Array) -> object:
        k, v = (
            ops.dynamic_update_slice(cache, new, pos, 2) for cache, new in ((k, new_k), (v, new_v))
        )
        seen = ops.causal_mask(1, capacity, pos, window)
        return ops.attention_masked(q, k, v, mask=seen, scale=0.5), (k, v)

    def token(heads: int) -> object:
        return poot.slot((1, heads, 1, 4), "f32")

    cache = poot.state((1, kv_heads, capacity, 4))
    pos = poot.slot((), kind="pos", range=(0, capacity))
    specs = (token(2), token(kv_heads), token(kv_heads), pos, cache, cache)
    return poot.trace(step, specs)


@pytest.mark.parametrize("window", [None, 1, 4])
@on(but="emulated")
def test_case_53_and_58_a_decode_gives_the_rows_of_the_prefill(target: str, window: int | None):
    """Position by position over a cache longer than the sequence; what lies behind is NaN."""
    length, capacity = 10, 13
    q, k, v = qkv(1, 2, 1, length, length, 4, 4)
    graph = decode_graph(capacity, 1, window)
    program = compile_on(target, graph)
    assert fused_count(program, "attention") == 1, program.explain()
    session = program.bind()
    behind = np.arange(length)[:, None] - np.arange(length) < (window or length)
    want = reference(q, k, v, 0.5, keep=bottom_right(length, length) & behind)[0]
    for at in range(length):
        row = (slice(None), slice(None), slice(at, at + 1))
        got = session.step(q=q[row], new_k=k[row], new_v=v[row], pos=np.int32(at))
        near(got[0] if isinstance(got, tuple) else got, want[row], f"row {at}")
    np.testing.assert_array_equal(session.state["k"][:, :, :length], k)
    np.testing.assert_array_equal(session.state["k"][:, :, length:], 0)
    session.close()


# Case 42: keys between what nothing may read


KEYS = (1, 2, 31, 32, 33, 38, 39, 63, 65, 70, 77, 127, 129, 137, 192, 255, 257, 1025)
BEFORE, BEHIND = 3, 6


def between(keys: int) -> object:
    def fn(q: Array, k: Array, v: Array) -> object:
        k, v = (x[:, :, BEFORE : BEFORE + keys] for x in (k, v))
        return ops.attention_masked(q, k, v, mask=None, scale=0.35)

    return fn


@pytest.mark.parametrize("rows", [1, 5, 64, 137])
@on("cpu", "vulkan", "cuda")
def test_case_42_every_count_of_rows_meets_every_count_of_keys(target: str, rows: int):
    """K and V are slices of larger buffers, NaN on both sides; an entry point for each count."""
    graphs: dict[str, Graph] = {}
    for keys in KEYS:
        held = poot.slot((1, 1, keys + BEFORE + BEHIND, 8), "f32")
        specs = (poot.slot((1, 2, rows, 8), "f32"), held, held)
        graphs[f"keys{keys}"] = poot.trace(between(keys), specs)
    program = compile_on(target, graphs)
    session = program.bind()
    for keys, entry in zip(KEYS, graphs, strict=True):
        assert fused_count(program, "attention", entry) == 1, program.explain()
        q, k, v = qkv(1, 2, 1, rows, keys, 8, 8)
        sides = [np.full((1, 1, n, 8), np.nan, np.float32) for n in (BEFORE, BEHIND)]
        k_held, v_held = (np.concatenate([sides[0], x, sides[1]], 2) for x in (k, v))
        got = session.step(entry, q=q, k=k_held, v=v_held)
        near(got, reference(q, k, v, 0.35)[0], f"{rows} rows, {keys} keys")
    session.close()


# Cases 45 and 52: lengths of a batch


def live_session(target: str, batch: int, keys: int, width: int) -> Session:
    def live(q: Array, k: Array, v: Array, length: Array) -> object:
        return ops.attention_live(q, k, v, length, scale=0.5)

    row, cache = ((batch, 1, n, width) for n in (1, keys))
    specs = (poot.slot(row, "f32"), poot.slot(cache, "f32"), poot.slot(cache, "f32"))
    return compile_on(target, poot.trace(live, (*specs, poot.slot((batch,), "i32")))).bind()


@on(but="emulated")
def test_case_45_lengths_of_nothing_in_a_ragged_batch_are_refused_and_the_session_goes_on(
    target: str,
):
    q, k, v = (normal(n, 4, 1, rows, 4) for n, rows in enumerate((1, 6, 6)))
    lengths = np.asarray([1, 3, 1, 5], np.int32)
    k[np.arange(6) >= lengths[:, None, None]] = np.nan
    session = live_session(target, 4, 6, 4)
    want = session.step(q=q, k=k, v=v, length=lengths)
    for row, length in enumerate(lengths):
        one = (slice(row, row + 1), slice(None), slice(0, int(length)))
        near(want[row : row + 1], reference(q[row : row + 1], k[one], v[one], 0.5)[0])
    for bad in ((0, 3, 0, 5), (1, 3, 1, 7), (1, -(2**31), 1, 5)):
        with pytest.raises(ValidationError, match="index"):
            session.step(length=np.asarray(bad, np.int32))
        np.testing.assert_array_equal(session.step(length=lengths), want)
    session.close()


@on(but="emulated")
def test_case_52_a_live_plan_for_4096_keys_equals_fresh_plans_in_any_order(target: str):
    most, width = (4096, 8) if target not in SLOW else (200, 4)
    q, k, v = (normal(n, 1, 1, rows, width) for n, rows in enumerate((1, most, most)))
    session = live_session(target, 1, most, width)
    for length in (most * 3 // 40, most, 17):
        got = session.step(q=q, k=k, v=v, length=np.asarray([length], np.int32))
        near(got, reference(q, k[:, :, :length], v[:, :, :length], 0.5)[0], str(length))
    session.close()
