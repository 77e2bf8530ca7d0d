"""How each kernel IR op is spelled: one row an op, and a refusal with its reason is a row too.

A row writes into a Body. Vectors are spelled lane by lane; drivers hold them so anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from poot.codegen.kir.nodes import Frag, Ins
from poot.codegen.kir.refusals import refused
from poot.codegen.spirv import coop
from poot.codegen.spirv.body import HELD_IN, Body, register_type
from poot.codegen.spirv.memory import Memory
from poot.codegen.spirv.subgroup import (
    ballot,
    broadcast,
    reduce,
    shuffle,
    shuffle_xor,
    vote,
)
from poot.codegen.spirv.types import from_words, rounded, to_words
from poot.errors import DtypeLowering


@dataclass(frozen=True, slots=True)
class Scene:
    """What rows may ask for besides the body: memories, builtin inputs and immediates by name."""

    memory: Memory
    builtin: Callable[[str], int]
    imms: dict[str, int] = field(default_factory=dict[str, int])


Row = Callable[[Body, Ins, Scene], None]
Scalar = Callable[[Body, str, list[int]], int]


def elementwise(scalar: Scalar) -> Row:
    """A row that does each lane alone; `scalar` gets the first operand's dtype."""

    def row(b: Body, ins: Ins, scene: Scene) -> None:
        lanes = [b.get(a) for a in ins.args]
        count = register_type(ins.dsts[0]).lanes
        wide = [ids * count if len(ids) == 1 else ids for ids in lanes]
        dtype = register_type(ins.args[0]).dtype
        b.put(ins.dsts[0], [scalar(b, dtype, list(one)) for one in zip(*wide, strict=True)])

    return row


def kind_of(dtype: str) -> str:
    """ "float", "int", "uint" or "bool": which of SPIR-V's opcodes a dtype takes."""
    held = HELD_IN[dtype]
    return {"f32": "float", "i32": "int", "i64": "int", "bool": "bool"}.get(held, "uint")


def by_kind(**names: str) -> Scalar:
    """The opcode (or, where its name has no "Op", the GLSL.std.450 one) for the dtype's kind."""

    def scalar(b: Body, dtype: str, ids: list[int]) -> int:
        name = names.get(kind_of(dtype))
        if name is None:
            raise DtypeLowering(f"spirv has this op for {', '.join(names)}: not for {dtype}")
        made = b.ins if name.startswith("Op") else b.ext
        return rounded(b, dtype, made(name, b.type(dtype), *ids))

    return scalar


def compares(**names: str) -> Scalar:
    def scalar(b: Body, dtype: str, ids: list[int]) -> int:
        name = names.get(kind_of(dtype))
        if name is None:
            raise DtypeLowering(f"spirv has this op for {', '.join(names)}: not for {dtype}")
        return b.ins(name, b.type("bool"), *ids)

    return scalar


def _not_equal(b: Body, dtype: str, ids: list[int]) -> int:
    """Floats as the complement of equal: naga turns an unordered comparison into an ordered one."""
    if kind_of(dtype) == "float":
        equal = b.ins("OpFOrdEqual", b.type("bool"), *ids)
        return b.ins("OpLogicalNot", b.type("bool"), equal)
    return compares(int="OpINotEqual", uint="OpINotEqual", bool="OpLogicalNotEqual")(b, dtype, ids)


def _is_nan(b: Body, value: int) -> int:
    bits = b.u32("OpBitwiseAnd", b.cast_bits("u32", value), b.const("u32", 0x7FFFFFFF))
    return b.ins("OpUGreaterThan", b.type("bool"), bits, b.const("u32", 0x7F800000))


def _nan_extreme(name: str) -> Scalar:
    def scalar(b: Body, dtype: str, ids: list[int]) -> int:
        first, second = ids
        best = b.ext(name, b.type(dtype), first, second)
        best = b.select(dtype, _is_nan(b, second), second, best)
        return b.select(dtype, _is_nan(b, first), first, best)

    return scalar


def _reciprocal(b: Body, dtype: str, ids: list[int]) -> int:
    one = b.const(dtype, 1.0)
    return rounded(b, dtype, b.ins("OpFDiv", b.type(dtype), one, ids[0]))


def _absolute(b: Body, dtype: str, ids: list[int]) -> int:
    if kind_of(dtype) == "uint":
        return ids[0]
    return by_kind(float="FAbs", int="SAbs")(b, dtype, ids)


