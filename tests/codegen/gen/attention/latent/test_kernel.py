"""Whole latent decodes against the oracle, and what the assembler says of those of the card."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.codegen.gen.lower import lower
from poot.codegen.kir.text import show as show_kernel
from poot.codegen.ptx.emit import emit_ptx
from poot.ir.text import parse
from tests.support.latent import H200, Form, check, latent_text, request_for
from tests.support.launch import check_step, run_request
from tests.support.ptxas import assemble

FORMS = (
    Form(),
    Form("gathered", lengths=(70,), poison=True),
    Form("split", dtype="f16"),
    Form("paged", lengths=(100,), poison=True),
    Form(batch=2, keys=64, lengths=(3, 64), poison=True),
    Form(keys=10, lengths=(0,)),
    Form(mask="hk", sink=True, lse=True),
    Form(attrs="softcap=3.0"),
    Form(attrs="causal=99 window=80"),
    Form(is_made=True),
    Form(heads=66, keys=70),
    Form(keys=65, width=576, value_width=512),
)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_latent_decode_is_the_oracles(form):
    assert check(form, replace(H200, compute_units=2)).schedule.name == "latent"


WIDE = Form(batch=32, heads=128, keys=4096, width=576, value_width=512, lengths=(4096,) * 32)


@pytest.mark.parametrize("form", [
    WIDE,
    replace(WIDE, kind="paged"),
    replace(WIDE, kind="gathered", batch=2, lengths=(4096, 1), mask="k", sink=True, lse=True,
            is_made=True, attrs="softcap=3.0"),
], ids=["dense", "paged", "all at once"])  # fmt: skip
def test_no_latent_kernel_of_the_card_spills(form):
    for call in lower(request_for(form), H200).calls:
        report = assemble(emit_ptx(call.kernel, H200)[1], "sm_90a")
        assert (report.spills, report.stack_nbytes, report.warnings) == (0, 0, ())


def test_no_key_is_seen_from_a_rows_end_on_whatever_lies_there():
    short = Form("paged", batch=2, keys=70, lengths=(0, 65), poison=True)
    check(short)


def test_another_order_of_keys_in_the_pool_gives_the_same_bits():
    form = Form("paged", keys=130)
    _, feed = latent_text(form)
    request = request_for(form)
    moved = list(feed)
    pool = feed[1].shape[0]
    turn = np.random.default_rng(3).permutation(pool)
    for n in (1, 2):
        moved[n] = np.empty_like(feed[n])
        moved[n][turn] = feed[n]
    moved[3] = turn[feed[3]].astype(np.int32)
    (one,), (other,) = (run_request(request, x, H200) for x in (feed, moved))
    np.testing.assert_array_equal(one, other)


def test_a_latent_row_is_copied_once_for_all_query_heads_of_a_set():
    """Counted in the kernel's text: copies of a tile, all to one ring, no other loads of rows."""
    (partials, _) = lower(request_for(WIDE), H200).calls
    copies = show_kernel(partials.kernel).count("cp_async")
    tile, queries = 2 * 9, 2 * 9  # rows of a lane, panels of a row
    assert copies == 2 * tile + queries


def test_keys_begin_where_a_mask_s_limit_says():
    form = Form("joined", batch=2, lengths=(150, 140), mask="b", sink=True)
    text, feed = latent_text(form)
    (line,) = (x for x in text.splitlines() if '"mask"' in x)
    name = line.split()[1].rstrip(":")
    limit = f'slot {name}: i32[2,1,1,1] "mask"'
    count = "v97: i32[1,1,1,150] = iota() axis=3 dtype=i32 shape=(1, 1, 1, 150)"
    text = text.replace(line, limit)
    last = next(x for x in text.splitlines() if "= attention(" in x)
    called = last.replace(f", {name},", ", v98,") + " mask_fill=-inf"
    mask = f"v98: bool[2,1,1,150] = gt(v97, {name})"
    text = text.replace(last, "\n".join([count, mask, called]))
    (at,) = (n for n, x in enumerate(feed) if x.shape == (2, 1, 1, 1))
    feed[at] = np.array([-1, 77], np.int32).reshape(2, 1, 1, 1)
    check_step(parse(text), "attention", limits=H200, ins=feed, within=3e-2)
