"""What op rows write into: the function's words, the registers' ids, types and constants.

A register of n lanes is n scalar ids. f16, bf16 and f8e4m3 registers are f32 values already
rounded to their dtype; i8 and u8 are 32-bit integers already wrapped. A mutable register, and one
read outside the block that wrote it, is a function variable a lane.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np

from poot.codegen.kir.nodes import Frag, Lit, Operand, Reg, Ty
from poot.codegen.spirv.words import GLSL, STORAGE, Module, encode
from poot.errors import DtypeLowering
from poot.ir.dtypes import DTYPES
from poot.limits import DeviceLimits

# The dtype a register of each dtype is held in.
HELD_IN = {
    "f32": "f32", "f16": "f32", "bf16": "f32", "f8e4m3": "f32", "i32": "i32", "i8": "i32",
    "u32": "u32", "u8": "u32", "bool": "bool", "i64": "i64", "u64": "u64",
}  # fmt: skip


# The edge of a cooperative matrix, and what each role of a fragment is used as.
SIDE = 16
_USES = {"a": 0, "b": 1, "acc": 2}
_BFLOAT16 = 0  # SPV_KHR_bfloat16: the encoding that OpTypeFloat may name


def register_type(operand: Operand) -> Ty:
    """The operand's scalar or vector type. Raises DtypeLowering on matrix fragments and tokens."""
    if not isinstance(operand.type, Ty):
        raise DtypeLowering(f"spirv has no register of type {operand.type}: {operand}")
    return operand.type


