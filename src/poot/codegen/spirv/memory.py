"""Device buffers and workgroup arrays: how each is declared, loaded from and stored to.

An array's element is the widest vector (1, 2 or 4 words) that every access to it is a whole number
of. 16- and 8-bit elements lie in u32 words; a scalar 16-bit store needs a native f16 array, and
that needs 16-bit storage. The planner keeps bindings under 2^31 elements, so an index is 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.kir.nodes import (
    ELEMENT_BYTES,
    Ins,
    Kernel,
    Lit,
    Operand,
    Param,
    Shared,
    instructions,
)
from poot.codegen.spirv.body import Body, register_type
from poot.codegen.spirv.types import from_bits, from_words, per_word, to_words
from poot.codegen.spirv.words import STORAGE
from poot.errors import DtypeLowering
from poot.limits import DeviceLimits

_NON_PRIVATE = 0x20  # SPIR-V, memory operand NonPrivatePointer
_NATIVE = ("f32", "i32", "u32", "i64", "u64")


@dataclass(frozen=True, slots=True)
class Access:
    """One load, store or atomic: elements at a time, and the coherence it asks for."""

    op: str
    lanes: int
    cache: object


@dataclass(frozen=True, slots=True)
class Array:
    """A declared memory: `dtype` as the kernel says it, `element` the scalar held ("f32", "u32",
    "f16" ...), `lanes` scalars an array element, ids of the variable and the pointer types."""

    dtype: str
    element: str
    lanes: int
    variable: int
    vector_pointer: int
    vector_type: int
    scalar_type: int
    is_buffer: bool

    @property
    def is_words(self) -> bool:
        """Whether an array scalar is a u32 word of narrower (or bool) elements."""
        return self.element == "u32" and self.dtype != "u32"


def accesses(kernel: Kernel) -> dict[str, list[Access]]:
    """What the kernel does to each memory it names."""
    found: dict[str, list[Access]] = {m.name: [] for m in (*kernel.params, *kernel.shared)}
    for ins in instructions(kernel.body):
        mem = ins.attr("mem")
        if isinstance(mem, str) and mem in found and ins.op in ("load", "store", "atomic"):
            value: Operand = ins.args[1] if ins.op == "store" else ins.dsts[0]
            found[mem].append(Access(ins.op, register_type(value).lanes, ins.attr("cache")))
    return found


def element_of(decl: Param | Shared, uses: list[Access], limits: DeviceLimits) -> tuple[str, int]:
    """The scalar that the array holds, and how many a vector element has."""
    if decl.dtype in _NATIVE:
        element, held = decl.dtype, 1
    else:
        element, held = "u32", per_word(decl.dtype)
    narrow_store = any(a.op == "store" and a.lanes < held for a in uses)
    if decl.dtype == "f16" and isinstance(decl, Param) and limits.has_f16_storage:
        only_scalars = bool(uses) and all(a.lanes == 1 for a in uses)
        if narrow_store or only_scalars:
            return "f16", 1
    if narrow_store:
        raise DtypeLowering(
            f"a scalar {decl.dtype} store to {decl.name} needs its own word on {limits.name}: "
            f"store vectors of {held} at a multiple of {held}, or keep it in f32"
        )
    if any(a.op == "atomic" for a in uses) or ELEMENT_BYTES[decl.dtype] == 8 or not uses:
        return element, 1
    return element, min(4, *(max(1, a.lanes // held) for a in uses))


def _scalar_type(b: Body, element: str) -> int:
    if element != "f16":
        return b.type(element)
    b.module.capability("StorageBuffer16BitAccess")
    b.module.extension("SPV_KHR_16bit_storage")
    return b.module.type("OpTypeFloat", 16)


def declare_buffer(b: Body, param: Param, binding: int, uses: list[Access]) -> Array:
    """A storage buffer of set 0: a block around a runtime array."""
    m = b.module
    element, lanes = element_of(param, uses, b.limits)
    scalar = _scalar_type(b, element)
    vector = scalar if lanes == 1 else m.type("OpTypeVector", scalar, lanes)
    array = m.fresh_type("OpTypeRuntimeArray", vector)
    m.decorate(array, "ArrayStride", lanes * ELEMENT_BYTES[element])
    block = m.fresh_type("OpTypeStruct", array)
    m.decorate(block, "Block")
    m.decorate_member(block, 0, "Offset", 0)
    if param.access == "r":  # on the member: naga, which would want a read-only layout, reads none
        m.decorate_member(block, 0, "NonWritable")
    if any(a.cache == "relaxed" for a in uses):
        if b.has_matrices:
            raise DtypeLowering(
                f"{param.name} is read as others write it, in Vulkan's memory model"
            )
        m.decorate_member(block, 0, "Coherent")
    storage = STORAGE["StorageBuffer"]
    variable = m.variable(m.type("OpTypePointer", storage, block), "StorageBuffer")
    m.decorate(variable, "DescriptorSet", 0)
    m.decorate(variable, "Binding", binding)
    m.put("name", "OpName", variable, param.name)
    pointer = m.type("OpTypePointer", storage, vector)
    return Array(param.dtype, element, lanes, variable, pointer, vector, scalar, True)


def declare_shared(b: Body, shared: Shared, uses: list[Access]) -> Array:
    """A workgroup array, not initialised."""
    m = b.module
    element, lanes = element_of(shared, uses, b.limits)
    scalar = b.type(element)
    vector = scalar if lanes == 1 else m.type("OpTypeVector", scalar, lanes)
    held = per_word(shared.dtype) if element == "u32" else 1
    length = -(-shared.elems // (lanes * held))
    array = m.type("OpTypeArray", vector, b.const("u32", length))
    storage = STORAGE["Workgroup"]
    variable = m.variable(m.type("OpTypePointer", storage, array), "Workgroup")
    m.put("name", "OpName", variable, shared.name)
    pointer = m.type("OpTypePointer", storage, vector)
    return Array(shared.dtype, element, lanes, variable, pointer, vector, scalar, False)


def meeting(b: Body, array: Array) -> tuple[int, ...]:
    """Memory operands of an access to what other lanes read or write: in Vulkan's memory model it
    says so itself."""
    return (_NON_PRIVATE,) if b.has_matrices and not array.is_buffer else ()


class Memory:
    """Every memory of a kernel, by name, and the accesses to it."""

    def __init__(self, arrays: dict[str, Array]) -> None:
        self._arrays = arrays

    def _array(self, ins: Ins) -> Array:
        return self._arrays[str(ins.attr("mem"))]

    def load(self, b: Body, ins: Ins) -> None:
        array, index, dst = self._array(ins), ins.args[0], ins.dsts[0]
        ty = register_type(dst)
        if array.element == "f16":
            wide = b.type("f32")
            parts = self._scalars(b, array, _Index.of(b, index), ty.lanes)
            b.put(dst, [b.ins("OpFConvert", wide, part) for part in parts])
        elif not array.is_words:
            b.put(dst, self._scalars(b, array, _Index.of(b, index), ty.lanes))
        elif ty.lanes < per_word(array.dtype):
            b.put(dst, self._narrow(b, array, index, ty.lanes))
        else:
            held = per_word(array.dtype)
            at = _Index.of(b, index).shifted(b, held)
            words = self._scalars(b, array, at, ty.lanes // held)
            b.put(dst, from_words(b, array.dtype, ty.lanes, words))

    def _narrow(self, b: Body, array: Array, index: Operand, lanes: int) -> list[int]:
        """Elements that fill less than a word: shifted down from the word that holds them."""
        held = per_word(array.dtype)
        at = _Index.of(b, index)
        word = self._scalars(b, array, at.shifted(b, held), 1)[0]
        shift = at.low(b, held, 32 // held)
        word = b.u32("OpShiftRightLogical", word, shift)
        if lanes == 1:
            return [from_bits(b, array.dtype, word)]
        return from_words(b, array.dtype, lanes, [word])

    def store(self, b: Body, ins: Ins) -> None:
        array, (index, value) = self._array(ins), ins.args
        lanes = list(b.get(value))
        at = _Index.of(b, index)
        if array.element == "f16":
            lanes = [b.ins("OpFConvert", array.scalar_type, lane) for lane in lanes]
        elif array.is_words:
            at = at.shifted(b, per_word(array.dtype))
            lanes = to_words(b, array.dtype, lanes)
        for first in range(0, len(lanes), array.lanes):
            part = lanes[first : first + array.lanes]
            pointer = self._pointer(b, array, at.plus(b, first).shifted(b, array.lanes))
            if array.lanes > 1:
                part = [b.ins("OpCompositeConstruct", array.vector_type, *part)]
            b.do("OpStore", pointer, part[0], *meeting(b, array))

    def matrix(self, b: Body, ins: Ins, nbytes: int) -> tuple[int, int, tuple[int, ...]]:
        """Where a matrix of elements of so many bytes lies: pointer, stride in what the pointer
        points to, and memory operands. Index and pitch are whole multiples of that."""
        array = self._array(ins)
        by = array.lanes * ELEMENT_BYTES[array.element] // nbytes
        index, pitch = (_Index.of(b, operand).shifted(b, by) for operand in ins.args[:2])
        return self._pointer(b, array, index), pitch.id(b), meeting(b, array)

    def atomic(self, b: Body, ins: Ins) -> None:
        array, (index, value), dst = self._array(ins), ins.args, ins.dsts[0]
        kind = str(ins.attr("kind"))
        if array.dtype not in ("i32", "u32"):
            raise DtypeLowering(f"atomics are on i32 and u32: {ins.attr('mem')} is {array.dtype}")
        signed = "S" if array.dtype == "i32" else "U"
        name = {"add": "OpAtomicIAdd", "and": "OpAtomicAnd", "or": "OpAtomicOr",
                "exchange": "OpAtomicExchange", "min": f"OpAtomic{signed}Min",
                "max": f"OpAtomic{signed}Max"}[kind]  # fmt: skip
        pointer = self._pointer(b, array, _Index.of(b, index))
        scope = b.scope("device" if array.is_buffer else "group")
        relaxed = b.const("u32", 0)
        made = b.ins(name, b.type(array.dtype), pointer, scope, relaxed, b.one(value))
        b.put(dst, [made])

    def _pointer(self, b: Body, array: Array, at: _Index) -> int:
        chain = [b.const("u32", 0), at.id(b)] if array.is_buffer else [at.id(b)]
        return b.ins("OpAccessChain", array.vector_pointer, array.variable, *chain)

    def _scalars(self, b: Body, array: Array, at: _Index, count: int) -> list[int]:
        """`count` array scalars from scalar index `at` on."""
        out: list[int] = []
        for first in range(0, count, array.lanes):
            pointer = self._pointer(b, array, at.plus(b, first).shifted(b, array.lanes))
            got = b.ins("OpLoad", array.vector_type, pointer, *meeting(b, array))
            if array.lanes == 1:
                out.append(got)
                continue
            for lane in range(array.lanes):
                out.append(b.ins("OpCompositeExtract", array.scalar_type, got, lane))
        return out


@dataclass(frozen=True, slots=True)
class _Index:
    """An index that is `value` where it is known, else the id of a u32."""

    value: int | None
    reg: int

    @staticmethod
    def of(b: Body, operand: Operand) -> _Index:
        if isinstance(operand, Lit):
            return _Index(int(operand.value), 0)
        made = b.one(operand)
        dtype = register_type(operand).dtype
        if dtype in ("i64", "u64"):
            wide = made if dtype == "u64" else b.cast_bits("u64", made)
            return _Index(None, b.u32("OpUConvert", wide))
        return _Index(None, made if dtype == "u32" else b.cast_bits("u32", made))

    def id(self, b: Body) -> int:
        return self.reg if self.value is None else b.const("u32", self.value)

    def plus(self, b: Body, more: int) -> _Index:
        if self.value is not None:
            return _Index(self.value + more, 0)
        if more == 0:
            return self
        return _Index(None, b.u32("OpIAdd", self.reg, b.const("u32", more)))

    def shifted(self, b: Body, by: int) -> _Index:
        """The index over `by`, a power of two."""
        if self.value is not None:
            return _Index(self.value // by, 0)
        if by == 1:
            return self
        return _Index(
            None, b.u32("OpShiftRightLogical", self.reg, b.const("u32", by.bit_length() - 1))
        )

    def low(self, b: Body, held: int, bits: int) -> int:
        """Bits to shift a word down by: (index mod held) * bits, as a u32 id."""
        if self.value is not None:
            return b.const("u32", self.value % held * bits)
        rest = b.u32("OpBitwiseAnd", self.reg, b.const("u32", held - 1))
        return b.u32("OpShiftLeftLogical", rest, b.const("u32", bits.bit_length() - 1))
