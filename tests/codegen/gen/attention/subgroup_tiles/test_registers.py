"""States in registers: scores of every form, maxima that move, rows that see nothing."""

import pytest

from tests.support.attention_steps import check_growing_keys
from tests.support.ptx_agree import AMPERE
from tests.support.subgroup_tiles import check, prefill


@pytest.mark.parametrize(
    "rest",
    [
        {"softcap": 3.0},
        {"mask": "k"},
        {"mask": "hk", "causal": 5},
        {"mask": "qk", "fill": -1e9},
        {"mask": "bhqk", "fill": float("-inf")},
        {"live": True, "causal": 40, "softcap": 4.0, "mask": "h", "sink": True, "lse": True},
        {"scale": 1e-30},
    ],
    ids=str,
)
def test_every_form_of_score_is_the_oracles(rest):
    check(prefill(20, 100, **rest))


def test_scores_that_grow_towards_the_first_key_rescale_the_state():
    check_growing_keys(prefill(64, 300, scale=1.0), AMPERE)


def test_rows_that_see_nothing_are_nan_and_with_a_sink_zero():
    check(prefill(40, 50, causal=-10))
    check(prefill(40, 50, causal=-10, sink=True))
