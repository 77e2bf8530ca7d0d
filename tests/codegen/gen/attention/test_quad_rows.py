"""Results: sinks, the log-sum-exp, an epilogue, rows past the last."""

from tests.support.attention_forms import form_text
from tests.support.attention_steps import check_form
from tests.support.launch import check_step
from tests.support.tiled import H200, prefill


def test_a_sink_takes_weight_and_the_log_sum_exp_leaves_it_out():
    check_form(prefill(20, 100, sink=True, lse=True), H200)
    check_form(prefill(20, 100, sink=True, lse=True, mask="k", fill=float("-inf")), H200)


def test_a_row_that_sees_nothing_but_a_sink_is_zero():
    check_form(prefill(30, 100, causal=-10, sink=True), H200)


def test_an_epilogue_is_applied_at_the_store():
    text, feed = form_text(prefill(10, 40))
    lines = text.splitlines()
    lines[-1:] = [
        "v4: bf16[1,2,10,64] = neg(v3)",
        "v5: bf16[1,10,2,64] = transpose(v4) perm=(0, 2, 1, 3)",
        "v6: bf16[10,128] = reshape(v5) shape=(10, 128)",
        "out v6",
    ]
    request = check_step(
        "\n".join(lines), "attention", limits=H200, ins=list(feed.values()), within=3e-2
    )
    assert request.schedule.name == "tiled"
