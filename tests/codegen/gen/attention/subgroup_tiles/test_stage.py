"""Copies of queries, keys and values: paged, split, past the end, computed."""

import numpy as np
import pytest

from tests.support.attention_forms import form_text
from tests.support.attention_steps import check_past_lengths
from tests.support.launch import check_step
from tests.support.ptx_agree import AMPERE
from tests.support.subgroup_tiles import check, prefill


@pytest.mark.parametrize(
    "rest",
    [
        {"paged": True, "causal": 100},
        {"paged": True, "live": True, "lse": True},
        {"width": 192, "value_width": 128, "shared": 64, "live": True},
        {"width": 96, "shared": 32, "causal": 60},
        {"width": 80, "value_width": 48},
    ],
    ids=str,
)
def test_every_place_of_keys_is_the_oracles(rest):
    check(prefill(20, 150, **rest))


def test_what_lies_past_the_length_does_not_matter():
    check_past_lengths(prefill(40, 150, batch=2, live=True), [97, 7], AMPERE)


def test_what_lies_past_the_length_of_a_page_does_not_matter():
    text, feed = form_text(prefill(40, 150, batch=2, live=True, paged=True))
    feed["len"] = np.array([97, 7], np.int32)
    feed["read"] = np.arange(300, dtype=np.int32).reshape(2, 150)
    for name in ("k", "v"):
        for b in range(2):
            feed[name][150 * b + feed["len"][b] : 150 * (b + 1)] = float("nan")
    check_step(text, "attention", limits=AMPERE, ins=list(feed.values()), within=3e-2)


def test_queries_may_be_computed():
    text, feed = form_text(prefill(20, 100))
    lines = text.splitlines()
    lines[-2:] = [
        "v3: bf16[1,2,20,64] = neg(v0)",
        "v4: bf16[1,2,20,64] = attention(v3, v1, v2) operands=(q, k, v) scale=0.25",
        "out v4",
    ]
    request = check_step(
        "\n".join(lines), "attention", limits=AMPERE, ins=list(feed.values()), within=3e-2
    )
    assert request.schedule.name == "subgroup_tiles"