def _remainder(b: Body, dtype: str, ids: list[int]) -> int:
    """a - b * (a / b) where there is a sign: Vulkan leaves OpSRem of negative operands undefined,
    and an NVIDIA driver was seen to give 0 for -1 by 2^31 - 1."""
    if kind_of(dtype) != "int":
        return by_kind(uint="OpUMod")(b, dtype, ids)
    type = b.type(dtype)
    quotient = b.ins("OpSDiv", type, *ids)
    return b.ins("OpISub", type, ids[0], b.ins("OpIMul", type, quotient, ids[1]))


def _high_word(b: Body, dtype: str, ids: list[int]) -> int:
    """The high word of a u32 product, from 16-bit halves: naga has no wide product."""
    if dtype != "u32":
        raise DtypeLowering(f"mulhi is on u32: not on {dtype}")
    half, mask = b.const("u32", 16), b.const("u32", 0xFFFF)
    low = [b.u32("OpBitwiseAnd", v, mask) for v in ids]
    high = [b.u32("OpShiftRightLogical", v, half) for v in ids]
    carry = b.u32("OpShiftRightLogical", b.u32("OpIMul", low[0], low[1]), half)
    middle = b.u32("OpIAdd", b.u32("OpIMul", high[0], low[1]), carry)
    kept = b.u32("OpBitwiseAnd", middle, mask)
    other = b.u32("OpIAdd", b.u32("OpIMul", low[0], high[1]), kept)
    top = b.u32("OpIAdd", b.u32("OpIMul", high[0], high[1]),
                b.u32("OpShiftRightLogical", middle, half))  # fmt: skip
    return b.u32("OpIAdd", top, b.u32("OpShiftRightLogical", other, half))


def _shift(**names: str) -> Scalar:
    def scalar(b: Body, dtype: str, ids: list[int]) -> int:
        made = b.ins(names[kind_of(dtype)], b.type(dtype), ids[0], ids[1])
        return rounded(b, dtype, made)

    return scalar


def _select(b: Body, ins: Ins, scene: Scene) -> None:
    cond, first, second = (b.get(a) for a in ins.args)
    dtype, count = register_type(ins.dsts[0]).dtype, register_type(ins.dsts[0]).lanes
    conds = cond * count if len(cond) == 1 else cond
    rows = zip(conds, first, second, strict=True)
    b.put(ins.dsts[0], [b.select(dtype, c, x, y) for c, x, y in rows])


def _convert(b: Body, source: str, target: str, value: int) -> int:
    """A held register of one dtype as a held register of another."""
    have, want = HELD_IN[source], HELD_IN[target]
    if have == want:
        return value
    if want == "bool":
        return _not_equal(b, source, [value, b.const(source, 0)])
    if have == "bool":
        return b.select(target, value, b.const(target, 1), b.const(target, 0))
    if have == "f32":
        name = "OpConvertFToS" if kind_of(target) == "int" else "OpConvertFToU"
        return b.ins(name, b.type(target), value)
    if want == "f32":
        name = "OpConvertSToF" if kind_of(source) == "int" else "OpConvertUToF"
        return b.ins(name, b.type("f32"), value)
    if have[1:] == want[1:]:
        return b.cast_bits(target, value)
    signed = kind_of(source) == "int"
    middle = ("i" if signed else "u") + want[1:]
    made = b.ins("OpSConvert" if signed else "OpUConvert", b.type(middle), value)
    return made if middle == want else b.cast_bits(target, made)


def _cast(b: Body, ins: Ins, scene: Scene) -> None:
    source, target = register_type(ins.args[0]).dtype, register_type(ins.dsts[0]).dtype
    lanes = [_convert(b, source, target, v) for v in b.get(ins.args[0])]
    # A narrow float's every value is an f32's; any other source needs rounding to the target.
    b.put(ins.dsts[0], [v if source == "bool" else rounded(b, target, v) for v in lanes])


def _bitcast(b: Body, ins: Ins, scene: Scene) -> None:
    source, target = register_type(ins.args[0]), register_type(ins.dsts[0])
    same = {source.dtype, target.dtype} <= {"f32", "i32", "u32"}
    if same and source.lanes == target.lanes:
        b.put(ins.dsts[0], [b.cast_bits(target.dtype, v) if source.dtype != target.dtype else v
                            for v in b.get(ins.args[0])])  # fmt: skip
        return
    words = to_words(b, source.dtype, b.get(ins.args[0]))
    b.put(ins.dsts[0], from_words(b, target.dtype, target.lanes, words))


