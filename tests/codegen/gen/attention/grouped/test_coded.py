"""Grouped decodes over caches of 8-bit codes with a scale a row."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.gen.lower import lower
from poot.codegen.ptx.emit import emit_ptx
from poot.limits import profile
from tests.support.attention_forms import Form, form_only, form_text
from tests.support.attention_steps import check_form
from tests.support.grouped import card, decode, run
from tests.support.launch import request_of, run_request, wanted
from tests.support.ptxas import assemble

_INF = float("inf")
FORMS = (
    (decode(1, 4, 1, 48, 128, "f32", codes="i8", query="bf16"), 1),
    (decode(1, 4, 1, 300, 128, "f32", codes="i8", live=True), 2),
    (decode(3, 6, 2, 100, 128, "f32", codes="f8e4m3", query="f16", live=True, paged=True), 5),
    (decode(3, 8, 1, 70, 64, "f32", codes="f8e4m3", query="bf16", live=True), 3),
    (decode(5, 4, 2, 60, 64, "bf16", codes="i8", live=True, paged=True, lse=True), 4),
    (decode(2, 2, 2, 60, 256, "f32", codes="i8", live=True, paged=True), 3),
    (decode(2, 4, 2, 50, 256, "bf16", codes="f8e4m3"), 3),
    (decode(1, 18, 1, 40, 64, "f16", codes="i8", live=True), 3),
)
REST = (
    {"softcap": 3.0},
    {"mask": "bhqk", "fill": -_INF, "live": True},
    {"mask": "h", "sink": True, "lse": True},
    {"mask": "bk", "fill": -1e9},
    {"causal": 40, "live": True, "sink": True},
)


@pytest.mark.parametrize("form, compute_units", FORMS, ids=lambda x: str(x).replace(" ", ","))
def test_a_decode_over_codes_is_the_oracles(form: Form, compute_units: int):
    assert check_form(form, card(compute_units)).schedule.name == "grouped"


@pytest.mark.parametrize("rest", REST, ids=str)
@pytest.mark.parametrize("codes", ["i8", "f8e4m3"])
def test_every_form_of_the_op_has_codes(codes: str, rest: dict[str, object]):
    check_form(decode(2, 4, 2, 60, 64, "f32", codes=codes, query="bf16", **rest), card(3))


def _fed(form: Form) -> dict[str, np.ndarray]:
    return form_text(form)[1]


def _agree(form: Form, feed: dict[str, np.ndarray], compute_units: int = 2, within: float = 2e-5):
    for got, want in zip(*run(form, compute_units, feed), strict=True):
        size = np.nanmax(np.abs(want))
        np.testing.assert_allclose(got, want, rtol=within, atol=within * size)


def test_scales_may_be_as_far_apart_as_f32_holds():
    form = decode(1, 4, 2, 90, 64, "f32", codes="i8", query="bf16")
    feed = _fed(form)
    rng = np.random.default_rng(3)
    for size in (30, 1, 0):
        feed["v_scale"] = (2.0 ** rng.uniform(-size, size, (1, 2, 90))).astype(np.float32)
        feed["v_scale"][0, 0, ::7] = 0.0
        feed["v_scale"][0, 1, ::5] *= -1.0
        feed["v_scale"][0, 1, 3] = 1e-38
        _agree(form, feed)


def test_a_weight_that_is_all_is_precise_beside_scales_far_above_its_own():
    form = decode(1, 1, 1, 40, 64, "f32", codes="i8", query="bf16", scale=1.0)
    feed = _fed(form)
    feed["k"][0, 0, 17] = np.where(feed["q"][0, 0, 0].astype(float) > 0, 127, -128)
    feed["k_scale"][0, 0, 17] = 0.5
    feed["v_scale"][:] = 2.0**12
    feed["v_scale"][0, 0, 17] = 2.0**-12
    _agree(form, feed)


def test_every_code_is_exact():
    for codes, kind in (("i8", np.int8), ("f8e4m3", None)):
        form = decode(1, 1, 1, 256, 64, "f32", codes=codes, query="bf16")
        feed = _fed(form)
        every = np.arange(256, dtype=np.uint8).view(kind or feed["v"].dtype)
        every = np.where(np.isnan(every.astype(np.float32)), every[0], every)
        feed["q"][:] = 0
        feed["v_scale"][:] = 1.0
        for _ in range(2):
            feed["v"] = np.ascontiguousarray(
                np.stack([np.roll(every, n) for n in range(64)], -1)[None, None]
            )
            _agree(form, feed)
            every = every[::-1].copy()


def test_queries_that_sixteen_bits_do_not_hold_are_two_parts():
    form = decode(1, 2, 1, 64, 64, "f32", codes="i8", scale=0.3)
    feed = _fed(form)
    feed["q"] = (feed["q"] * 2.0 ** np.arange(-20, 12, 0.5)[None, None, None]).astype(np.float32)
    _agree(form, feed)
    feed["q"] = (feed["q"] * 1e-30).astype(np.float32)
    _agree(form, feed)


@pytest.mark.parametrize("paged", [False, True])
def test_what_no_row_sees_does_not_matter(paged: bool):
    form = decode(3, 2, 1, 40, 64, "f32", codes="f8e4m3", query="bf16", live=True, paged=paged,
                  sink=True)  # fmt: skip
    feed = _fed(form)
    feed["len"] = np.array([40, 17, 0], np.int32)
    seen = np.zeros(feed["k_scale"].shape, bool)
    if paged:
        feed["read"] = np.arange(120, dtype=np.int32).reshape(3, 40)
        for row, n in enumerate(feed["len"]):
            seen[feed["read"][row, :n]] = True
    else:
        for row, n in enumerate(feed["len"]):
            seen[row, :, :n] = True
    for name in "kv":
        feed[name][~seen] = np.nan
        feed[f"{name}_scale"][~seen] = np.nan
    text = form_text(form)[0].replace("range=(1, 41)", "range=(0, 41)")
    request = request_of(text, "attention", limits=card(3))
    (got,) = run_request(request, list(feed.values()), card(3))
    clean = {n: np.nan_to_num(x.astype(np.float32), nan=1.0).astype(x.dtype)
             if n[0] in "kv" else x for n, x in feed.items()}  # fmt: skip
    (want,) = wanted(request, list(clean.values()))
    np.testing.assert_allclose(got, want, atol=2e-5)


CARD_ROWS = (
    (decode(1, 32, 8, 32768, 128, "f32", codes="i8", query="bf16", live=True), 144),
    (decode(32, 32, 8, 4096, 128, "f32", codes="i8", live=True), 176),
    (decode(32, 64, 8, 8192, 128, "f32", codes="f8e4m3", query="bf16", paged=True), 176),
    (decode(32, 32, 8, 4096, 64, "bf16", codes="i8", live=True, paged=True), 128),
    (decode(32, 16, 8, 4096, 256, "f32", codes="f8e4m3", query="bf16", live=True), 236),
)


@pytest.mark.parametrize("form, registers", CARD_ROWS, ids=lambda x: str(x).replace(" ", ","))
def test_no_kernel_of_the_card_spills(form: Form, registers: int):
    limits = profile("h200")
    request = request_of(form_only(form), "attention", limits=limits)
    assert request.schedule.name == "grouped"
    (call,) = lower(request, limits).calls
    report = assemble(emit_ptx(call.kernel, limits)[1], "sm_90a")
    assert (report.spills, report.stack_nbytes) == (0, 0)
    assert report.registers <= registers
