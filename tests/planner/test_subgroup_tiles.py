"""When attention is in subgroup tiles, with which numbers, and why not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poot.ir.text import parse
from poot.limits import DeviceLimits, profile
from poot.planner.request import Request
from poot.planner.steps import canonical_body
from poot.planner.subgroup_tiles import choose_subgroup_tiles
from tests.support.launch import request_of
from tests.support.ptx_agree import AMPERE
from tests.support.requests import attention_text

H200 = profile("h200")


def choice(limits: DeviceLimits = AMPERE, dtype: str = "bf16", **given: object) -> Request:
    rest = {"heads": (8, 2), "rows": 100, "keys": 300, "widths": (128, 128), **given}
    return request_of(attention_text(dtype, **rest), "attention", limits=limits)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "widths, deep, tile",
    [((64, 64), 2, 64), ((128, 128), 2, 32), ((256, 256), 1, 32), ((192, 128), 1, 32)],
)
def test_a_prefill_without_warpgroup_products_is_in_subgroup_tiles(widths, deep, tile):
    schedule = choice(widths=widths).schedule
    assert (schedule.name, schedule.get("deep"), schedule.get("tile")) == (
        "subgroup_tiles", deep, tile,
    )  # fmt: skip


def test_on_hopper_it_takes_what_tiled_does_not():
    assert choice(H200).schedule.name == "tiled"
    for widths in ((96, 96), (128, 96)):
        assert choice(H200, widths=widths).schedule.name == "subgroup_tiles"


def test_few_query_rows_take_few_subgroups():
    assert choice(rows=3).schedule.get("warps") == 1
    assert choice(rows=3).schedule.get("deep") == 1
    assert choice(rows=1000).schedule.get("warps") == 4


@pytest.mark.parametrize(
    "given, why",
    [
        ({"dtype": "f32"}, "no products of f32 within"),
        ({"widths": (72, 72)}, "whole 16s"),
        ({"widths": (512, 512)}, "up to 256"),
        ({"widths": (64, 64), "extra": (("k_shared", "bf16[2,1,300,4]"),)}, "whole chunks"),
        ({"limits": replace(AMPERE, has_matrix_units=False)}, "no matrix units"),
        ({"limits": replace(AMPERE, workgroup_nbytes=49152)}, "pass a100's workgroup memory"),
    ],
    ids=str,
)
def test_what_it_has_no_code_for_is_declined_with_the_reason(given, why):
    limits = given.pop("limits", AMPERE)
    rest = {"heads": (8, 2), "rows": 100, "keys": 300, "widths": (128, 128), **given}
    body = canonical_body(parse(attention_text(rest.pop("dtype", "bf16"), **rest)), ())
    found = choose_subgroup_tiles(body, limits)
    assert isinstance(found, str)
    assert why in found
