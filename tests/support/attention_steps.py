"""One attention form as a step: its request for a profile, simulated and compared with the
oracle."""

from __future__ import annotations

import numpy as np

from poot.ir.text import parse
from poot.limits import DeviceLimits
from poot.planner.request import Request
from tests.support.attention_forms import Form, form_text
from tests.support.launch import LAVAPIPE, check_step


def check_form(form: Form, limits: DeviceLimits = LAVAPIPE, seed: int = 0) -> Request:
    """Simulates the form's kernels, and asserts the oracle's result."""
    text, feed = form_text(form, seed)
    within = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}[form.dtype]
    return check_step(
        parse(text), "attention", limits=limits, ins=list(feed.values()), within=within
    )


def check_growing_keys(form: Form, limits: DeviceLimits) -> None:
    """As `check_form`, with keys that grow towards the first, so that a state that goes from the
    last key to the first is rescaled at each step."""
    text, feed = form_text(form)
    ramp = np.linspace(3.0, 0.1, form.keys)[None, None, :, None]
    feed["k"] = (feed["k"].astype(np.float32) * ramp).astype(feed["k"].dtype)
    check_step(text, "attention", limits=limits, ins=list(feed.values()), within=3e-2)


def check_past_lengths(form: Form, lengths: list[int], limits: DeviceLimits) -> None:
    """As `check_form`, of a dense form with these lengths: past them keys and values are NaN."""
    text, feed = form_text(form)
    feed["len"] = np.array(lengths, np.int32)
    for name in ("k", "v"):
        for b, length in enumerate(lengths):
            feed[name][b, :, length:] = float("nan")
    check_step(text, "attention", limits=limits, ins=list(feed.values()), within=3e-2)
