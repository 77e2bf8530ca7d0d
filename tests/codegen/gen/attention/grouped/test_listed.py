"""Grouped decodes over listed blocks against the oracle: every kind of list, and what is read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

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


@pytest.mark.parametrize("form, compute_units", FORMS, ids=str)
def test_every_list_is_the_oracles(form: Form, compute_units: int):
    assert check_form(form, card(compute_units)).schedule.name == "grouped"


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
