"""When a decode's heads share rows of keys in registers, and with which numbers."""

from dataclasses import replace

import pytest

from poot.limits import DeviceLimits, profile
from poot.planner.request import Request
from tests.support.launch import request_of
from tests.support.requests import attention_text

MI300X, RDNA3 = profile("mi300x"), profile("rdna3")


def choice(limits: DeviceLimits = MI300X, dtype: str = "f32", **given: object) -> Request:
    rest = {"heads": (8, 2), "rows": 1, "keys": 4096, "widths": (128, 128), **given}
    return request_of(attention_text(dtype, **rest), "attention", limits=limits)  # type: ignore[arg-type]


def numbers(request: Request) -> dict[str, int]:
    assert request.schedule.name == "grouped_split"
    return dict(request.schedule.params)


@pytest.mark.parametrize("limits", [MI300X, RDNA3], ids=lambda d: d.name)
def test_a_decode_with_subgroups_is_grouped(limits):
    found = numbers(choice(limits))
    assert found["subgroup"] == limits.subgroup
    assert found["across"] == 32
    assert found["splits"] == 64


def test_a_row_of_16_bits_takes_half_the_lanes():
    assert numbers(choice(dtype="bf16"))["across"] == 16


def test_heads_that_no_lanes_registers_hold_are_served_in_sets():
    found = numbers(choice(heads=(64, 2)))
    assert found["cuts"] == 4
    assert numbers(choice(heads=(22, 2)))["cuts"] == 11


def test_its_partial_states_are_those_of_split_kv():
    request = choice()
    splits = request.schedule.get("splits")
    assert request.scratch[-1].elems == 2 * 8 * splits * (128 + 2)


@pytest.mark.parametrize(
    "given",
    [
        {"rows": 2},
        {"widths": (64, 128)},
        {"widths": (33, 33)},
        {"extra": (("k_shared", "f32[2,1,4096,8]"),)},
        {"limits": profile("webgpu-baseline")},
        {"limits": profile("lavapipe")},
        {"limits": replace(MI300X, workgroup_nbytes=4096)},
    ],
    ids=lambda g: str(sorted(g)),
)
def test_what_it_has_no_code_for_keeps_the_seeds_schedules(given):
    names = ("shared_key",) if "extra" in given else ("split_kv", "streaming")
    assert choice(**given).schedule.name in names