def _set(b: Body, ins: Ins, scene: Scene) -> None:
    ids, count = b.get(ins.args[0]), len(b.lane_types(ins.dsts[0]))
    b.put(ins.dsts[0], ids * count if len(ids) == 1 else ids)


def _undef(b: Body, ins: Ins, scene: Scene) -> None:
    b.declare(ins.dsts[0])


def _vec(b: Body, ins: Ins, scene: Scene) -> None:
    b.put(ins.dsts[0], [b.one(a) for a in ins.args])


def _at(ins: Ins) -> int:
    at = ins.attr("at")
    assert isinstance(at, int), ins
    return at


def _extract(b: Body, ins: Ins, scene: Scene) -> None:
    b.put(ins.dsts[0], [b.get(ins.args[0])[_at(ins)]])


def _insert(b: Body, ins: Ins, scene: Scene) -> None:
    lanes = list(b.get(ins.args[0]))
    lanes[_at(ins)] = b.one(ins.args[1])
    b.put(ins.dsts[0], lanes)


def _reads(builtin: str) -> Row:
    def row(b: Body, ins: Ins, scene: Scene) -> None:
        value = scene.builtin(builtin)
        axis = ins.attr("axis")
        if isinstance(axis, int):
            value = b.u32("OpCompositeExtract", value, axis)
        b.put(ins.dsts[0], [b.cast_bits("i32", value)])

    return row


def _imm(b: Body, ins: Ins, scene: Scene) -> None:
    held = b.type(register_type(ins.dsts[0]).dtype)
    b.put(ins.dsts[0], [b.ins("OpLoad", held, scene.imms[str(ins.attr("name"))])])


def _load(b: Body, ins: Ins, scene: Scene) -> None:
    scene.memory.load(b, ins)


def _prefetch(b: Body, ins: Ins, scene: Scene) -> None:
    """SPIR-V has no such hint."""


def _store(b: Body, ins: Ins, scene: Scene) -> None:
    scene.memory.store(b, ins)


def _atomic(b: Body, ins: Ins, scene: Scene) -> None:
    scene.memory.atomic(b, ins)


_ACQUIRE_RELEASE, _BUFFER_MEMORY, _WORKGROUP_MEMORY = 0x8, 0x40, 0x100


def _barrier(b: Body, ins: Ins, scene: Scene) -> None:
    scope = ins.attr("scope")
    if scope not in ("group", "subgroup"):
        raise DtypeLowering(f"spirv barriers are of a group or a subgroup: {scope}")
    if scope == "subgroup":
        b.module.capability("GroupNonUniform")
    meaning = coop.meaning(b, _ACQUIRE_RELEASE | _WORKGROUP_MEMORY)
    b.do("OpControlBarrier", b.scope(str(scope)), b.scope(str(scope)), meaning)


def _fence(b: Body, ins: Ins, scene: Scene) -> None:
    scope = ins.attr("scope")
    if scope not in ("group", "device"):
        raise DtypeLowering(f"spirv fences are of a group or the device: {scope}")
    meaning = coop.meaning(b, _ACQUIRE_RELEASE | _BUFFER_MEMORY | _WORKGROUP_MEMORY)
    b.do("OpMemoryBarrier", b.scope(str(scope)), meaning)


def _floats(name: str) -> Row:
    return elementwise(by_kind(float=name))


def _binary(floats: str, ints: str, uints: str) -> Row:
    return elementwise(by_kind(float=floats, int=ints, uint=uints))


def _bits(name: str, logical: str) -> Row:
    return elementwise(by_kind(int=name, uint=name, bool=logical))


def _order(name: str) -> Row:
    return elementwise(compares(float=f"OpFOrd{name}", int=f"OpS{name}", uint=f"OpU{name}"))


def _isnan_row(b: Body, dtype: str, ids: list[int]) -> int:
    return _is_nan(b, ids[0])


_MATRIX = "only the driver knows where a cooperative matrix's elements lie"
# Why there are none of these: a kind of kir.refusals, or several alike.
_LACKS = {
    "copies": "its copies into workgroup memory are loads and stores",
    "phases": "it has no barriers with phases",
    "named": "its barriers are of a whole group or subgroup",
    "maps": "it has no tensor maps",
    "fragments": _MATRIX,
    "moves": _MATRIX,
    "codes": "bytes become f32 by shifts there",
    "warpgroups": _MATRIX,
    "election": "only asynchronous schedules ask for one lane",
    "order": "launches are ordered by barriers between them",
}


