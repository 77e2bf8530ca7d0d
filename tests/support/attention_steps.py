"""One attention form as a step: its request for a profile, simulated and compared with the
oracle."""

from __future__ import annotations

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
