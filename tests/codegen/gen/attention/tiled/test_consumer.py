"""The loop of a consumer: scores of every form, values past the length, maxima that move."""

import pytest

from poot.codegen.kir.nodes import Ins
from poot.codegen.kir.sim.run import walk
from tests.support.attention_forms import form_text
from tests.support.attention_steps import check_form, check_growing_keys, check_past_lengths
from tests.support.launch import check_step
from tests.support.tiled import H200, call_of, prefill


@pytest.mark.parametrize(
    "rest",
    [
        {"softcap": 3.0},
        {"mask": "k"},
        {"mask": "hk", "causal": 5},
        {"mask": "qk", "fill": -1e9},
        {"mask": "bhqk", "fill": float("-inf")},
        {"live": True},
        {"live": True, "causal": 40, "softcap": 4.0, "mask": "h"},
    ],
    ids=str,
)
def test_every_form_of_score_is_the_oracles(rest):
    check_form(prefill(20, 150, **rest), H200)


def test_values_past_the_length_do_not_matter():
    check_past_lengths(prefill(70, 300, batch=2, live=True), [129, 7], H200)


def test_scores_that_grow_towards_the_first_key_rescale_the_state():
    check_growing_keys(prefill(64, 600, scale=1.0), H200)


def test_rows_that_see_nothing_are_nan():
    form = prefill(70, 100, causal=-10)
    text, feed = form_text(form)
    check_step(text, "attention", limits=H200, ins=list(feed.values()), within=3e-2)


def test_two_products_are_in_flight_at_once():
    ops = [s for s in walk(call_of(prefill(200, 512, 128)).kernel.body) if isinstance(s, Ins)]
    waits = [s.attr("pending") for s in ops if s.op == "wait"]
    assert waits == [0, 1, 0, 0]