class Body:
    """The function under construction. Rows call `ins`, `ext`, `const`, `get` and `put`."""

    def __init__(
        self,
        module: Module,
        limits: DeviceLimits,
        escaping: frozenset[str],
        subgroup: int | None,
        has_matrices: bool = False,
    ) -> None:
        self.module = module
        self.limits = limits
        self.subgroup = subgroup
        self.has_matrices = has_matrices
        self.code: list[int] = []
        self.variables: list[int] = []
        self._escaping = escaping
        self._held: dict[str, tuple[int, ...]] = {}
        self._slots: dict[str, tuple[int, ...]] = {}
        self._glsl = 0

    # Types and constants

    def type(self, dtype: str) -> int:
        """The type id of a scalar of the dtype that registers of `dtype` are held in."""
        held = HELD_IN[dtype]
        if held in ("i64", "u64"):
            if not self.limits.has_i64:
                raise DtypeLowering(f"{held} needs 64-bit integers, which {self.limits.name} lacks")
            self.module.capability("Int64")
            return self.module.type("OpTypeInt", 64, int(held == "i64"))
        if held == "bool":
            return self.module.type("OpTypeBool")
        if held == "f32":
            return self.module.type("OpTypeFloat", 32)
        return self.module.type("OpTypeInt", 32, int(held == "i32"))

    def vector_type(self, dtype: str, lanes: int) -> int:
        scalar = self.type(dtype)
        return scalar if lanes == 1 else self.module.type("OpTypeVector", scalar, lanes)

    def short_type(self, dtype: str) -> int:
        """The type of a cooperative matrix's 16-bit elements."""
        m = self.module
        if dtype == "f16":
            m.capability("Float16")
            return m.type("OpTypeFloat", 16)
        m.extension("SPV_KHR_bfloat16")
        m.capability("BFloat16TypeKHR")
        m.capability("BFloat16CooperativeMatrixKHR")
        return m.type("OpTypeFloat", 16, _BFLOAT16)

    def matrix_type(self, frag: Frag) -> int:
        """The type of a fragment of cooperative matrices. Raises DtypeLowering where the device has
        none such."""
        if frag.family != "coop" or (frag.m, frag.n) != (SIDE, SIDE):
            raise DtypeLowering(f"spirv has cooperative matrices of {SIDE}x{SIDE}: not {frag}")
        is_sum, have = frag.role == "acc", self.limits.matrix_dtypes
        if is_sum != (frag.dtype == "f32") or not (is_sum or frag.dtype in have):
            raise DtypeLowering(
                f"{self.limits.name} multiplies matrices of {', '.join(have) or 'no dtype'} into "
                f"f32: it has no {frag}"
            )
        component = self.type("f32") if is_sum else self.short_type(frag.dtype)
        edge = self.const("u32", SIDE)
        use = self.const("u32", _USES[frag.role])
        return self.module.type("OpTypeCooperativeMatrixKHR", component, self.scope("subgroup"),
                                edge, edge, use)  # fmt: skip

    def lane_types(self, operand: Operand) -> list[int]:
        """The type of each of an operand's ids: a lane's each, or a matrix's one."""
        if isinstance(operand.type, Frag):
            return [self.matrix_type(operand.type)]
        ty = register_type(operand)
        return [self.type(ty.dtype)] * ty.lanes

    def const(self, dtype: str, value: float) -> int:
        """A constant; infinities and NaN are made from their bits, since naga refuses them."""
        held = HELD_IN[dtype]
        if held == "bool":
            return self.module.truth(self.type("bool"), bool(value))
        if held == "f32":
            # Out-of-range literals of a narrow dtype become infinities by numpy's own rounding.
            with np.errstate(over="ignore"):
                rounded = float(np.asarray(value, np.float32).astype(DTYPES[dtype].numpy))
            bits = struct.unpack("<I", struct.pack("<f", rounded))[0]
            if not math.isfinite(rounded):
                return self.ins("OpBitcast", self.type("f32"), self.const("u32", bits))
            return self.module.constant(self.type("f32"), bits)
        wide = int(value) & ((1 << 64) - 1)
        words = (wide & 0xFFFFFFFF, wide >> 32) if held in ("i64", "u64") else (wide & 0xFFFFFFFF,)
        return self.module.constant(self.type(held), *words)

    # Instructions

    def ins(self, name: str, type_id: int, *operands: int) -> int:
        made = self.module.new_id()
        self.code += encode(name, type_id, made, *operands)
        return made

    def do(self, name: str, *operands: int) -> None:
        self.code += encode(name, *operands)

    def ext(self, name: str, type_id: int, *operands: int) -> int:
        """An instruction of GLSL.std.450."""
        if not self._glsl:
            self._glsl = self.module.new_id()
            self.module.put("import", "OpExtInstImport", self._glsl, "GLSL.std.450")
        return self.ins("OpExtInst", type_id, self._glsl, GLSL[name], *operands)

    def u32(self, name: str, *operands: int) -> int:
        return self.ins(name, self.type("u32"), *operands)

    def cast_bits(self, dtype: str, value: int) -> int:
        return self.ins("OpBitcast", self.type(dtype), value)

    def select(self, dtype: str, cond: int, a: int, b: int) -> int:
        return self.ins("OpSelect", self.type(dtype), cond, a, b)

    def scope(self, name: str) -> int:
        if name == "device" and self.has_matrices:  # a module of Vulkan's memory model
            self.module.capability("VulkanMemoryModelDeviceScope")
        return self.const("u32", {"device": 1, "group": 2, "subgroup": 3}[name])

    # Registers

    def local(self, dtype: str) -> int:
        """A function variable of one scalar."""
        return self._variable(self.type(dtype))

    def _variable(self, held: int) -> int:
        pointer = self.module.type("OpTypePointer", STORAGE["Function"], held)
        made = self.module.new_id()
        self.variables += encode("OpVariable", pointer, made, STORAGE["Function"])
        return made

    def declare(self, reg: Reg) -> None:
        """Gives the register variables of its own, unless it has them."""
        if reg.name not in self._slots:
            self._slots[reg.name] = tuple(self._variable(held) for held in self.lane_types(reg))

    def get(self, operand: Operand) -> tuple[int, ...]:
        """The ids of the operand's lanes, or a matrix's one."""
        if isinstance(operand, Lit):
            return (self.const(operand.type.dtype, operand.value),) * operand.type.lanes
        if operand.name in self._slots:
            kinds = zip(self.lane_types(operand), self._slots[operand.name], strict=True)
            return tuple(self.ins("OpLoad", held, slot) for held, slot in kinds)
        return self._held[operand.name]

    def one(self, operand: Operand) -> int:
        """The id of a scalar operand."""
        ids = self.get(operand)
        assert len(ids) == 1, operand
        return ids[0]

    def put(self, reg: Reg, ids: Sequence[int]) -> None:
        """The register holds these lanes from here on."""
        assert len(ids) == len(self.lane_types(reg)), (reg, ids)
        if reg.mutable or reg.name in self._escaping:
            self.declare(reg)
            for slot, value in zip(self._slots[reg.name], ids, strict=True):
                self.do("OpStore", slot, value)
        else:
            self._held[reg.name] = tuple(ids)

    def slots(self, reg: Reg) -> tuple[int, ...]:
        self.declare(reg)
        return self._slots[reg.name]
