"""Keys and values by a map of slots, copied row by row to where tensor maps would put them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.codegen.kir.nodes import Ins
from poot.codegen.kir.sim.run import walk
from poot.codegen.ptx.emit import emit_ptx
from tests.support.attention_forms import form_text
from tests.support.attention_steps import check_form
from tests.support.launch import check_step
from tests.support.ptxas import assemble
from tests.support.tiled import H200, call_of, prefill


@pytest.mark.parametrize(
    "form",
    [
        prefill(64, 128, paged=True),
        prefill(70, 140, 128, "f16", paged=True, causal=60),
        prefill(70, 100, 256, paged=True, live=True),
        prefill(20, 200, paged=True, live=True, mask="k", softcap=3.0, lse=True),
    ],
    ids=str,
)
def test_every_paged_prefill_is_the_oracles(form):
    request = check_form(form, replace(H200, compute_units=1))
    assert request.schedule.name == "tiled"


def test_slots_that_no_row_names_are_never_part_of_a_result():
    form = prefill(70, 150, batch=2, paged=True, live=True)
    text, feed = form_text(form)
    feed["len"] = np.array([130, 5], np.int32)
    slots = np.random.default_rng(1).permutation(np.arange(1, 301)).reshape(2, 150)
    used: set[int] = set()
    for b in range(2):
        slots[b, feed["len"][b] :] = 0
        used |= {int(s) for s in slots[b, : feed["len"][b]]}
    feed["read"] = slots.astype(np.int32)
    for name in ("k", "v"):
        feed[name][[s for s in range(len(feed[name])) if s not in used]] = float("nan")
    check_step(text, "attention", limits=H200, ins=list(feed.values()), within=3e-2)


def test_two_subgroups_fill_a_tile_and_queries_come_through_their_map():
    kernel = call_of(prefill(200, 300, 128, paged=True)).kernel
    assert [b.name for b in kernel.blobs] == ["mq"]
    inits = {
        str(s.attr("mem")): s.attr("count")
        for s in walk(kernel.body)
        if isinstance(s, Ins) and s.op == "mbar_init"
    }
    assert (inits["kfull"], inits["vfull"], inits["nempty"]) == (2, 2, 11)


@pytest.mark.parametrize("width", [64, 128, 256])
def test_the_copying_role_keeps_within_its_registers(width: int):
    kernel = call_of(prefill(400, 2000, width, paged=True, live=True, causal=1600)).kernel
    _, ptx = emit_ptx(kernel, H200)
    report = assemble(ptx, "sm_90a")
    assert (report.spills, report.warnings) == (0, ())