def _frag_load(b: Body, ins: Ins, scene: Scene) -> None:
    coop.load(b, ins, scene.memory)


def _frag_store(b: Body, ins: Ins, scene: Scene) -> None:
    coop.store(b, ins, scene.memory)


def _of_matrices(matrices: Callable[[Body, Ins], None], others: Row | None = None) -> Row:
    """A row of fragments, and of scalars and vectors where they have the op."""

    def row(b: Body, ins: Ins, scene: Scene) -> None:
        if others is not None and not isinstance(ins.dsts[0].type, Frag):
            others(b, ins, scene)
        else:
            matrices(b, ins)

    return row


SPIRV: dict[str, Row] = {
    **refused("spirv", _LACKS),
    "frag_fill": _of_matrices(coop.fill),
    "frag_load": _frag_load,
    "frag_store": _frag_store,
    "mma": _of_matrices(coop.product),
    "set": _set,
    "agree": _set,
    "undef": _undef,
    "add": _of_matrices(coop.arithmetic("OpFAdd"), _binary("OpFAdd", "OpIAdd", "OpIAdd")),
    "sub": _of_matrices(coop.arithmetic("OpFSub"), _binary("OpFSub", "OpISub", "OpISub")),
    "mul": _of_matrices(coop.arithmetic("OpFMul"), _binary("OpFMul", "OpIMul", "OpIMul")),
    "mulhi": elementwise(_high_word),
    "div": _binary("OpFDiv", "OpSDiv", "OpUDiv"),
    "rem": elementwise(_remainder),
    "fma": _floats("Fma"),
    "neg": _binary("OpFNegate", "OpSNegate", "OpSNegate"),
    "abs": elementwise(_absolute),
    "min": _binary("FMin", "SMin", "UMin"),
    "max": _binary("FMax", "SMax", "UMax"),
    "nanmin": elementwise(_nan_extreme("FMin")),
    "nanmax": elementwise(_nan_extreme("FMax")),
    "floor": _floats("Floor"),
    "rint": _floats("RoundEven"),
    "sqrt": _floats("Sqrt"),
    "rsqrt": _floats("InverseSqrt"),
    "rcp": elementwise(_reciprocal),
    "exp2": _floats("Exp2"),
    "log2": _floats("Log2"),
    "isnan": elementwise(_isnan_row),
    "and": _bits("OpBitwiseAnd", "OpLogicalAnd"),
    "or": _bits("OpBitwiseOr", "OpLogicalOr"),
    "xor": _bits("OpBitwiseXor", "OpLogicalNotEqual"),
    "not": _bits("OpNot", "OpLogicalNot"),
    "shl": elementwise(_shift(int="OpShiftLeftLogical", uint="OpShiftLeftLogical")),
    "shr": elementwise(_shift(int="OpShiftRightArithmetic", uint="OpShiftRightLogical")),
    "eq": elementwise(compares(float="OpFOrdEqual", int="OpIEqual", uint="OpIEqual",
                               bool="OpLogicalEqual")),
    "ne": elementwise(_not_equal),
    "lt": _order("LessThan"),
    "le": _order("LessThanEqual"),
    "gt": _order("GreaterThan"),
    "ge": _order("GreaterThanEqual"),
    "select": _select,
    "cast": _cast,
    "bitcast": _bitcast,
    "vec": _vec,
    "extract": _extract,
    "insert": _insert,
    "lane": _reads("LocalInvocationIndex"),
    "group_id": _reads("WorkgroupId"),
    "num_groups": _reads("NumWorkgroups"),
    "subgroup_id": _reads("SubgroupId"),
    "subgroup_lane": _reads("SubgroupLocalInvocationId"),
    "imm": _imm,
    "load": _load,
    "prefetch": _prefetch,
    "store": _store,
    "atomic": _atomic,
    "barrier": _barrier,
    "fence": _fence,
    "shuffle": shuffle,
    "shuffle_xor": shuffle_xor,
    "subgroup_reduce": reduce,
    "subgroup_broadcast": broadcast,
    "vote_any": vote("Any"),
    "vote_all": vote("All"),
    "ballot": ballot,
}  # fmt: skip
