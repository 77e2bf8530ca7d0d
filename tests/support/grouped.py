"""Grouped decodes small enough to simulate: forms, a card of few compute units, parts of
kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from poot.codegen.gen.attention.grouped.shape import WARP, Form
from poot.codegen.gen.attention.grouped.team import Team
from poot.codegen.gen.job import Job, open_job
from poot.ir.text import parse
from poot.limits import DeviceLimits, profile
from poot.planner.request import Request
from tests.support import attention_forms
from tests.support.attention_forms import form_text
from tests.support.launch import outputs_of, request_of, run_request, wanted


def card(compute_units: int) -> DeviceLimits:
    """An H200 of so few multiprocessors that its groups can be simulated."""
    return replace(profile("h200"), compute_units=compute_units)


def decode(batch: int, heads: int, kv_heads: int, keys: int, width: int, dtype: str = "bf16",
           **rest: object) -> attention_forms.Form:  # fmt: skip
    """One query row a head, keys as wide as values."""
    form = attention_forms.Form(batch, heads, kv_heads, 1, keys, width, width, dtype)
    return replace(form, **rest)  # type: ignore[arg-type]


def request_for(form: attention_forms.Form, compute_units: int) -> Request:
    text, _ = form_text(form)
    return request_of(parse(text), "attention", limits=card(compute_units))


def open_team(form: attention_forms.Form, compute_units: int) -> tuple[Job, Team]:
    """An empty kernel for the form's request, its inputs bound."""
    limits = card(compute_units)
    request = request_for(form, compute_units)
    shape = Form.of(request)
    job = open_job(request, limits, "part", shape.warps * WARP)
    job.bind_inputs()
    return job, Team.of(job, shape)


def run(
    form: attention_forms.Form, compute_units: int, feed: dict[str, np.ndarray]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """(outputs by the simulator, by the oracle); the words between groups rest after."""
    text, _ = form_text(form)
    limits = card(compute_units)
    request = request_of(parse(text), "attention", limits=limits)
    assert request.schedule.name == "grouped"
    ins = list(feed.values())
    return run_request(request, ins, limits), wanted(request, ins)


__all__ = ["card", "decode", "open_team", "outputs_of", "request_for", "run"]
