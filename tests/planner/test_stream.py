"""The schedule that streams: for whom, and with which numbers."""

from __future__ import annotations

import pytest

from poot.api import compile
from poot.ir.text import parse
from poot.limits import PROFILES, DeviceLimits
from poot.planner.request import Schedule
from poot.planner.stream import choose_stream, share_groups, why_not
from poot.trace import trace
from tests.support.llama_like import llama_like, llama_like_specs
from tests.support.products import BODIES, matmul_text

CARD = PROFILES["h200"]


def refusal(text: str, limits: DeviceLimits = CARD) -> str:
    body = parse(text)
    return why_not(body, [e for e in body.eqns if e.op == "matmul"], limits)


def schedule(text: str) -> Schedule:
    body = parse(text)
    return choose_stream(body, [e for e in body.eqns if e.op == "matmul"], CARD)


def test_products_of_few_rows_stream_on_a_card():
    assert refusal(matmul_text(1, 4096, 4096, True, "bf16")) == ""
    assert refusal(BODIES["q4_1"][0]) == ""
    assert "no schedule" in refusal(matmul_text(1, 64, 64, True), PROFILES["lavapipe"])


@pytest.mark.parametrize(
    "text, why",
    [
        (matmul_text(9, 64, 64, True), "products of shape"),
        (matmul_text(1, 64, 64, False), "columns"),
        (matmul_text(1, 70, 64, True, "bf16"), "no whole number of pieces of 8"),
        (matmul_text(4, 16384, 64, True, "bf16"), "4 rows of 16384 terms fill"),
        (matmul_text(8, 4096, 400_000, True, "bf16"), "and their sums fill"),
    ],
)
def test_what_does_not_stream_says_why(text, why):
    assert why in refusal(text)


def test_a_group_a_unit_each_with_work_for_most_of_its_subgroups():
    wide = schedule(matmul_text(1, 4096, 4096, True, "bf16"))
    assert (wide.get("groups"), wide.get("width")) == (132, 8)
    narrow = schedule(matmul_text(1, 576, 576, True, "bf16"))
    assert narrow.get("warps") <= wide.get("warps")
    assert schedule(matmul_text(1, 64, 3, True, "bf16")).get("groups") == 3


def test_more_rows_leave_registers_for_fewer_loads():
    few, many = (schedule(matmul_text(n, 64, 512, True, "bf16")).get("depth") for n in (4, 5))
    assert few > many


@pytest.mark.parametrize(
    "costs, groups, counts",
    [
        ([(4096, 1), (1024, 1), (1024, 1)], 132, [88, 22, 22]),
        ([(10, 2)], 7, [7]),
        ([(2, 1), (100, 1)], 12, [1, 11]),
    ],
)
def test_groups_are_shared_by_what_segments_cost(costs, groups, counts):
    assert share_groups(costs, groups) == counts


def test_a_decoders_layer_is_five_launches_and_its_kernels_do_not_grow():
    found: list[tuple[int, int]] = []
    for layers in (2, 3, 5):
        program = compile(trace(llama_like, llama_like_specs(layers, 1)), CARD, cache=False)
        steps = program.plan.entries[0].steps
        found.append((sum(len(program.lowered[s.request].calls) for s in steps),
                      len(program.codes)))  # fmt: skip
    assert found[1][0] - found[0][0] == 5
    assert found[2][0] - found[1][0] == 10
    assert found[1][1] == found[2][1]
