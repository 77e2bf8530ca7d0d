"""One form of selected attention as a step: simulated, and compared with the oracle."""

from __future__ import annotations

from poot.codegen.gen.lower import lower
from poot.codegen.kir.sim.run import Stats, simulate
from poot.codegen.kir.sim.values import NUMPY
from poot.ir.text import parse
from poot.limits import DeviceLimits
from poot.planner.request import Request, Schedule
from tests.support.launch import LAVAPIPE, check_step, device_buffers, request_of
from tests.support.selected_forms import Form, form_text


def check_form(
    form: Form,
    limits: DeviceLimits = LAVAPIPE,
    seed: int = 0,
    schedule: Schedule | None = None,
) -> Request:
    """Simulates the form's kernels, and asserts the oracle's result."""
    text, feed = form_text(form, seed)
    within = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}[form.dtype]
    return check_step(
        parse(text), "attention", limits=limits, ins=list(feed.values()), within=within,
        schedule=schedule,
    )  # fmt: skip


def reads_of(form: Form, limits: DeviceLimits = LAVAPIPE) -> tuple[Request, dict[str, Stats]]:
    """The request of a form, and what each of its kernels loads by parameter."""
    text, feed = form_text(form)
    request = request_of(text, "attention", (), limits)
    buffers = device_buffers(request, list(feed.values()))
    found: dict[str, Stats] = {}
    for call in lower(request, limits).calls:
        arrays = {
            p.name: buffers[arg].view(NUMPY[p.dtype])
            for p, arg in zip(call.kernel.params, call.args, strict=True)
        }
        found[call.kernel.name] = simulate(call.kernel, arrays, call.grid)
    return request, found
