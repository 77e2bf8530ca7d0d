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
from poot.planner.grouped import ROWS_FIRST, choose_grouped
from poot.planner.request import Choice, Request
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


def request_for(form: attention_forms.Form, compute_units: int, order: int = ROWS_FIRST) -> Request:
    """The form's request; in an order of units that isn't the planner's, too."""
    text, _ = form_text(form)
    request = request_of(parse(text), "attention", limits=card(compute_units))
    if order == ROWS_FIRST:
        return request
    found = choose_grouped(request.body, card(compute_units), order=order)
    assert isinstance(found, Choice)
    return replace(request, schedule=found.schedule, scratch=found.scratch)


def open_team(
    form: attention_forms.Form, compute_units: int, order: int = ROWS_FIRST
) -> tuple[Job, Team]:
    """An empty kernel for the form's request, its inputs bound."""
    limits = card(compute_units)
    request = request_for(form, compute_units, order)
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
