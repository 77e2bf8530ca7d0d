"""Hard cases of attention's numbers: scores that overflow, bases of the log-sum-exp, long sums,
subnormals, rows that must not depend on others, and splits, on every target."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import poot
from poot import ops
from poot.ir.graph import Graph
from poot.ops import Array
from poot.planner import key_blocks, schedules
from tests.support.attention import qkv, reference
from tests.support.everywhere import bind_feed, compile_on, device_of, fused_count, on
from tests.support.hard import attended, by_oracle, fused_only
from tests.support.tol import assert_within
from tests.support.traced import normal

ON = on(but="emulated")


def near(got: object, want: object, what: str = "") -> None:
    assert isinstance(got, np.ndarray)
    assert_within(got, np.asarray(want).astype(got.dtype), "attention", what)


@pytest.mark.parametrize("held", [np.float16, ml_dtypes.bfloat16])
@ON
def test_case_70_scores_past_the_range_of_16_bits_are_scaled_first(target: str, held: type):
    """q = k = 32 over 64 channels: 65536 unscaled, past f16's largest; one key at 31."""
    q, k = (np.full((1, 1, n, 64), 32, held) for n in (1, 9))
    k[:, :, 4] = 31
    v = normal(2, 1, 1, 9, 8).astype(held)

    def fn(q: Array, k: Array, v: Array) -> object:
        return ops.attention_masked(q, k, v, mask=None, scale=0.125)

    got = fused_only(target, fn, q, k, v)
    near(got, np.delete(v.astype(np.float32), 4, 2).mean(2, keepdims=True))
    assert np.isfinite(np.asarray(got).astype(np.float32)).all()


@ON
def test_case_71_scores_past_the_range_of_exp_give_the_value_of_the_largest(target: str):
    k = np.asarray([0, 89, 151.29, 1e4, 1e30], np.float32).reshape(1, 1, 5, 1)
    v = normal(2, 1, 1, 5, 3)
    q = np.ones((1, 1, 1, 1), np.float32)

    def safe(q: Array, k: Array, v: Array) -> object:
        return ops.attention_masked(q, k, v, mask=None, scale=1.0)

    def bare(q: Array, k: Array, v: Array) -> object:
        e = ops.exp(q @ k.swapaxes(2, 3))
        return (e / e.sum(3, keepdims=True)) @ v

    for got in attended(target, safe, q, k, v):
        np.testing.assert_array_equal(got, v[:, :, -1:])
    np.testing.assert_array_equal(fused_only(target, bare, q, k, v), v[:, :, -1:])
    assert np.isnan(by_oracle(bare, q, k, v)).all()


@ON
def test_case_73_parts_merge_by_a_natural_log_sum_exp(target: str):
    q, k, v = qkv(1, 2, 1, 2, 300, 8, 4)

    def fn(q: Array, k: Array, v: Array) -> object:
        outs: list[object] = []
        for at in (299, 150, 1):
            parts = [
                ops.attention_masked(q, k[:, :, a:b], v[:, :, a:b], mask=None, scale=0.4,
                                     return_lse=True)
                for a, b in ((0, at), (at, 300))
            ]  # fmt: skip
            outs += [ops.merge_attention(*parts), parts]
        return outs

    got = fused_only(target, fn, q, k, v, attentions=6)
    out, lse = reference(q, k, v, 0.4)
    for merged in got[::2]:
        near(merged[0], out)
        np.testing.assert_allclose(merged[1], lse, rtol=2e-6)
    alone = 0.4 * (q @ np.swapaxes(k[:, :, 299:], 2, 3))[..., 0]
    np.testing.assert_allclose(got[1][1][1], alone, rtol=0, atol=2e-6)


@on(but="simulator emulated")
def test_case_74_sums_over_65536_keys_are_held_in_f32(target: str):
    keys = 65536
    q, k = np.zeros((1, 1, 1, 4), np.float32), normal(1, 1, 1, keys, 4)
    v = np.ones((1, 1, keys, 4), np.float32)
    v[:, :, ::2] += 2.0**-9
    v[:, :, 1::2] -= 2.0**-9

    def fn(q: Array, k: Array, v: Array) -> object:
        return ops.attention_masked(q, k, v, mask=None, scale=0.5)

    np.testing.assert_allclose(fused_only(target, fn, q, k, v), 1.0, rtol=0, atol=1e-5)


