"""When attention is tiled, with which numbers, and why not."""

from dataclasses import replace

import pytest

from poot.ir.text import parse
from poot.limits import DeviceLimits, profile
from poot.planner.request import Request
from poot.planner.steps import canonical_body
from poot.planner.tiled import why_not
from tests.support.launch import request_of
from tests.support.requests import attention_text

H200 = profile("h200")


def choice(limits: DeviceLimits = H200, dtype: str = "bf16", **given: object) -> Request:
    rest = {"heads": (8, 2), "rows": 100, "keys": 300, "widths": (128, 128), **given}
    return request_of(attention_text(dtype, **rest), "attention", limits=limits)  # type: ignore[arg-type]


@pytest.mark.parametrize("width, consumers", [(64, 2), (128, 2), (256, 2)])
def test_a_prefill_on_the_card_is_tiled(width, consumers):
    schedule = choice(widths=(width, width)).schedule
    assert (schedule.name, schedule.get("consumers")) == ("tiled", consumers)


def test_a_device_without_tensor_maps_says_so_and_takes_subgroup_tiles():
    limits = replace(H200, has_tensor_maps=False)
    assert choice(limits).schedule.name == "subgroup_tiles"
    body = canonical_body(parse(attention_text("bf16", heads=(8, 2), rows=100)), ())
    (eqn,) = (e for e in body.eqns if e.op == "attention")
    assert "h200 as it is driven has no tensor maps" in why_not(body, eqn, limits)


def test_few_query_rows_take_few_consumers():
    assert choice(rows=3).schedule.get("consumers") == 1
    assert choice(rows=1000, widths=(64, 64)).schedule.get("consumers") == 3


def test_sections_divide_the_heads_and_fit_the_cache():
    schedule = choice(rows=100, keys=8192, heads=(32, 32)).schedule
    assert 64 % schedule.get("section") == 0
    assert schedule.get("section") * 2 * 8192 * 128 * 2 <= 17_000_000


@pytest.mark.parametrize(
    "given, other",
    [
        ({"dtype": "f32"}, "streaming"),
        ({"widths": (96, 96)}, "subgroup_tiles"),
        ({"widths": (128, 96)}, "subgroup_tiles"),
        ({"extra": (("k_shared", "bf16[2,1,300,8]"),)}, "subgroup_tiles"),
        ({"widths": (72, 72)}, "streaming"),
    ],
    ids=str,
)
def test_what_it_has_no_code_for_keeps_the_portable_schedules(given, other):
    assert choice(**given).schedule.name == other


def test_widths_may_differ_and_keys_be_split_in_panels():
    assert choice(widths=(192, 128)).schedule.name == "tiled"
    split = {"extra": (("k_shared", "bf16[2,1,300,64]"),)}
    assert choice(widths=(192, 128), **split).schedule.name == "tiled"
    pool = {"extra": (("read", "i32[2,300]"),)}
    assert "takes keys of a pool whole" in _why(widths=(192, 128), **pool)


def _why(**given: object) -> str:
    rest = {"heads": (8, 2), "rows": 100, "keys": 300, "widths": (128, 128), **given}
    body = canonical_body(parse(attention_text("bf16", **rest)), ())  # type: ignore[arg-type]
    (eqn,) = (e for e in body.eqns if e.op == "attention")
    return why_not(body, eqn, H200)


def test_computed_queries_are_declined_with_the_reason():
    body = choice().body
    (eqn,) = body.eqns
    without = type(body)(body.inputs[1:], body.eqns, body.outputs)
    assert why_not(without, eqn, H200) == "queries, keys or values are computed, not read"
