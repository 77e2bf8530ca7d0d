"""Attention in subgroup tiles small enough to simulate."""

from __future__ import annotations

from dataclasses import replace

from poot.codegen.gen.attention.subgroup_tiles.shape import Form
from poot.codegen.gen.lower import lower
from poot.codegen.gen.lowered import KernelCall
from poot.ir.text import parse
from poot.limits import DeviceLimits, profile
from poot.planner.request import Request
from tests.support import attention_forms
from tests.support.attention_forms import form_text
from tests.support.attention_steps import check_form
from tests.support.launch import request_of
from tests.support.ptx_agree import AMPERE

# A GPU that Vulkan drives, with cooperative matrices.
COOP = replace(
    profile("lavapipe"), name="coop", subgroup=32, is_software=False, loop_trips=0,
    workgroup_nbytes=49152, matrix_dtypes=("bf16", "f16"),
)  # fmt: skip


def prefill(rows: int, keys: int, width: int = 64, dtype: str = "bf16", **rest: object
            ) -> attention_forms.Form:  # fmt: skip
    """One batch row, two query heads of one key head, values as wide as keys."""
    form = attention_forms.Form(1, 2, 1, rows, keys, width, width, dtype)
    return replace(form, **rest)  # type: ignore[arg-type]


def request_for(form: attention_forms.Form, limits: DeviceLimits = AMPERE) -> Request:
    text, _ = form_text(form)
    return request_of(parse(text), "attention", limits=limits)


def shape_of(form: attention_forms.Form, limits: DeviceLimits = AMPERE) -> Form:
    return Form.of(request_for(form, limits))


def call_of(form: attention_forms.Form, limits: DeviceLimits = AMPERE) -> KernelCall:
    (call,) = lower(request_for(form, limits), limits).calls
    return call


def check(form: attention_forms.Form, limits: DeviceLimits = AMPERE) -> None:
    """The form is in subgroup tiles, and the oracle's."""
    assert check_form(form, limits).schedule.name == "subgroup_tiles"
