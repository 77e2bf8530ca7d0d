"""Grouped decodes over listed blocks against the oracle: every kind of list, and what is read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.codegen.gen.lower import lower
from poot.codegen.kir.sim import SparseBuffer, simulate
from poot.ir.dtypes import DTYPES
from poot.ir.text import parse
from tests.support.grouped import card
from tests.support.launch import request_of, run_request
from tests.support.selected import list_of, visited
from tests.support.selected_forms import Form, form_text
from tests.support.selected_steps import check_form

BASE = Form(2, 4, 2, 1, 400, 64, 64, 4, 20, dtype="bf16")
FORMS = (
    (BASE, 9),
    (replace(BASE, positions=(2, 399)), 3),
    (replace(BASE, positions=(399, 3), always="own"), 4),
    (replace(BASE, ratio=1, listed=50), 5),
    (replace(BASE, always="window(70)", positions=(399, 60)), 5),
    (replace(BASE, always="none", sink=True, ratio=1, listed=50, lists=2), 5),
    (replace(BASE, ratio=3, listed=21), 5),
    (replace(BASE, ratio=32, listed=5), 3),
    (replace(BASE, lists=2), 3),
    (replace(BASE, lists=4), 7),
    (replace(BASE, batch=5, lists=4, paged=True, live=True), 3),
    (replace(BASE, batch=7, heads=8), 5),
    (replace(BASE, batch=1, heads=24, positions=(399,), listed=90), 7),
    (replace(BASE, paged=True, dtype="f16"), 2),
    (replace(BASE, live=True, sink=True, lse=True, softcap=3.0), 4),
    (replace(BASE, dtype="f32"), 4),
    (replace(BASE, batch=3, dtype="f32", lists=2, paged=True, ratio=2), 5),
    (replace(BASE, width=256, value_width=256), 4),
    (replace(BASE, width=128, value_width=128, batch=3), 4),
)
# Enough compute units for a merger a round of channels.
WIDE = replace(BASE, heads=12, width=256, value_width=256, keys=700, listed=60)
MERGED = (
    (replace(WIDE, batch=1, positions=(699,)), 40),
    (replace(WIDE, positions=(2, 500), lse=True, sink=True), 44),
    (replace(WIDE, batch=1, heads=6, lists=2, dtype="f16", paged=True), 30),
)


@pytest.mark.parametrize("form, compute_units", FORMS, ids=str)
def test_every_list_is_the_oracles(form: Form, compute_units: int):
    assert check_form(form, card(compute_units)).schedule.name == "grouped"


@pytest.mark.parametrize("form, compute_units", MERGED, ids=str)
def test_groups_that_only_merge_add_up_every_part(form: Form, compute_units: int):
    request = check_form(form, card(compute_units))
    rounds = request.schedule.get("mergers")
    assert rounds > 0
    (call,) = lower(request, card(compute_units)).calls
    units = form.batch * form.kv_heads * request.schedule.get("cuts")
    assert call.grid[0] == request.schedule.get("groups") + units * rounds <= compute_units


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_other_draws_are_too(seed: int):
    check_form(replace(BASE, batch=3), card(4), seed)


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_nan_that_no_row_visits_never_shows(dtype: str):
    for form in (replace(BASE, positions=(17, 333), dtype=dtype), replace(BASE, batch=5)):
        text, feed = form_text(form)
        request = request_of(parse(text), "attention", limits=card(3))
        clean = run_request(request, list(feed.values()), card(3))[0]
        for b in range(form.batch):
            row, at = list_of(feed["ids"][b, 0, 0]), int(feed["positions"][b, 0])
            dead = np.setdiff1d(np.arange(form.keys), visited(row, at, form.ratio))
            feed["k"][b, :, dead], feed["v"][b, :, dead] = np.nan, np.nan
        got = run_request(request, list(feed.values()), card(3))[0]
        np.testing.assert_array_equal(got.astype(float), clean.astype(float))


def test_wild_ids_and_positions_read_nothing_outside():
    """The simulator fails on any access outside a buffer."""
    rng = np.random.default_rng(0)
    for form in (BASE, replace(BASE, paged=True), replace(BASE, batch=5, lists=4)):
        text, feed = form_text(form)
        for name in ("ids", "positions"):
            drawn = rng.integers(-(2**31), 2**31, feed[name].shape)
            feed[name] = drawn.astype(np.int32)
        run_request(request_of(text, "attention", (), card(3)), list(feed.values()), card(3))


def _far(at: np.ndarray, seed: int) -> np.ndarray:
    """Elements of a cache too large to hold, by their numbers."""
    return np.sin(at.astype(np.float64) * 0.7 + seed)


def test_a_cache_of_2_to_the_31_elements_is_read_at_its_real_addresses():
    b, hq, hkv, keys, width, listed = 32, 4, 2, 131072, 256, 6
    q, kv = f"bf16[{b},{hq},1,{width}]", f"bf16[{b},{hkv},{keys},{width}]"
    attrs = "operands=(q, k, v, ids, positions) ratio=4 scale=0.25"
    text = f"""slot v0: {q} "q"
               slot v1: {kv} "k"
               slot v2: {kv} "v"
               slot v3: i32[{b},1,1,{listed}] "ids"
               slot v4: i32[{b},1] "at" range=(0, {keys})
               v5: {q} = selected_attention(v0, v1, v2, v3, v4) {attrs}
               out v5"""
    request = request_of(text, "attention", limits=card(64))
    (call,) = lower(request, card(64)).calls
    held = lambda x: x.astype(DTYPES["bf16"].numpy).astype(np.float32)  # noqa: E731
    rng = np.random.default_rng(0)
    ids = np.sort(rng.integers(0, 32760, (b, listed)), 1).astype(np.int32)
    queries = held(rng.normal(size=(b, hq, width)))
    flat = {
        "q": lambda at: queries.reshape(-1)[at], "k": lambda at: _far(at, 0),
        "v": lambda at: _far(at, 1), "ids": lambda at: ids.reshape(-1)[at],
        "at": lambda at: np.full(at.shape, keys - 2),
    }  # fmt: skip
    buffers = {}
    for p, (kind, n) in zip(call.kernel.params, call.args, strict=True):
        fill = flat[list(flat)[n]] if kind == "in" else None
        buffers[(p.name, kind)] = SparseBuffer(p.dtype, p.elems, fill)
    last = call.grid[0] - 1
    simulate(call.kernel, {n: x for (n, _), x in buffers.items()}, call.grid, [last])
    out = next(x for (_, kind), x in buffers.items() if kind == "out")
    row, head = b - 1, hkv - 1
    seen = np.concatenate(
        [(ids[row][:, None] * 4 + np.arange(4)).reshape(-1), [keys - 4, keys - 3, keys - 2]]
    )
    at = ((row * hkv + head) * keys + np.unique(seen)[:, None]) * width + np.arange(width)
    k, v = held(_far(at, 0)), held(_far(at, 1))
    for n in range(hq // hkv):
        scores = k @ queries[row, head * 2 + n] * 0.25
        weights = np.exp(scores - scores.max())
        want = weights / weights.sum() @ v
        first = (row * hq + head * 2 + n) * width
        got = out.read(np.arange(first, first + width)).astype(np.float64)
        np.testing.assert_allclose(got, want, atol=3e-2)