@ON
def test_case_76_numbers_below_the_least_normal_are_kept_or_flushed(target: str):
    def fn(q: Array, k: Array, v: Array) -> object:
        return ops.attention_masked(q, k, v, mask=None, scale=1.0)

    q, k = np.ones((1, 1, 1, 4), np.float32), np.ones((1, 1, 1, 4), np.float32)
    tiny = np.full((1, 1, 1, 4), 1e-40, np.float32)
    for got in attended(target, fn, q, k, tiny):
        assert ((got == 0) | (got == tiny)).all()
    v = normal(2, 1, 1, 5, 4)
    q, k = np.full((1, 1, 1, 4), 1e-30, np.float32), np.full((1, 1, 5, 4), 1e-30, np.float32)
    for got in attended(target, fn, q, k, v):
        near(got, v.mean(2, keepdims=True))
    half = np.full((1, 1, 1, 4), 6e-8, np.float16)
    ones = np.ones((1, 1, 1, 4), np.float16)
    got = np.asarray(fused_only(target, fn, ones, ones, half))
    assert ((got == 0) | (got == half)).all()


@on(but="simulator emulated")
def test_case_78_a_row_does_not_depend_on_how_many_follow(target: str):
    """Row 0 at position 200 of 300 keys, alone and before 39 others: each count an entry point."""
    start, keys = 200, 300

    def of(rows: int) -> Graph:
        def fn(q: Array, k: Array, v: Array) -> object:
            keep = ops.causal_mask(rows, keys, start)
            return ops.attention_masked(q, k, v, mask=keep, scale=0.3)

        held = poot.slot((1, 1, keys, 16), "f32")
        return poot.trace(fn, (poot.slot((1, 2, rows, 16), "f32"), held, held))

    counts = (1, 2, 8, 9, 16, 17, 33, 40)
    program = compile_on(target, {f"rows{n}": of(n) for n in counts})
    q, k, v = qkv(1, 2, 1, 40, keys, 16, 16)
    session = program.bind()
    first = np.asarray(session.step("rows1", q=q[:, :, :1], k=k, v=v))
    for n in counts:
        assert fused_count(program, "attention", f"rows{n}") == 1
        got = np.asarray(session.step(f"rows{n}", q=q[:, :, :n], k=k, v=v))
        near(got[:, :, :1], first, f"{n} rows")
    session.close()


# Cases 79 and 82: splits


def split_graph(capacity: int, width: int = 16, value_width: int = 16, heads: int = 2) -> Graph:
    def fn(q: Array, k: Array, v: Array, pos: Array) -> object:
        k, v = (ops.repeat_kv(x, heads) for x in (k, v))
        return ops.attention_live(q, k, v, pos + 1, scale=0.3, return_lse=True)

    held = [poot.slot((1, 1, capacity, d), "f32") for d in (width, value_width)]
    pos = poot.slot((1,), "i32", kind="pos", range=(0, capacity))
    return poot.trace(fn, (poot.slot((1, heads, 1, width), "f32"), *held, pos))


def split_program(target: str, graph: Graph, units: int):
    """Compiled as for a device of so many compute units, and how many splits that gives."""
    limits = replace(device_of(target).limits, compute_units=units, cores=units)
    program = compile_on(target, graph, limits=limits)
    params = [dict(s.request.schedule.params) for s in program.entries["main"].plan.steps]
    return program, max(p.get("splits", 1) for p in params)


