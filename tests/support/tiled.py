"""Tiled attention small enough to simulate."""

from __future__ import annotations

from dataclasses import replace

from poot.codegen.gen.attention.tiled.shape import Form
from poot.codegen.gen.lower import lower
from poot.codegen.gen.lowered import KernelCall
from poot.ir.text import parse
from poot.limits import profile
from poot.planner.request import Request
from tests.support import attention_forms
from tests.support.attention_forms import form_text
from tests.support.launch import request_of

H200 = profile("h200")


def prefill(rows: int, keys: int, width: int = 64, dtype: str = "bf16", **rest: object
            ) -> attention_forms.Form:  # fmt: skip
    """One batch row, two query heads of one key head."""
    form = attention_forms.Form(1, 2, 1, rows, keys, width, width, dtype)
    return replace(form, **rest)  # type: ignore[arg-type]


def request_for(form: attention_forms.Form) -> Request:
    text, _ = form_text(form)
    return request_of(parse(text), "attention", limits=H200)


def shape_of(form: attention_forms.Form) -> Form:
    return Form.of(request_for(form))


def call_of(form: attention_forms.Form) -> KernelCall:
    (call,) = lower(request_for(form), H200).calls
    return call
