"""Results: sinks, the log-sum-exp, and what a step does with its attention's output."""

import numpy as np
import pytest

from tests.support.attention_forms import form_text
from tests.support.attention_steps import check_form
from tests.support.grouped import card, decode
from tests.support.launch import check_step


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_a_sink_takes_weight_and_the_log_sum_exp_leaves_it_out(dtype: str):
    check_form(decode(2, 8, 2, 150, 64, dtype, sink=True, live=True, lse=True), card(3))


def test_a_row_that_sees_nothing_but_a_sink_is_zero():
    form = decode(2, 4, 2, 40, 64, "f32", sink=True, mask="bk", fill=float("-inf"))
    text, feed = form_text(form)
    feed["mask"][0] = False
    check_step(text, "attention", limits=card(2), ins=list(feed.values()), within=2e-5)


def test_an_epilogue_is_applied_at_the_store():
    form = decode(2, 4, 2, 40, 64, "f32", live=True)
    text, feed = form_text(form)
    lines = text.splitlines()
    lines[-1:] = [
        "v5: f32[2,4,1,64] = neg(v4)",
        "v6: f32[2,1,4,64] = transpose(v5) perm=(0, 2, 1, 3)",
        "v7: f32[2,256] = reshape(v6) shape=(2, 256)",
        "out v7",
    ]
    request = check_step(
        "\n".join(lines), "attention", limits=card(2), ins=list(feed.values()), within=2e-5
    )
    assert request.schedule.name == "grouped"


def test_a_prologue_of_the_queries_is_asked_for_one_element_at_a_time():
    form = decode(2, 4, 2, 40, 64, "bf16", live=True)
    text, feed = form_text(form)
    lines = text.replace("attention(v0", "attention(v9").splitlines()
    lines.insert(4, "v9: bf16[2,4,1,64] = neg(v0)")
    request = check_step(
        "\n".join(lines), "attention", limits=card(2), ins=list(feed.values()), within=3e-2
    )
    assert request.schedule.name == "grouped"
    assert np.isfinite(feed["q"].astype(float)).all()
