"""Rows of cooperative matrices: 16x16 fragments of the family `coop`, whose elements only the
driver can name.

A fragment is one value of a subgroup. 16-bit elements lie in arrays of u32 words. A module with
matrices is of Vulkan's memory model: accesses to workgroup memory say that others see them, and
barriers make them available and visible. Sources: SPV_KHR_cooperative_matrix, SPV_KHR_bfloat16,
SPV_KHR_vulkan_memory_model.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from poot.codegen.kir.nodes import ELEMENT_BYTES, Frag, Ins, Kernel, Lit, Type, instructions
from poot.codegen.spirv.body import Body
from poot.codegen.spirv.memory import Memory
from poot.errors import DtypeLowering
from poot.ir.dtypes import DTYPES

_ROW_MAJOR, _COLUMN_MAJOR = 0, 1
_GLSL450, _VULKAN = 1, 3
_AVAILABLE_VISIBLE = 0x6000  # SPIR-V, memory semantics MakeAvailable and MakeVisible


def has_matrices(kernel: Kernel) -> bool:
    """Whether the kernel has fragments."""
    return any(
        isinstance(operand.type, Frag)
        for ins in instructions(kernel.body)
        for operand in (*ins.args, *ins.dsts)
    )


def open_module(b: Body) -> None:
    """The memory model, and the capabilities and extensions of matrices."""
    m = b.module
    if b.has_matrices:
        m.extension("SPV_KHR_vulkan_memory_model")
        m.extension("SPV_KHR_cooperative_matrix")
        m.capability("VulkanMemoryModel")
        m.capability("CooperativeMatrixKHR")
    m.put("model", "OpMemoryModel", 0, _VULKAN if b.has_matrices else _GLSL450)


def meaning(b: Body, semantics: int) -> int:
    """A barrier's memory semantics in the module's memory model."""
    return b.const("u32", semantics | (_AVAILABLE_VISIBLE if b.has_matrices else 0))


def _frag(type: Type) -> Frag:
    assert isinstance(type, Frag), type
    return type


def fill(b: Body, ins: Ins) -> None:
    """One number in every element; of 16 bits a literal."""
    frag, value = _frag(ins.dsts[0].type), ins.args[0]
    kind = b.matrix_type(frag)
    if frag.dtype == "f32":
        number = b.one(value)
    elif isinstance(value, Lit):
        bits = np.asarray(value.value).astype(DTYPES[frag.dtype].numpy).view(np.uint16)
        number = b.module.constant(b.short_type(frag.dtype), int(bits))
    else:
        raise DtypeLowering(f"a cooperative matrix of {frag.dtype} is filled with a literal alone")
    b.put(ins.dsts[0], [b.ins("OpCompositeConstruct", kind, number)])


def _layout(b: Body, ins: Ins) -> int:
    if ins.attr("swizzle") is not None:
        raise DtypeLowering("a cooperative matrix lies in memory row by row: it has no swizzle")
    return b.const("u32", _COLUMN_MAJOR if ins.attr("trans") else _ROW_MAJOR)


def load(b: Body, ins: Ins, memory: Memory) -> None:
    frag = _frag(ins.dsts[0].type)
    kind = b.matrix_type(frag)
    pointer, stride, meets = memory.matrix(b, ins, ELEMENT_BYTES[frag.dtype])
    name = "OpCooperativeMatrixLoadKHR"
    b.put(ins.dsts[0], [b.ins(name, kind, pointer, _layout(b, ins), stride, *meets)])


def store(b: Body, ins: Ins, memory: Memory) -> None:
    frag = _frag(ins.args[2].type)
    pointer, stride, meets = memory.matrix(b, ins, ELEMENT_BYTES[frag.dtype])
    value = b.one(ins.args[2])
    b.do("OpCooperativeMatrixStoreKHR", pointer, value, _layout(b, ins), stride, *meets)


def product(b: Body, ins: Ins) -> None:
    kind = b.matrix_type(_frag(ins.dsts[0].type))
    operands = (b.one(operand) for operand in ins.args)
    b.put(ins.dsts[0], [b.ins("OpCooperativeMatrixMulAddKHR", kind, *operands)])


def arithmetic(name: str) -> Callable[[Body, Ins], None]:
    """An opcode that takes matrices as a whole."""

    def row(b: Body, ins: Ins) -> None:
        kind = b.matrix_type(_frag(ins.dsts[0].type))
        b.put(ins.dsts[0], [b.ins(name, kind, *(b.one(a) for a in ins.args))])

    return row
