"""Whole attentions in subgroup tiles against the oracle, and what the assembler says of them."""

from __future__ import annotations

import pytest

from poot.codegen.gen.lower import lower
from poot.codegen.kir.nodes import Ins
from poot.codegen.kir.sim.run import walk
from poot.codegen.ptx.emit import emit_ptx
from tests.support.launch import request_of
from tests.support.ptx_agree import AMPERE
from tests.support.ptxas import assemble
from tests.support.subgroup_tiles import call_of, check, prefill

FORMS = (
    prefill(70, 100),
    prefill(130, 130, 128, causal=0),
    prefill(3, 64, 128, "f16"),
    prefill(40, 140, 256, causal=100),
    prefill(40, 300, causal=260, window=50),
    prefill(20, 100, 192, value_width=128),
    prefill(20, 100, 80, value_width=96, causal=80),
    prefill(20, 60, 48, value_width=16, lse=True),
    prefill(20, 60, scale=-0.2),
)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_attention_is_the_oracles(form):
    check(form)


def test_heads_of_several_batch_rows_share_their_key_heads():
    check(prefill(40, 90, batch=2, heads=4, kv_heads=2, causal=50))


def test_values_come_while_scores_are_computed_and_keys_while_values_are_added():
    ops = [s.op for s in walk(call_of(prefill(64, 128)).kernel.body) if isinstance(s, Ins)]
    steps = [o for o in ops if o in ("cp_async", "mma", "barrier", "exp2")]
    kept = [o for n, o in enumerate(steps) if n == 0 or steps[n - 1] != o]
    assert kept == ["cp_async", "barrier", "cp_async", "mma", "barrier", "cp_async", "exp2", "mma"]


def _text(width: int, value_width: int, attrs: str, shared: int, is_paged: bool) -> str:
    lead = "70000,16" if is_paged else "2,16,4096"
    types = [f"bf16[2,16,4096,{width}]", f"bf16[{lead},{width - shared}]",
             f"bf16[{lead},{value_width}]"]  # fmt: skip
    names = ["q", "k", "v"]
    for name, type, asked in (
        ("k_shared", f"bf16[2,1,4096,{shared}]", shared),
        ("read", "i32[2,4096]", is_paged),
        ("len", "i32[2]", is_paged),
    ):
        if asked:
            names.append(name)
            types.append(type)
    ranges = {"read": " range=(0, 70000)", "len": " range=(1, 4097)"}
    lines = [f'slot v{n}: {t} "{m}"{ranges.get(m, "")}'
             for n, (t, m) in enumerate(zip(types, names, strict=True))]  # fmt: skip
    ins = ", ".join(f"v{n}" for n in range(len(types)))
    out = f"v{len(types)}: bf16[2,16,4096,{value_width}]"
    lines.append(f"{out} = attention({ins}) operands=({', '.join(names)}) scale=0.1 {attrs}")
    return "\n".join([*lines, f"out v{len(types)}"])


@pytest.mark.parametrize(
    "width, value_width, attrs, shared, is_paged",
    [
        (64, 64, "causal=0", 0, False),
        (128, 128, "causal=0", 0, False),
        (128, 128, "causal=0", 0, True),
        (192, 128, "causal=0", 64, False),
        (256, 256, "causal=0 window=1024", 0, False),
    ],
)
def test_no_kernel_spills_and_two_groups_fit_a_multiprocessor(
    width, value_width, attrs, shared, is_paged
):
    text = _text(width, value_width, attrs, shared, is_paged)
    (call,) = lower(request_of(text, "attention", limits=AMPERE), AMPERE).calls
    report = assemble(emit_ptx(call.kernel, AMPERE)[1], "sm_80")
    assert (report.spills, report.stack_nbytes, report.warnings) == (0, 0, ())
    assert 2 * report.registers * call.kernel.threads <= 65536
    assert 2 * call.kernel.shared_nbytes <= AMPERE.workgroup_nbytes
