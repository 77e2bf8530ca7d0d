"""Whole grouped decodes against the oracle, and what the assembler says of the ones that matter."""

from __future__ import annotations

import pytest

from poot.codegen.gen.lower import lower
from poot.codegen.ptx.emit import emit_ptx
from poot.limits import profile
from poot.planner.grouped import HEADS_FIRST
from tests.support.attention_forms import form_text
from tests.support.attention_steps import check_form
from tests.support.grouped import card, decode, request_for
from tests.support.launch import assert_close, request_of, run_request, wanted
from tests.support.ptxas import assemble

FORMS = (
    (decode(1, 4, 1, 40, 128), 1),
    (decode(1, 4, 1, 300, 128, live=True), 2),
    (decode(1, 16, 2, 900, 128, live=True, paged=True), 13),
    (decode(3, 8, 2, 100, 128, live=True), 4),
    (decode(7, 8, 4, 200, 128, "f16", live=True, paged=True), 5),
    (decode(7, 8, 2, 200, 64, live=True), 3),
    (decode(33, 4, 2, 20, 64, live=True), 5),
    (decode(2, 8, 8, 300, 128), 9),
    (decode(3, 4, 2, 100, 256, live=True, paged=True), 4),
    (decode(1, 4, 1, 300, 128, "f32", live=True), 2),
    (decode(3, 4, 4, 100, 128, "f32", live=True), 5),
    (decode(3, 8, 1, 100, 128, "f32", live=True, paged=True), 5),
    (decode(3, 6, 2, 100, 64, "f32"), 5),
)


@pytest.mark.parametrize("form, compute_units", FORMS, ids=lambda x: str(x).replace(" ", ","))
def test_every_grouped_decode_is_the_oracles(form, compute_units):
    assert check_form(form, card(compute_units)).schedule.name == "grouped"


@pytest.mark.parametrize("seed", range(4))
def test_lengths_of_any_mix_are_shared_out(seed: int):
    check_form(decode(5, 4, 2, 130, 64, live=True), card(3 + seed), seed)


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_the_length_of_one_row_may_come_late(dtype: str):
    for seed in range(3):
        check_form(decode(1, 8, 2, 600, 64, dtype, live=True), card(4), seed)


def test_a_key_head_of_many_query_heads_is_served_in_sets():
    request = check_form(decode(2, 24, 2, 150, 64, live=True), card(3))
    assert request.schedule.get("cuts") == 2
    check_form(decode(2, 9, 1, 70, 64, "f32", live=True, paged=True), card(3))


def test_causal_bounds_the_one_query_row():
    check_form(decode(2, 8, 2, 150, 64, causal=60), card(3))
    check_form(decode(2, 8, 2, 150, 64, "f32", causal=60, live=True, window=80), card(3))


BEGINS = (
    (decode(3, 4, 2, 150, 64, begin=True), 4),
    (decode(1, 4, 1, 300, 128, live=True, begin=True, sink=True), 2),
    (decode(5, 8, 2, 130, 64, "f32", live=True, paged=True, begin=True, lse=True, sink=True), 3),
    (decode(5, 4, 2, 90, 64, "f32", codes="i8", live=True, paged=True, begin=True), 4),
    (decode(2, 4, 2, 90, 64, "f32", codes="f8e4m3", begin=True), 4),
    (decode(2, 8, 2, 150, 64, causal=140, window=37, live=True), 3),
    (decode(1, 8, 2, 150, 64, causal=140, window=37, live=True, paged=True), 3),
    (decode(2, 8, 2, 150, 64, "f32", causal=149, window=64), 3),
    (decode(2, 8, 2, 150, 64, causal=149, window=60, begin=True, mask="", softcap=2.0), 3),
)


@pytest.mark.parametrize("form, compute_units", BEGINS, ids=lambda x: str(x).replace(" ", ","))
def test_keys_begin_where_a_window_does(form, compute_units):
    for seed in range(2):
        request = check_form(form, card(compute_units), seed)
    assert request.schedule.name == "grouped"


@pytest.mark.parametrize("codes", ["", "i8"])
def test_units_by_heads_are_the_oracles(codes: str):
    form = decode(9, 4, 2, 90, 64, "f32", codes=codes, live=True, paged=True)
    request = request_for(form, 5, HEADS_FIRST)
    ins = list(form_text(form)[1].values())
    (got,), (want,) = run_request(request, ins, card(5)), wanted(request, ins)
    assert_close(got, want, 2e-5)


def test_no_more_groups_are_launched_than_are_resident():
    form = decode(40, 8, 8, 90, 64, live=True)
    request = request_for(form, 13)
    (call,) = lower(request, card(13)).calls
    assert call.grid[0] <= 13 * request.schedule.get("residents")
    assert call.attributes.is_resident


def test_few_units_let_the_next_launch_begin():
    (few,) = lower(request_for(decode(1, 4, 1, 300, 128), 2), card(2)).calls
    (many,) = lower(request_for(decode(9, 4, 4, 100, 128), 2), card(2)).calls
    assert (few.attributes.overlap, many.attributes.overlap) == (True, False)


CARD_ROWS = (
    ("b1", decode(1, 32, 8, 4096, 128, live=True), 128),
    ("b1-paged", decode(1, 32, 8, 32768, 128, live=True, paged=True), 128),
    ("b32", decode(32, 32, 8, 4096, 128, live=True), 168),
    ("b32-paged", decode(32, 32, 8, 4096, 128, live=True, paged=True), 176),
    ("g8", decode(32, 64, 8, 8192, 128, live=True), 168),
    ("d64", decode(32, 32, 8, 4096, 64, live=True), 128),
    ("d256", decode(32, 16, 8, 4096, 256, live=True), 236),
    ("f32", decode(32, 32, 8, 4096, 128, "f32", live=True), 168),
)


def _text(form) -> str:
    """The form's graph, with no arrays made for it."""
    f = form
    lead = f"{f.keys},{f.kv_heads}" if f.paged else f"{f.batch},{f.kv_heads},{f.keys}"
    rows = [("q", f"{f.dtype}[{f.batch},{f.heads},1,{f.width}]")]
    rows += [(name, f"{f.dtype}[{lead},{f.width}]") for name in ("k", "v")]
    rows += [("read", f"i32[{f.batch},{f.keys}]")] if f.paged else []
    rows += [("len", f"i32[{f.batch}]")]
    lines = [f"in v{n}: {type}" for n, (_, type) in enumerate(rows)]
    names, ins = ", ".join(n for n, _ in rows), ", ".join(f"v{n}" for n in range(len(rows)))
    at = len(rows)
    lines.append(f"v{at}: {rows[0][1]} = attention({ins}) operands=({names}) scale=0.1")
    return "\n".join([*lines, f"out v{at}"])


@pytest.mark.parametrize("name, form, registers", CARD_ROWS, ids=[r[0] for r in CARD_ROWS])
def test_no_kernel_of_the_card_spills(name: str, form, registers: int):
    limits = profile("h200")
    request = request_of(_text(form), "attention", limits=limits)
    (call,) = lower(request, limits).calls
    _, text = emit_ptx(call.kernel, limits)
    report = assemble(text, "sm_90a")
    assert (report.spills, report.stack_nbytes) == (0, 0)
    assert report.registers <= registers
    if form.dtype == "bf16":
        assert text.count("ldmatrix") >= form.width // 8
