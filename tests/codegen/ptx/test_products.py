"""wgmma: descriptors, steps along k, fences; the numbers are checked on the card."""

from __future__ import annotations

import re

import pytest

from poot.codegen.kir.build import KernelBuilder
from poot.codegen.kir.nodes import Frag, Ins, Kernel, Lit, Operand, Reg, Token, Ty
from poot.errors import CapabilityError
from tests.support.ptx_agree import AMPERE, assembled, ptx_of

I32 = Ty("i32")
ACC = Frag("wgmma", "acc", 64, 128, "f32")


def product(left: Operand | None = None, *, trans: bool = False, align: int = 1024) -> Kernel:
    """acc = a x b over k = 128, from two arrays or from registers of zeros."""
    k = KernelBuilder("product", 128, 32)
    a, b = k.shared("a", "bf16", 64 * 128, align), k.shared("b", "bf16", 128 * 128, align)
    y = k.param("y", "f32", 64 * 128, "w")
    acc = Reg("acc", ACC, True)
    k.do("fence", scope="async")
    k._emit(Ins("undef", (acc,), (), ()))
    attrs = {"a": a, "b": b, "k": 128, "stride_a": 64 * 64, "stride_b": 128 * 64,
             "trans_b": trans or None, "zero": True}  # fmt: skip
    first: Operand = Lit(0, I32)
    if left is not None:
        zeros = k.op("frag_fill", k.lit(0.0, Ty("bf16")), type=Frag("wgmma", "a", 64, 128, "bf16"))
        first, attrs["a"], attrs["stride_a"] = zeros.operand, None, None
    k._emit(Ins("wgmma", (acc,), (first, Lit(0, I32)), tuple(sorted(attrs.items()))))
    token = k.op("wgmma_commit", type=Token("wgmma"))
    k.do("wait", token, pending=0)
    k._emit(Ins("frag_store", (), (Lit(0, I32), Lit(128, I32), acc),
                (("mem", y), ("swizzle", None), ("trans", None))))  # fmt: skip
    return k.kernel()


def steps(text: str, name: str) -> list[int]:
    """What is added to a descriptor before each product of k = 16."""
    return [int(n) for n in re.findall(rf"add\.s64 \$\S+, {re.escape(name)}, (\d+);", text)]


def test_lines_along_k_step_within_a_panel_then_to_the_next():
    text = ptx_of(product())
    assert text.count("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16") == 8
    descriptors = re.findall(r"or\.b64 (\$\S+),", text)
    right, left = descriptors
    assert steps(text, left) == [2, 4, 6, 512, 514, 516, 518]
    assert steps(text, right) == [2, 4, 6, 1024, 1026, 1028, 1030]
    assert text.count("wgmma.fence.sync.aligned") == 1
    assert assembled(product(), ("sm_90a",))[0].warnings == ()


def test_lines_across_k_step_by_sixteen_lines():
    text = ptx_of(product(trans=True))
    right = re.findall(r"or\.b64 (\$\S+), \S+, (\d+);", text)[0]
    assert steps(text, right[0]) == [128 * n for n in range(1, 8)]
    assert int(right[1]) == 1024 << 16 | 64 << 32 | 1 << 62
    assert assembled(product(trans=True), ("sm_90a",))[0].warnings == ()


def test_the_left_operand_may_be_registers():
    text = ptx_of(product(Lit(0, I32)))
    assert len(re.findall(r"or\.b64", text)) == 1
    assert assembled(product(Lit(0, I32)), ("sm_90a",))[0].spills == 0


def test_only_sm_90a_multiplies_so_and_tiles_are_aligned():
    with pytest.raises(CapabilityError, match=r"kernel product: .*needs sm_9"):
        ptx_of(product(), AMPERE)
    with pytest.raises(CapabilityError, match="aligned to 1024 bytes: b has 128"):
        ptx_of(product(align=128))
