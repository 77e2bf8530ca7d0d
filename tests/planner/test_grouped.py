"""When a decode is grouped, with which numbers, and why not."""

from dataclasses import replace

import pytest

from poot.ir.text import parse
from poot.limits import DeviceLimits, profile
from poot.planner.grouped import HEADS_FIRST, ROWS_FIRST, choose_grouped, geometry
from poot.planner.request import Choice, Request
from poot.planner.steps import canonical_body
from tests.support.launch import request_of
from tests.support.requests import attention_text

H200 = profile("h200")
DECODE = {"heads": (8, 2), "rows": 1, "keys": 300, "widths": (64, 64)}


def choice(limits: DeviceLimits = H200, dtype: str = "bf16", **given: object) -> Request:
    rest = {**DECODE, **given}
    return request_of(attention_text(dtype, **rest), "attention", limits=limits)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "units, slots, want",
    [
        (8, 132, (128, 16)),
        (64, 132, (128, 2)),
        (256, 264, (256, 1)),
        (256, 132, (128, 0)),
        (512, 264, (256, 0)),
        (100, 132, (132, 0)),
        (131, 132, (131, 1)),
        (139, 132, (132, 0)),
    ],
)
def test_groups_divide_the_units_or_are_a_multiple_of_them(units, slots, want):
    assert geometry(units, slots) == want


def test_a_decode_on_the_card_is_grouped_in_both_kinds_of_tile():
    assert choice().schedule.get("matrix") == 1
    assert choice(dtype="f32").schedule.get("matrix") == 0


def test_its_words_between_groups_are_at_rest_between_launches():
    (words,) = choice().scratch
    assert (words.dtype, words.at_rest) == ("u32", True)


@pytest.mark.parametrize(
    "given, name",
    [
        ({"rows": 2, "dtype": "f32"}, "streaming"),
        ({"widths": (48, 48)}, "grouped_split"),
        ({"widths": (64, 128)}, "split_kv"),
        ({"heads": (22, 2)}, "grouped_split"),
        ({"extra": (("k_shared", "bf16[2,1,300,8]"),)}, "shared_key"),
    ],
    ids=str,
)
def test_what_it_has_no_code_for_keeps_the_portable_schedules(given, name):
    assert choice(**given).schedule.name == name


def test_a_window_that_begins_late_is_taken():
    assert choice(causal=200, window=5).schedule.name == "grouped"


def test_an_order_by_heads_is_part_of_the_schedule_where_it_is_asked_for():
    body = choice().body
    found = [choose_grouped(body, H200, order=n) for n in (ROWS_FIRST, HEADS_FIRST)]
    assert all(isinstance(c, Choice) for c in found)
    assert ["order" in dict(c.schedule.params) for c in found if isinstance(c, Choice)] == [
        False, True,
    ]  # fmt: skip


def test_other_targets_keep_the_portable_schedules():
    for name in ("lavapipe", "mi300x", "cpu-avx2"):
        assert choice(profile(name)).schedule.name != "grouped"


def test_a_device_that_counts_no_resident_groups_says_so_and_takes_another():
    limits = replace(profile("h200"), counts_residents=False)
    assert choice(limits).schedule.name == "grouped_split"
    body = canonical_body(parse(attention_text("bf16", **DECODE)), ())  # type: ignore[arg-type]
    assert "h200 as it is driven can't count resident groups" in choose_grouped(body, limits)
