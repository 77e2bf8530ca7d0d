"""States in registers: scores of every form, maxima that move, rows that see nothing."""

import numpy as np
import pytest

from tests.support.attention_forms import form_text
from tests.support.launch import check_step
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
    form = prefill(64, 300, scale=1.0)
    text, feed = form_text(form)
    ramp = np.linspace(3.0, 0.1, 300)[None, None, :, None]
    feed["k"] = (feed["k"].astype(np.float32) * ramp).astype(feed["k"].dtype)
    check_step(text, "attention", limits=AMPERE, ins=list(feed.values()), within=3e-2)


def test_rows_that_see_nothing_are_nan_and_with_a_sink_zero():
    check(prefill(40, 50, causal=-10))
    check(prefill(40, 50, causal=-10, sink=True))
