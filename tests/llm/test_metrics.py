"""Metrics as one line of text."""

from __future__ import annotations

from poot.llm.metrics import Metrics


def test_metrics_say_what_they_count():
    made = Metrics(
        steps=9, submitted=3, finished=2, by_reason=(("stop", 2),), new_tokens=20,
        prompt_tokens=100, hit_tokens=48, rows=80, padding=0.125, preemptions=1, evictions=2,
        failures=0, running=1, waiting=0, pool_use=0.5, cached_blocks=4, tokens_per_second=10.0,
        first_token=(0.25, 0.5),
    )  # fmt: skip
    assert str(made) == (
        "2 of 3 requests ended (2 stop); 20 tokens in 9 steps, 10.0 a second; first token 0.250 s "
        "(median), 0.500 s (largest); 48 of 100 prompt tokens from the prefix cache; padding "
        "12.5%; pool 50.0% in use, 4 blocks cached; 1 preemptions, 2 evictions, 0 failed steps"
    )
