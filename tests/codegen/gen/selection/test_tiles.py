"""Selected attention in the simulator: every form, dtype and placement, and what it reads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.codegen.gen.lower import lower
from poot.ir.text import parse
from tests.support.launch import BASELINE, LAVAPIPE, assert_close, request_of, run_request, wanted
from tests.support.selected import list_of, visited
from tests.support.selected_forms import ALONE, NARROW, PREFILL, Form, form_text
from tests.support.selected_steps import check_form, reads_of

LIMITS = pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE], ids=["lavapipe", "baseline"])
LONG = Form(1, 4, 2, 1, 1200, 16, 16, 4, 200, positions=(1199,))


@LIMITS
@pytest.mark.parametrize("form", [*ALONE, *PREFILL, *NARROW], ids=str)
def test_every_form_is_the_oracles(form, limits):
    check_form(form, limits)


@pytest.mark.parametrize("form", [ALONE[1], PREFILL[1], NARROW[3]], ids=str)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_other_draws_are_too(form, seed):
    check_form(form, seed=seed)


@pytest.mark.parametrize(
    "form",
    [LONG, replace(LONG, lse=True, sink=True, paged=True, live=True, dtype="bf16"),
     replace(LONG, positions=(40,)), replace(LONG, positions=(2,))],
    ids=str,
)  # fmt: skip
def test_a_decode_of_few_tiles_is_split_and_merged(form):
    request = check_form(form)
    assert request.schedule.get("splits") > 1
    names = [c.kernel.name for c in lower(request, LAVAPIPE).calls]
    assert names[:2] == ["attention_selected", "attention_combine"]


def test_query_rows_share_a_tile_over_the_union_of_their_lists():
    request = check_form(PREFILL[1])
    assert request.schedule.get("rows") > 1
    names = [c.kernel.name for c in lower(request, LAVAPIPE).calls]
    assert names == ["selected_union", "attention_selected"]


def test_without_a_binding_for_the_union_each_row_has_its_own_tile():
    form = PREFILL[4]
    assert check_form(form, replace(BASELINE, storage_buffers=9)).schedule.get("rows") == 1


def test_reads_follow_the_list_not_the_length():
    """K and V elements that a decode reads are those of the keys it visits, each once a tile."""
    for keys in (400, 4000):
        form = Form(1, 4, 2, 1, keys, 16, 24, 4, 8, positions=(keys - 2,))
        _, stats = reads_of(form)
        _, feed = form_text(form)
        seen = len(visited(list_of(feed["ids"][0, 0, 0]), keys - 2, 4))
        loads = stats["attention_selected"].loads
        assert (loads["in1"], loads["in2"]) == (2 * seen * 16, 2 * seen * 24)
        assert seen <= (8 + 1) * 4


def test_a_prefill_reads_a_block_that_its_rows_share_once():
    form = Form(1, 2, 1, 8, 600, 16, 16, 4, 6, positions=tuple(range(500, 508)))
    text, feed = form_text(form)
    feed["ids"][:] = np.arange(6) * 3
    request = request_of(text, "attention")
    for got, want in zip(
        run_request(request, list(feed.values())), wanted(request, list(feed.values())), strict=True
    ):
        assert_close(got, want, 2e-5)
    _, stats = reads_of(form)
    union = {b for r in range(8) for b in list_of(form_text(form)[1]["ids"][0, 0, r])}
    union |= {(p + 1) // 4 for p in range(500, 508) if (p + 1) % 4}
    assert stats["attention_selected"].loads["in1"] <= len(union) * 4 * 16


def test_what_a_row_does_not_visit_may_be_nan():
    for form in (Form(keys=30, listed=2, positions=(17, 25)), Form(rows=4, keys=40, listed=2)):
        text, feed = form_text(form)
        request = request_of(parse(text), "attention")
        clean = run_request(request, list(feed.values()))[0]
        for b in range(form.batch):
            seen: set[int] = set()
            for r in range(form.rows):
                row = list_of(feed["ids"][b, 0, r])
                seen |= set(visited(row, int(feed["positions"][b, r]), 4))
            dead = np.setdiff1d(np.arange(form.keys), sorted(seen))
            feed["k"][b, :, dead], feed["v"][b, :, dead] = np.nan, np.nan
        np.testing.assert_array_equal(run_request(request, list(feed.values()))[0], clean)


def test_nan_of_another_rows_block_does_not_reach_a_row_of_the_same_tile():
    form = Form(1, 1, 1, 4, 64, 8, 8, 4, 2, positions=(40, 41, 42, 43))
    text, feed = form_text(form)
    feed["ids"][0, 0] = [[0, 1], [0, 2], [0, 1], [0, 1]]
    request = request_of(parse(text), "attention")
    assert request.schedule.get("rows") == 4
    clean = run_request(request, list(feed.values()))[0]
    feed["v"][0, 0, 8:12], feed["k"][0, 0, 8:12] = np.nan, np.nan
    got = run_request(request, list(feed.values()))[0]
    np.testing.assert_array_equal(got[0, 0, [0, 2, 3]], clean[0, 0, [0, 2, 3]])
    assert np.isnan(got[0, 0, 1]).all()


def test_wild_ids_and_positions_read_nothing_outside():
    """The simulator fails on any access outside a buffer."""
    form = Form(rows=3)
    text, feed = form_text(form)
    rng = np.random.default_rng(0)
    feed["ids"] = rng.integers(-(2**31), 2**31, feed["ids"].shape).astype(np.int32)
    feed["positions"] = rng.integers(-(2**31), 2**31, feed["positions"].shape).astype(np.int32)
    for limits in (LAVAPIPE, replace(LAVAPIPE, storage_buffers=5)):
        run_request(request_of(text, "attention", (), limits), list(feed.values()), limits)
