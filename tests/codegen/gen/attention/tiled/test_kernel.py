"""Whole tiled attentions against the oracle, and what the assembler says of the ones that
matter."""

from __future__ import annotations

import pytest

from poot.codegen.gen.lower import lower
from poot.codegen.kir.nodes import Roles
from poot.codegen.ptx.emit import emit_ptx
from tests.support.attention_steps import check_form
from tests.support.launch import request_of
from tests.support.ptxas import assemble
from tests.support.tiled import H200, call_of, prefill

FORMS = (
    prefill(64, 128),
    prefill(100, 300),
    prefill(200, 200, 128, causal=0),
    prefill(3, 64, 128, "f16"),
    prefill(70, 140, 256, causal=70),
    prefill(40, 300, causal=260, window=50),
    prefill(70, 150, 192, value_width=128, causal=80),
    prefill(70, 150, 192, value_width=128, shared=64, live=True),
    prefill(40, 150, 128, value_width=64, lse=True),
)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_tiled_attention_is_the_oracles(form):
    assert check_form(form, H200).schedule.name == "tiled"


def test_heads_of_several_batch_rows_share_their_key_heads():
    check_form(prefill(70, 90, batch=2, heads=4, kv_heads=2, causal=20), H200)


def test_one_role_copies_and_the_others_multiply():
    (roles,) = (s for s in call_of(prefill(200, 200, 128)).kernel.body if isinstance(s, Roles))
    assert [(r.name, r.first, r.count) for r in roles.roles] == [
        ("producer", 0, 4),
        ("consumer", 4, 8),
    ]


def _text(width: int, batch: int, heads: int, length: int, attrs: str, live: bool, shared: int = 0
          ) -> str:  # fmt: skip
    def typed(channels: int, lead: int = heads) -> str:
        return f"bf16[{batch},{lead},{length},{channels}]"

    q = typed(128 if shared else width)
    types = [typed(width), typed(width - shared), q, *([typed(shared, 1)] if shared else []),
             *([f"i32[{batch}]"] if live else [])]  # fmt: skip
    lines = [f"in v{n}: {t}" for n, t in enumerate(types)]
    names = "q, k, v" + (", k_shared" if shared else "") + (", len" if live else "")
    ins = ", ".join(f"v{n}" for n in range(len(types)))
    at = len(types)
    lines.append(f"v{at}: {q} = attention({ins}) operands=({names}) scale=0.1 {attrs}")
    return "\n".join([*lines, f"out v{at}"])


@pytest.mark.parametrize(
    "width, attrs, live",
    [
        (64, "causal=0", False),
        (128, "", False),
        (128, "causal=0", False),
        (128, "causal=0", True),
        (128, "causal=0 window=1024", False),
        (256, "causal=0", False),
    ],
)
def test_no_kernel_of_the_card_spills_or_waits_for_its_products_one_by_one(width, attrs, live):
    text = _text(width, 2, 16, 8192, attrs, live)
    (call,) = lower(request_of(text, "attention", limits=H200), H200).calls
    _, ptx = emit_ptx(call.kernel, H200)
    report = assemble(ptx, "sm_90a")
    assert (report.spills, report.stack_nbytes, report.warnings) == (0, 0, ())


def test_a_split_key_of_other_values_does_not_spill_either():
    text = _text(192, 2, 16, 8192, "causal=0", False, shared=64)
    request = request_of(text, "attention", limits=H200)
    assert request.schedule.name == "tiled"
    (call,) = lower(request, H200).calls
    report = assemble(emit_ptx(call.kernel, H200)[1], "sm_90a")
    assert (report.spills, report.stack_nbytes, report.warnings) == (0, 0, ())
    assert call.kernel.shared_nbytes <= H200.workgroup_nbytes