def poison(session: object) -> None:
    """NaN in every byte that no value keeps between steps, scratch among them."""
    runner = session.runner  # type: ignore[attr-defined]
    buffer = runner._own.get("arena")
    if buffer is not None:
        runner.device.copy_in(buffer, 0, np.full(buffer.nbytes // 4, np.nan, np.float32))


@on(but="simulator")
def test_case_79_empty_splits_and_stale_scratch_reach_no_result(target: str):
    """16 splits (of 4096 keys), lengths from 300 to 1 and back under one plan and one replay."""
    capacity = 4096
    graph = split_graph(capacity)
    program, splits = split_program(target, graph, 64)
    assert splits == 16 or target == "cuda", program.explain()
    q, k, v = qkv(1, 2, 1, 1, capacity, 16, 16)
    feed = {"q": q, "k": k, "v": v, "pos": np.asarray([299], np.int32)}
    session = bind_feed(program, graph, {})
    replay = session.capture()
    session.step(**feed)
    for length in (300, 1, 2, 17, capacity, 1):
        poison(session)
        out, lse = replay(pos=np.asarray([length - 1], np.int32))
        want, want_lse = reference(q, k[:, :, :length], v[:, :, :length], 0.3)
        near(out, want, f"length {length}")
        np.testing.assert_allclose(lse, want_lse, rtol=0, atol=1e-5)
    session.close()


@on(but="simulator emulated")
def test_case_82_each_count_of_splits_is_deterministic(target: str):
    """One latent head for 4 query heads; 20 calls for each plan, its scratch NaN before each."""
    capacity, seen = 2048, set[int]()
    for units in (1, 8, 12, 32, 64):
        graph = split_graph(capacity, 576, 512, 4)
        program, splits = split_program(target, graph, units)
        if splits in seen:
            continue
        seen.add(splits)
        q, k, v = qkv(1, 4, 1, 1, capacity, 576, 512)
        feed = {"q": q / 4, "k": k, "v": v, "pos": np.asarray([capacity - 1], np.int32)}
        session = bind_feed(program, graph, {})
        first = [np.array(x) for x in session.step(**feed)]
        near(first[0], reference(q / 4, k, v, 0.3)[0], f"{splits} splits")
        for _ in range(19):
            poison(session)
            for mine, theirs in zip(session.step(), first, strict=True):
                np.testing.assert_array_equal(mine, theirs)
        session.close()
    assert len(seen) >= 3 or target in ("cpu", "cuda")


@on("cpu", "vulkan", "wgpu")
def test_case_82_every_count_of_splits_from_1_to_33(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past what the planner takes, too; the software GPUs at the counts about powers of two."""
    for module in (key_blocks, schedules):
        monkeypatch.setattr(module, "MOST_SPLITS", 33)
    monkeypatch.setattr(key_blocks, "LEAST_BLOCKS", 1)
    monkeypatch.setattr(key_blocks, "GROUPS_A_THREAD", 2)
    monkeypatch.setattr(schedules, "LEAST_CHUNK", 32)
    capacity = 33 * 64
    graph = split_graph(capacity)
    q, k, v = qkv(1, 2, 1, 1, capacity, 16, 16)
    feed = {"q": q, "k": k, "v": v, "pos": np.asarray([capacity - 1], np.int32)}
    want = reference(q, k, v, 0.3)[0]
    for wanted in range(1, 34) if target == "cpu" else (1, 2, 3, 15, 16, 17, 31, 33):
        program, splits = split_program(target, graph, wanted * (1 if target == "cpu" else 2))
        assert splits == wanted
        session = bind_feed(program, graph, {})
        first = [np.array(x) for x in session.step(**feed)]
        near(first[0], want, f"{splits} splits")
        for _ in range(19):
            poison(session)
            for mine, theirs in zip(session.step(), first, strict=True):
                np.testing.assert_array_equal(mine, theirs)
        session.close()


@on("cpu", "vulkan", "wgpu")
def test_case_76_numbers_below_the_least_normal_take_at_most_thrice_the_time(target: str):
    """Values, products or weights of that size, against numbers about 1; the best of 12 turns."""
    keys = 2048
    q, k, v = qkv(1, 4, 4, 1, keys, 32, 32)
    tiny = np.full_like(v, 1e-40)
    far = np.zeros_like(k)  # scores 88 to 100 below the first key's: weights of 2^-127 to 2^-145
    far[:, :, 1:] = -np.linspace(88, 100, keys - 1, dtype=np.float32)[:, None] / 32
    ones = np.ones_like(q)
    rows = {
        "normal": (q, k, v), "values": (q, k, tiny),
        "products": (np.full_like(q, 1e-30), np.full_like(k, 1e-30), v),
        "weights": (ones, far, v), "all": (ones, far, tiny),
    }  # fmt: skip

    def fn(q: Array, k: Array, v: Array) -> object:
        return ops.attention_masked(q, k, v, mask=None, scale=1.0)

    graph = poot.trace(fn, tuple(poot.slot(x.shape, "f32") for x in (q, k, v)))
    names = [i.name for i in graph.inputs]
    session = bind_feed(compile_on(target, graph), graph, {})
    best = dict.fromkeys(rows, np.inf)
    for _ in range(12):
        for name, arrays in rows.items():
            session.step(**dict(zip(names, arrays, strict=True)))
            best[name] = min(best[name], session.profile().us)
    session.close()
    assert max(best.values()) <= 3 * best["normal"], best
