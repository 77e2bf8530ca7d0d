"""Copies that run ahead: across units, past the end of a row, through a map of slots."""

import numpy as np
import pytest

from poot.codegen.gen.lower import lower
from poot.codegen.kir.nodes import Ins
from poot.codegen.kir.sim.run import walk
from tests.support.attention_forms import form_text
from tests.support.grouped import card, decode, request_for, run

NAN = float("nan")


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize("batch", [1, 3])
def test_what_lies_past_a_rows_end_does_not_matter(dtype: str, batch: int):
    form = decode(batch, 4, 2, 100, 64, dtype, live=True)
    _, feed = form_text(form)
    feed["len"] = np.array([1, 33, 100][:batch], np.int32)
    for name in ("k", "v"):
        for b in range(batch):
            feed[name][b, :, feed["len"][b] :] = NAN
    for got, want in zip(*run(form, 3, feed), strict=True):
        assert not np.isnan(got.astype(np.float32)).any()
        np.testing.assert_allclose(got.astype(float), want.astype(float), atol=3e-2)


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_slots_that_no_row_names_are_never_part_of_a_result(dtype: str):
    form = decode(3, 4, 2, 70, 64, dtype, live=True, paged=True)
    _, feed = form_text(form)
    feed["len"] = np.array([5, 70, 17], np.int32)
    slots = np.random.default_rng(1).permutation(np.arange(1, 211)).reshape(3, 70)
    for b in range(3):
        slots[b, feed["len"][b] :] = 0
    feed["read"] = slots.astype(np.int32)
    used = {int(s) for b in range(3) for s in slots[b, : feed["len"][b]]}
    for name in ("k", "v"):
        feed[name][[s for s in range(len(feed[name])) if s not in used]] = NAN
    for got, want in zip(*run(form, 3, feed), strict=True):
        np.testing.assert_allclose(got.astype(float), want.astype(float), atol=3e-2)


def test_a_nan_in_a_seen_row_reaches_its_own_result_alone():
    form = decode(2, 4, 2, 40, 64, live=True)
    _, feed = form_text(form)
    feed["len"] = np.array([40, 40], np.int32)
    feed["v"][1, 0, 3, 5] = NAN
    (got,), (want,) = run(form, 3, feed)
    np.testing.assert_array_equal(np.isnan(got.astype(float)), np.isnan(want.astype(float)))


def test_tiles_of_matrix_kernels_are_stored_turned_and_read_by_matrix_loads():
    (call,) = lower(request_for(decode(2, 8, 2, 64, 128, live=True), 3), card(3)).calls
    ops = [s for s in walk(call.kernel.body) if isinstance(s, Ins)]
    loads = [s for s in ops if s.op == "frag_load"]
    assert {s.attr("swizzle") for s in loads} == {"row"}
    assert all(s.attr("nbytes") == 16 for s in ops if s.op == "cp_async")


def test_a_step_of_the_loop_closes_one_group_of_copies():
    (call,) = lower(request_for(decode(2, 8, 2, 64, 128), 3), card(3)).calls
    ops = [s.op for s in walk(call.kernel.body) if isinstance(s, Ins)]
    assert ops.count("async_commit") == 3  # one before all, one to fill, one in the loop
    assert call.kernel.shared[0].align == 1024


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_whole_pages_are_copied_as_rows_and_mixed_with_single_slots(dtype: str):
    form = decode(3, 4, 2, 100, 64, dtype, live=True, paged=True)
    _, feed = form_text(form)
    feed["len"] = np.array([100, 33, 7], np.int32)
    rng = np.random.default_rng(0)
    for b in range(3):
        pages = rng.permutation(np.arange(1, len(feed["k"]) // 16))[:7]
        feed["read"][b] = (pages[:, None] * 16 + np.arange(16)).reshape(-1)[:100]
    feed["read"][0, 40:44] = feed["read"][0, 43:39:-1]
    for got, want in zip(*run(form, 3, feed), strict=True):
        np.testing.assert_allclose(got.astype(float), want.astype(float), atol=3e-2)
