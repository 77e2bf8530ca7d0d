"""Hard cases over a paged cache: one layer of `PagedStep.attend`, its maps and its pools."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from poot.errors import RangeError, SlotMapError
from poot.ir.graph import Graph
from poot.llm.paged import PagedStep, pool_specs, step_slots
from poot.session import Session
from poot.slots import ForwardSlotMap
from poot.trace import slot, trace
from tests.support.everywhere import compile_on, on
from tests.support.tol import assert_within

HEADS, KV_HEADS, WIDTH = 4, 2, 16
EVERYWHERE = on("oracle", "cpu", "vulkan", "wgpu")


@cache
def layer(rows: int, capacity: int, slots: int) -> Graph:
    """A decode step of one layer."""

    def step(tokens, pos, read, write, kv, q, k, v):
        return PagedStep(tokens, pos, read, write).attend(kv, q, k, v, scale=WIDTH**-0.5)

    specs = {
        **step_slots(rows, 1, capacity, slots, 9),
        "kv": pool_specs(slots, KV_HEADS, WIDTH, "f32"),
        "q": slot((rows, HEADS, 1, WIDTH), "f32"),
    }
    specs["k"] = specs["v"] = slot((rows, KV_HEADS, 1, WIDTH), "f32")
    return trace(step, specs)


def session(target: str, rows: int, capacity: int, slots: int) -> Session:
    return compile_on(target, layer(rows, capacity, slots)).bind()


def fill(s: Session, k: np.ndarray, v: np.ndarray) -> None:
    s.state["kv.k.rows"], s.state["kv.v.rows"] = k, v


def given(
    rng: np.random.Generator, tables: list[np.ndarray], lengths: list[int], capacity: int
) -> dict[str, np.ndarray]:
    """Slots of a step after which row b has lengths[b] keys at slots tables[b]; a row of length 0
    is padding: one key, which it reads from slot 0, and no write."""
    rows = len(tables)
    read = np.zeros((rows, capacity), np.int32)
    write = np.full(rows, -1, np.int32)
    for b, (table, length) in enumerate(zip(tables, lengths, strict=True)):
        read[b, :length] = table[:length]
        if length:
            write[b] = table[length - 1]

    def random(heads: int) -> np.ndarray:
        return rng.standard_normal((rows, heads, 1, WIDTH)).astype(np.float32)

    return {
        "tokens": np.zeros((rows, 1), np.int32),
        "pos": np.array([max(0, n - 1) for n in lengths], np.int32),
        "read": read,
        "write": write,
        "q": random(HEADS),
        "k": random(KV_HEADS),
        "v": random(KV_HEADS),
    }


def run(s: Session, slots: dict[str, np.ndarray], pool: int) -> np.ndarray:
    write = ForwardSlotMap(slots["write"], pool)
    return np.asarray(s.step(**{**slots, "write": write}))


def expected(
    k: np.ndarray, v: np.ndarray, slots: dict[str, np.ndarray], lengths: list[int]
) -> np.ndarray:
    """Softmax attention in f64, row by row, over the pools with the new rows written."""
    k, v = k.astype(np.float64), v.astype(np.float64)
    for b, at in enumerate(slots["write"]):
        if at >= 0:
            k[at], v[at] = slots["k"][b, :, 0], slots["v"][b, :, 0]
    out = np.zeros((len(lengths), HEADS, 1, WIDTH))
    for b, length in enumerate(lengths):
        at = slots["read"][b, : max(1, length)]
        for h in range(HEADS):
            g = h // (HEADS // KV_HEADS)
            scores = k[at, g] @ slots["q"][b, h, 0] * WIDTH**-0.5
            weights = np.exp(scores - scores.max())
            out[b, h, 0] = weights @ v[at, g] / weights.sum()
    return out.astype(np.float32)


def pools(rng: np.random.Generator, slots: int) -> tuple[np.ndarray, np.ndarray]:
    k, v = (rng.standard_normal((slots, KV_HEADS, WIDTH)).astype(np.float32) for _ in range(2))
    k[:16] = v[:16] = 0
    return k, v


@pytest.mark.parametrize("where", ["keys", "values", "both"])
@EVERYWHERE
def test_cases_14_and_15_what_a_row_has_not_written_never_matters(where: str, target: str):
    """Blocks of two rows whose tails, and the blocks of nobody, hold anything."""
    lengths, capacity, slots = [3, 33], 64, 128
    tables = [np.arange(16, 80, dtype=np.int32), np.arange(80, 128, dtype=np.int32)]
    s = session(target, 2, capacity, slots)
    rng = np.random.default_rng(0)
    k, v = pools(rng, slots)
    step = given(rng, [t[:64] for t in tables], lengths, capacity)
    live = np.zeros(slots, bool)
    live[:16] = True
    for table, length in zip(tables, lengths, strict=True):
        live[table[:length]] = True
    results = []
    for value in (0.0, np.nan, np.inf, 65504.0):
        dirty = [x.copy() for x in (k, v)]
        for x, name in zip(dirty, ("keys", "values"), strict=True):
            if where in (name, "both"):
                x[~live] = value
        fill(s, *dirty)
        results.append(run(s, step, slots))
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])
    assert_within(results[0], expected(k, v, step, lengths), "attention")


@EVERYWHERE
def test_case_18_a_mean_over_live_keys_counts_no_others(target: str):
    capacity, slots = 320, 336
    s = session(target, 1, capacity, slots)
    rng = np.random.default_rng(0)
    table = (16 + rng.permutation(320)).astype(np.int32)
    for length in (1, 15, 17, 255, 256, 257, 300):
        k, v = pools(rng, slots)
        v[16:] = 1.0
        fill(s, k, v)
        step = given(rng, [table], [length], capacity)
        step["q"][:], step["v"][:] = 0.0, 1.0
        np.testing.assert_allclose(run(s, step, slots), 1.0, rtol=0, atol=2e-6)


@EVERYWHERE
def test_case_21_a_padded_row_writes_no_slot_and_a_bad_one_is_refused(target: str):
    """64 rows of 128 have slot -1. The pool is read back whole."""
    rows, capacity, slots = 128, 16, 16 * 9
    s = session(target, rows, capacity, slots)
    rng = np.random.default_rng(0)
    k, v = pools(rng, slots)
    fill(s, k, v)
    tables = [np.array([16 + b], np.int32) if b < 64 else np.zeros(1, np.int32)
              for b in range(rows)]  # fmt: skip
    step = given(rng, tables, [1 if b < 64 else 0 for b in range(rows)], capacity)
    run(s, step, slots)
    after = s.state["kv.k.rows"]
    np.testing.assert_array_equal(after[16:80], step["k"][:64, :, 0])
    np.testing.assert_array_equal(after[80:], k[80:])
    np.testing.assert_array_equal(after[:16], 0)
    for bad in (slots, 2**31 - 1, -2):
        with pytest.raises(SlotMapError, match="a write map needs slots in"):
            ForwardSlotMap(np.array([16, bad]), slots)
    with pytest.raises(SlotMapError, match="each slot once"):
        ForwardSlotMap(np.array([17, -1, 17]), slots)


@EVERYWHERE
def test_cases_20_and_23_a_map_that_leads_out_of_the_pool_is_refused_and_changes_nothing(
    target: str,
):
    s = session(target, 1, 64, 80)
    rng = np.random.default_rng(0)
    k, v = pools(rng, 80)
    fill(s, k, v)
    good = given(rng, [np.arange(16, 80, dtype=np.int32)], [20], 64)
    for name, value in (("read", 80), ("read", -1), ("pos", 64), ("pos", 80)):
        bad = {n: x.copy() for n, x in good.items()}
        bad[name].reshape(-1)[0] = value
        with pytest.raises(RangeError, match=rf"slot '{name}' needs values in 0"):
            run(s, bad, 80)
        np.testing.assert_array_equal(s.state["kv.k.rows"], k)
    assert_within(run(s, good, 80), expected(k, v, good, [20]), "attention")


@EVERYWHERE
def test_case_24_a_padding_row_is_finite_and_alone(target: str):
    lengths, capacity, slots = [7, 0, 33, 0], 48, 128
    tables = [np.arange(16, 64), np.zeros(1), np.arange(64, 112), np.zeros(1)]
    tables = [t.astype(np.int32) for t in tables]
    rng = np.random.default_rng(0)
    k, v = pools(rng, slots)
    four, one = session(target, 4, capacity, slots), session(target, 1, capacity, slots)
    fill(four, k, v)
    step = given(rng, tables, lengths, capacity)
    got = run(four, step, slots)
    assert np.isfinite(got).all()
    assert not got[[1, 3]].any()  # the mean of slot 0, which is zero
    for b in (0, 2):
        fill(one, k, v)
        alone = {n: x[b : b + 1] for n, x in step.items()}
        assert_within(got[b : b + 1], run(one, alone, slots), "attention")


@EVERYWHERE
def test_case_27_a_strided_view_of_a_pool_is_written_as_its_copy(target: str):
    """Two layers' caches packed in each block: [pages, 2, 16, heads, width]."""
    rng = np.random.default_rng(0)
    packed = rng.standard_normal((4, 2, 16, KV_HEADS, WIDTH)).astype(np.float32)
    packed[0] = 0
    rows = packed.transpose(1, 0, 2, 3, 4).reshape(2, 64, KV_HEADS, WIDTH)[1]
    view = np.zeros((64, 2 * KV_HEADS, WIDTH), np.float32)[:, ::2]  # every other head of a row
    view[:] = rows
    assert not view.flags.c_contiguous
    s = session(target, 1, 32, 64)
    step = given(rng, [np.arange(16, 48, dtype=np.int32)], [20], 32)
    results = []
    for pool in (view, np.ascontiguousarray(view), np.asfortranarray(view)):
        fill(s, pool, pool)
        results.append(run(s, step, 64))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@EVERYWHERE
