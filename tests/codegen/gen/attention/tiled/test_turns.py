"""Blocks in turn: every block once, whatever the number of groups; counters at rest after."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.codegen.gen.attention.tiled.turns import slot_of
from poot.codegen.gen.lower import lower
from poot.codegen.kir.build import KernelBuilder
from poot.codegen.kir.sim import simulate
from tests.support.attention_steps import check_form
from tests.support.tiled import H200, prefill, request_for


@pytest.mark.parametrize("compute_units", [1, 3, 4])
def test_few_groups_make_every_block(compute_units: int):
    few = replace(H200, compute_units=compute_units)
    request = check_form(prefill(200, 150, causal=0), few)
    assert request.schedule.get("groups") == compute_units


def test_a_group_goes_on_in_the_rings_where_its_last_block_left_them():
    one = replace(H200, compute_units=1)
    check_form(prefill(200, 300, 128, "f16", causal=100), one)
    check_form(prefill(140, 150, 256, live=True), one)


def test_counters_rest_at_all_ones():
    (counters,) = request_for(prefill(300, 300)).scratch
    assert (counters.dtype, counters.elems, counters.at_rest) == ("u32", 2, True)


def test_no_more_groups_are_launched_than_there_are_blocks():
    (call,) = lower(request_for(prefill(100, 100)), H200).calls
    assert call.grid == (2, 1, 1)


@pytest.mark.parametrize("slots", [1, 2])
def test_a_rings_slots_alternate_and_its_parity_with_each_round(slots: int):
    k = KernelBuilder("ring", 8)
    out = k.param("got", "i32", 16, "w")
    for n, value in enumerate(slot_of(k.lane(), slots)):
        k.store(out, k.lane() * 2 + n, value)
    got = np.zeros(16, np.int32)
    simulate(k.kernel(), {"got": got}, 1)
    assert got.reshape(8, 2).tolist() == [[n % slots, n // slots % 2] for n in range(8)]
