"""What op rows write into: the lines of one LLVM function, and how each register is held.

The lanes that run together are the lanes of LLVM vectors, `width` of them. A register is held as
its analysis says: uniform and linear ones as one scalar (the first lane's value), varying ones as
vectors. A register of n elements is n such values. f16, bf16 and f8e4m3 are held as f32 already
rounded, i8 and u8 as i32 already wrapped. Mutable registers, and those read outside the block that
wrote them, are stack slots, which LLVM makes registers.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

import numpy as np

from poot.codegen.kir.nodes import Lit, Operand, Reg, Ty
from poot.codegen.kir.uniform import Uniformity
from poot.codegen.llvm.homes import ROOT, Homes
from poot.errors import DtypeLowering
from poot.ir.dtypes import DTYPES

# The LLVM type that a register of each dtype is held in.
HELD_IN = {
    "f32": "float", "f16": "float", "bf16": "float", "f8e4m3": "float", "i32": "i32", "i8": "i32",
    "u32": "i32", "u8": "i32", "bool": "i1", "i64": "i64", "u64": "i64",
}  # fmt: skip
_SIZED = {"float": "f32", "double": "f64", "half": "f16"}
UNSIGNED = ("u32", "u8", "u64")


def register_type(operand: Operand) -> Ty:
    """The operand's scalar or vector type. Raises DtypeLowering on matrix fragments and tokens."""
    if not isinstance(operand.type, Ty):
        raise DtypeLowering(f"llvm has no register of type {operand.type}: {operand}")
    return operand.type


def overload(type: str) -> str:
    """How an LLVM type is written in an intrinsic's name: "<16 x float>" is v16f32."""
    if type.startswith("<"):
        count, element = type[1:-1].split(" x ")
        return f"v{count}{overload(element)}"
    return {"ptr": "p0"}.get(type) or _SIZED.get(type, type)


def float_text(value: float, dtype: str) -> str:
    """An LLVM float constant: the f32 nearest to what the dtype holds, as the bits of a double."""
    with np.errstate(over="ignore"):
        rounded = float(np.asarray(value, np.float32).astype(DTYPES[dtype].numpy))
    return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"