def test_case_88_a_captured_step_follows_its_maps_and_lengths(target: str):
    """100 steps of random lengths and tables through a captured entry point, each against f64."""
    capacity, slots, rows = 48, 128, 2
    s = session(target, rows, capacity, slots)
    rng = np.random.default_rng(0)
    k, v = pools(rng, slots)
    fill(s, k, v)
    replay = None
    for _ in range(100):
        free = 16 + rng.permutation(112)
        tables = [free[:48].astype(np.int32), free[48:96].astype(np.int32)]
        lengths = [int(n) for n in rng.integers(1, 49, rows)]
        step = given(rng, tables, lengths, capacity)
        bound = {**step, "write": ForwardSlotMap(step["write"], slots)}
        got = s.step(**bound) if replay is None else replay(**bound)
        assert_within(np.asarray(got), expected(k, v, step, lengths), "attention")
        for b, at in enumerate(step["write"]):
            k[at], v[at] = step["k"][b, :, 0], step["v"][b, :, 0]
        replay = replay or s.capture()


@EVERYWHERE
def test_case_89_one_compiled_step_serves_every_length(target: str):
    capacity, slots = 64, 96
    s = session(target, 1, capacity, slots)
    rng = np.random.default_rng(0)
    table = (16 + rng.permutation(64)).astype(np.int32)
    for length in (1, 2, 3, 64, 63, 1):
        k, v = pools(rng, slots)
        fill(s, k, v)
        step = given(rng, [table], [length], capacity)
        assert_within(run(s, step, slots), expected(k, v, step, [length]), "attention")
