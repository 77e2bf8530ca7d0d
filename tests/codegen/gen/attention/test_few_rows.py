"""Few rows of a key head in the simulator: how pairs fill vectors, what is read, in which order.
Numbers against the oracle in each form are in test_key_blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.codegen.gen.attention.few_rows import Pairs, filled_pairs, most_sums, strip_of
from poot.codegen.gen.lower import lower
from poot.codegen.kir.text import show
from poot.ir.text import parse
from poot.limits import profile
from tests.support.attention_forms import Form, form_text
from tests.support.launch import check_step, request_of, run_request

SMALL = replace(profile("cpu-avx2"), vector=4, subgroup=4)


def test_pairs_fill_a_power_of_two_or_whole_vectors():
    assert [filled_pairs(n, 8) for n in (1, 2, 3, 5, 8, 9, 16, 17)] == [1, 2, 4, 8, 8, 16, 16, 24]


def test_a_vector_holds_whole_keys_or_a_key_whole_vectors():
    of = [(p.keys, p.vectors) for p in (Pairs(1, 1, 8), Pairs(3, 4, 8), Pairs(8, 8, 8))]
    assert of == [(8, 1), (2, 1), (1, 1)]
    assert (Pairs(20, 24, 8).keys, Pairs(20, 24, 8).vectors) == (1, 3)


def test_sums_leave_registers_to_what_is_added():
    assert most_sums(16) < 32
    assert most_sums(8) < 16


def test_strips_are_even_and_no_taller_than_asked():
    assert [strip_of(n, 6) for n in (1, 6, 7, 8, 13)] == [1, 6, 4, 4, 5]
    assert strip_of(5, 0) == 1


@pytest.mark.parametrize("repeat", [*range(1, 10), 13, 16])
def test_every_number_of_rows_of_a_key_head(repeat):
    form = Form(batch=1, heads=2 * repeat, kv_heads=2, rows=1, keys=45, live=True)
    text, feed = form_text(form)
    request = check_step(text, "attention", limits=SMALL, ins=list(feed.values()), within=2e-5)
    assert request.schedule.get("few") == 1


@pytest.mark.parametrize("keys", [1, 15, 16, 17, 31, 33])
def test_a_last_block_of_pool_slots_of_any_length(keys):
    form = Form(batch=2, heads=4, kv_heads=2, rows=1, keys=keys, paged=True)
    text, feed = form_text(form)
    check_step(text, "attention", limits=SMALL, ins=list(feed.values()), within=2e-5)


def test_pool_slots_are_fetched_ahead_and_dense_keys_are_not():
    def kernel(form: Form) -> str:
        request = request_of(parse(form_text(form)[0]), "attention", limits=SMALL)
        return show(lower(request, SMALL).calls[0].kernel)

    form = Form(batch=1, heads=4, kv_heads=2, rows=1, keys=300, paged=True)
    assert "prefetch in" in kernel(form)
    assert "prefetch" not in kernel(replace(form, paged=False))
    assert "prefetch" not in kernel(replace(form, rows=20))


def test_the_order_of_keys_is_that_of_the_sequence_wherever_its_slots_lie():
    """The same sequence in other slots gives the same bits."""
    form = Form(batch=1, heads=4, kv_heads=2, rows=1, keys=70, paged=True)
    text, feed = form_text(form)
    request = request_of(parse(text), "attention", limits=SMALL)
    first = run_request(request, list(feed.values()), SMALL)[0]
    moved = dict(feed)
    turn = np.random.default_rng(3).permutation(feed["k"].shape[0])
    moved["read"] = turn[feed["read"]].astype(np.int32)
    for name in ("k", "v"):
        moved[name] = np.empty_like(feed[name])
        moved[name][turn] = feed[name]
    np.testing.assert_array_equal(run_request(request, list(moved.values()), SMALL)[0], first)
