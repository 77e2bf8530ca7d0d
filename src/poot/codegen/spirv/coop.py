"""Rows of cooperative matrices: 16x16 fragments of the family `coop`, whose elements only the
driver can name.

A fragment is one value of a subgroup. Its memory is an array of u32 words (16-bit elements) or of
f32. Sources: SPV_KHR_cooperative_matrix, SPV_KHR_bfloat16, SPV_KHR_vulkan_memory_model.
"""

from __future__ import annotations

from collections.abc import Callable

from poot.codegen.kir.nodes import Frag, Ins, Operand, Reg, Type
from poot.codegen.spirv.body import Body
from poot.codegen.spirv.memory import Memory
from poot.errors import DtypeLowering

SIDE = 16
_USES = {"a": 0, "b": 1, "acc": 2}
_ROW_MAJOR, _COLUMN_MAJOR = 0, 1
_BFLOAT16 = 0  # SPV_KHR_bfloat16: the encoding that OpTypeFloat may name


def frag_of(b: Body, type: Type) -> Frag:
    """The fragment. Raises DtypeLowering where the device has no such matrix."""
    if not isinstance(type, Frag) or type.family != "coop":
        raise DtypeLowering(f"spirv has cooperative matrices alone: not {type}")
    if (type.m, type.n) != (SIDE, SIDE):
        raise DtypeLowering(f"cooperative matrices are {SIDE}x{SIDE}: not {type.m}x{type.n}")
    dtype, is_sum = type.dtype, type.role == "acc"
    if is_sum != (dtype == "f32") or not (is_sum or dtype in b.limits.matrix_dtypes):
        have = ", ".join(b.limits.matrix_dtypes) or "none"
        raise DtypeLowering(
            f"{b.limits.name} multiplies matrices of {have} into f32: not {type.role} of {dtype}"
        )
    return type


def _component(b: Body, dtype: str) -> int:
    m = b.module
    if dtype == "f32":
        return b.type("f32")
    if dtype == "f16":
        m.capability("Float16")
        return m.type("OpTypeFloat", 16)
    m.extension("SPV_KHR_bfloat16")
    m.capability("BFloat16TypeKHR")
    m.capability("BFloat16CooperativeMatrixKHR")
    return m.type("OpTypeFloat", 16, _BFLOAT16)


def matrix_type(b: Body, frag: Frag) -> int:
    """The type's id; the module is of Vulkan's memory model from here on."""
    m = b.module
    m.extension("SPV_KHR_cooperative_matrix")
    m.capability("CooperativeMatrixKHR")
    number, scope = (lambda n: b.const("u32", n)), b.scope("subgroup")
    return m.type(
        "OpTypeCooperativeMatrixKHR", _component(b, frag.dtype), scope, number(frag.m),
        number(frag.n), number(_USES[frag.role]),
    )  # fmt: skip


def fill(b: Body, ins: Ins, scene: object) -> None:
    """Zeros alone: other numbers would need the component's own constants."""
    frag, value = frag_of(b, ins.dsts[0].type), ins.args[0]
    kind = matrix_type(b, frag)
    if frag.dtype == "f32":
        b.put(ins.dsts[0], [b.ins("OpCompositeConstruct", kind, b.one(value))])
        return
    zero = b.module.constant_of_zeros(kind)
    if not _is_zero(b, value):
        raise DtypeLowering(f"a cooperative matrix of {frag.dtype} is filled with zeros alone")
    b.put(ins.dsts[0], [zero])


def _is_zero(b: Body, value: Operand) -> bool:
    return not isinstance(value, Reg) and value.value == 0


def load(b: Body, ins: Ins, scene: Memory) -> None:
    frag = frag_of(b, ins.dsts[0].type)
    pointer, stride, access = scene.matrix_place(b, ins, frag.dtype)
    layout = b.const("u32", _COLUMN_MAJOR if ins.attr("trans") else _ROW_MAJOR)
    made = b.ins("OpCooperativeMatrixLoadKHR", matrix_type(b, frag), pointer, layout, stride,
                 *access)  # fmt: skip
    b.put(ins.dsts[0], [made])


def store(b: Body, ins: Ins, scene: Memory) -> None:
    value = ins.args[2]
    frag = frag_of(b, value.type)
    pointer, stride, access = scene.matrix_place(b, ins, frag.dtype)
    layout = b.const("u32", _COLUMN_MAJOR if ins.attr("trans") else _ROW_MAJOR)
    b.do("OpCooperativeMatrixStoreKHR", pointer, b.one(value), layout, stride, *access)


def product(b: Body, ins: Ins, scene: object) -> None:
    for operand in ins.args:
        frag_of(b, operand.type)
    kind = matrix_type(b, frag_of(b, ins.dsts[0].type))
    x, y, total = (b.one(operand) for operand in ins.args)
    b.put(ins.dsts[0], [b.ins("OpCooperativeMatrixMulAddKHR", kind, x, y, total)])


def elementwise(name: str, otherwise: Callable[[Body, Ins, object], None]) -> Callable[..., None]:
    """The opcode on matrices of f32; scalars and vectors by their own row."""

    def row(b: Body, ins: Ins, scene: object) -> None:
        if not isinstance(ins.dsts[0].type, Frag):
            otherwise(b, ins, scene)
            return
        kind = matrix_type(b, frag_of(b, ins.dsts[0].type))
        b.put(ins.dsts[0], [b.ins(name, kind, *(b.one(a) for a in ins.args))])

    return row