class Body:
    """One function under construction. `mask` names the active lanes' vector, None where all are
    active."""

    def __init__(self, width: int, uniformity: Uniformity, homes: Homes, has_avx512: bool) -> None:
        self.width = width
        self.has_avx512 = has_avx512
        self.lines: list[str] = []
        self.slots_text: list[str] = []
        self.resets: list[str] = []
        self.declares: dict[str, str] = {}
        self.metadata: list[str] = ["!0 = !{}"]
        self.mask: str | None = None
        self._uniformity = uniformity
        self._homes = homes
        self._held: dict[str, tuple[str, ...]] = {}
        self._slots: dict[str, tuple[str, ...]] = {}
        self._count = 0
        self._path = ROOT
        self._blocks = 0

    @contextmanager
    def block(self, mask: str | None) -> Generator[None]:
        """A block of the kernel's text, with its active lanes. Blocks are entered in text order."""
        path, outer = self._path, self.mask
        self._blocks += 1
        self._path, self.mask = (*path, self._blocks), mask
        yield
        self._path, self.mask = path, outer

    def skip_block(self) -> None:
        """A block of the text that has no code of its own."""
        self._blocks += 1

    def loop_hint(self, unroll: int | None) -> str:
        """What a loop's last branch says of unrolling."""
        if unroll is None:
            return ""
        names = {0: '!"llvm.loop.unroll.full"', 1: '!"llvm.loop.unroll.disable"'}
        what = names.get(unroll, f'!"llvm.loop.unroll.count", i32 {unroll}')
        at = len(self.metadata)
        self.metadata += [f"!{at} = distinct !{{!{at}, !{at + 1}}}", f"!{at + 1} = !{{{what}}}"]
        return f", !llvm.loop !{at}"

    # Text

    def fresh(self, prefix: str = "v") -> str:
        self._count += 1
        return f"%{prefix}{self._count}"

    def ins(self, text: str) -> str:
        """A line that makes a value; its name."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def new_label(self, prefix: str) -> str:
        return self.fresh(prefix)[1:]

    def call(self, name: str, result: str, args: Sequence[tuple[str, str]]) -> str:
        """A call of an intrinsic by its full name, with (type, value) operands."""
        self.declare(name, result, [t for t, _ in args])
        given = ", ".join(f"{t} {v}" for t, v in args)
        if result != "void":
            return self.ins(f"call {result} @{name}({given})")
        self.do(f"call void @{name}({given})")
        return ""

    def declare(self, name: str, result: str, types: Sequence[str]) -> None:
        self.declares[name] = f"declare {result} @{name}({', '.join(types)})"

    # Types and constants

    def wide(self, type: str) -> str:
        """The LLVM vector of a scalar type over the lanes."""
        return f"<{self.width} x {type}>"

    def type(self, dtype: str, wide: bool) -> str:
        held = HELD_IN[dtype]
        return self.wide(held) if wide else held

    def shaped(self, type: str, wide: bool) -> str:
        return self.wide(type) if wide else type

    def const(self, dtype: str, value: float, wide: bool = False) -> str:
        held = HELD_IN[dtype]
        if held == "float":
            text = float_text(float(value), dtype)
        elif held == "i1":
            text = "true" if value else "false"
        else:
            text = str(_wrapped(int(value), dtype))
        return f"splat ({held} {text})" if wide else text

    def integer(self, value: int, wide: bool, type: str = "i32") -> str:
        return f"splat ({type} {value})" if wide else str(value)

    def steps(self, type: str, values: Iterable[int]) -> str:
        """A constant vector of integers."""
        return "<" + ", ".join(f"{type} {v}" for v in values) + ">"

    def splat(self, type: str, value: str) -> str:
        """A scalar in every lane."""
        vector = self.wide(type)
        if not value.startswith("%"):
            return f"splat ({type} {value})"
        first = self.ins(f"insertelement {vector} poison, {type} {value}, i64 0")
        order = f"<{self.width} x i32> zeroinitializer"
        return self.ins(f"shufflevector {vector} {first}, {vector} poison, {order}")

    def first(self, type: str, vector: str) -> str:
        """The first lane's element."""
        return self.ins(f"extractelement {self.wide(type)} {vector}, i64 0")

    # Registers

    def stride(self, operand: Operand) -> int | None:
        """How the operand's value differs from lane to lane; None where anyhow."""
        if self.width == 1:
            return 0
        return self._uniformity.of(operand).stride

    def diverges(self, stmt: object) -> bool:
        return self.width > 1 and self._homes.diverges(stmt)

    def is_wide(self, operand: Operand) -> bool:
        """Whether the operand is held as vectors over the lanes."""
        return isinstance(operand, Reg) and self.stride(operand) is None

    def scalars(self, operand: Operand) -> list[str]:
        """The first lane's value of each element."""
        ty = register_type(operand)
        if isinstance(operand, Lit):
            return [self.const(ty.dtype, operand.value)] * ty.lanes
        held = self._parts(operand)
        if not self.is_wide(operand):
            return held
        return [self.first(HELD_IN[ty.dtype], part) for part in held]

    def vectors(self, operand: Operand) -> list[str]:
        """Each element over the lanes."""
        ty = register_type(operand)
        if isinstance(operand, Lit):
            return [self.const(ty.dtype, operand.value, True)] * ty.lanes
        held = self._parts(operand)
        if self.is_wide(operand):
            return held
        return [self.spread(HELD_IN[ty.dtype], part, self.stride(operand) or 0) for part in held]

    def spread(self, type: str, value: str, stride: int) -> str:
        """value + stride * lane in every lane."""
        vector = self.splat(type, value)
        if stride == 0:
            return vector
        steps = self.steps(type, (stride * lane for lane in range(self.width)))
        return self.ins(f"add {self.wide(type)} {vector}, {steps}")

    def get(self, operand: Operand, wide: bool) -> list[str]:
        return self.vectors(operand) if wide else self.scalars(operand)

    def one(self, operand: Operand, wide: bool) -> str:
        parts = self.get(operand, wide)
        assert len(parts) == 1, operand
        return parts[0]

    def _parts(self, reg: Reg) -> list[str]:
        slots = self._slots.get(reg.name)
        if slots is None:
            return list(self._held[reg.name])
        type = self.type(register_type(reg).dtype, self.is_wide(reg))
        return [self.ins(f"load {type}, ptr {slot}") for slot in slots]

    def put(self, reg: Reg, parts: Sequence[str], wide: bool) -> None:
        """Writes a register in the active lanes; `wide` says what the values are."""
        ty = register_type(reg)
        held, needs = HELD_IN[ty.dtype], self.is_wide(reg)
        if needs and not wide:
            parts = [self.splat(held, part) for part in parts]
        elif wide and not needs:
            parts = [self.first(held, part) for part in parts]
        if not self._homes.is_slot(reg):
            self._held[reg.name] = tuple(parts)
            return
        type = self.shaped(held, needs)
        slots = self.slots_of(reg)
        if needs and self.mask is not None and self._homes.is_partial(reg, self._path):
            old = [self.ins(f"load {type}, ptr {slot}") for slot in slots]
            parts = [self.select(type, self.mask, a, b) for a, b in zip(parts, old, strict=True)]
        for slot, part in zip(slots, parts, strict=True):
            self.do(f"store {type} {part}, ptr {slot}")

    def slots_of(self, reg: Reg) -> tuple[str, ...]:
        """The register's stack slots, made at its first write and zeroed as each group starts."""
        if reg.name not in self._slots:
            ty = register_type(reg)
            type = self.type(ty.dtype, self.is_wide(reg))
            made = tuple(self.slot(type) for _ in range(ty.lanes))
            self.resets += [f"  store {type} zeroinitializer, ptr {slot}" for slot in made]
            self._slots[reg.name] = made
        return self._slots[reg.name]

    def slot(self, type: str) -> str:
        """Stack memory of the function."""
        name = self.fresh("s")
        self.slots_text.append(f"  {name} = alloca {type}")
        return name

    # Masks

    def select(self, type: str, cond: str, a: str, b: str, wide: bool = True) -> str:
        """By lane where the condition is a vector."""
        cond_type = self.wide("i1") if wide else "i1"
        return self.ins(f"select {cond_type} {cond}, {type} {a}, {type} {b}")

    def both(self, outer: str | None, cond: str) -> str:
        """The lanes of outer where cond holds; what cond is in other lanes doesn't matter."""
        if outer is None:
            return cond
        return self.select(self.wide("i1"), outer, cond, "zeroinitializer")

    def any(self, mask: str) -> str:
        """i1: some lane is set."""
        return self._votes(mask, "ne", "0")

    def all(self, mask: str) -> str:
        return self._votes(mask, "eq", "-1")

    def _votes(self, mask: str, how: str, what: str) -> str:
        if self.width == 1:
            return self.ins(f"extractelement <1 x i1> {mask}, i64 0")
        bits = self.ins(f"bitcast {self.wide('i1')} {mask} to i{self.width}")
        return self.ins(f"icmp {how} i{self.width} {bits}, {what}")

    def active(self) -> str:
        """The mask as a vector that is always there."""
        return self.mask or "splat (i1 true)"


def _wrapped(value: int, dtype: str) -> int:
    """The word as a signed number of the width that the dtype is held in."""
    if dtype in ("i8", "u8"):
        value &= 0xFF
        return value - 256 if dtype == "i8" and value > 127 else value
    bits = 64 if dtype in ("i64", "u64") else 32
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value
