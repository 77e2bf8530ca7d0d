"""Rows across the lanes of a subgroup. A kernel says its width, and a device of another refuses it.

A reduction over part of a subgroup is a butterfly of exchanges, since naga has no clustered ops.
"""

from __future__ import annotations

from collections.abc import Callable

from poot.codegen.kir.nodes import Ins
from poot.codegen.spirv.body import HELD_IN, Body, register_type
from poot.codegen.spirv.types import rounded
from poot.errors import DtypeLowering

_FLOAT = {"add": "OpFAdd", "max": "FMax", "min": "FMin"}
_INT = {"add": "OpIAdd", "max": "SMax", "min": "SMin"}
_UINT = {"add": "OpIAdd", "max": "UMax", "min": "UMin"}
_REDUCE = 0


def _need(b: Body, capability: str) -> int:
    b.module.capability("GroupNonUniform")
    b.module.capability(capability)
    return b.scope("subgroup")


def _exchangeable(dtype: str) -> str:
    if HELD_IN[dtype] == "bool":
        raise DtypeLowering("lanes exchange numbers: a bool needs a cast to u32 first")
    return dtype


def _int_attr(ins: Ins, name: str) -> int:
    value = ins.attr(name)
    assert isinstance(value, int), ins
    return value


def shuffle(b: Body, ins: Ins, scene: object) -> None:
    dtype = _exchangeable(register_type(ins.args[0]).dtype)
    scope = _need(b, "GroupNonUniformShuffle")
    source = b.one(ins.args[1])
    if register_type(ins.args[1]).dtype != "u32":
        source = b.cast_bits("u32", source)
    name = "OpGroupNonUniformShuffle"
    b.put(ins.dsts[0], [b.ins(name, b.type(dtype), scope, v, source) for v in b.get(ins.args[0])])


def _exchange(b: Body, dtype: str, value: int, mask: int) -> int:
    scope = _need(b, "GroupNonUniformShuffle")
    held = b.type(_exchangeable(dtype))
    return b.ins("OpGroupNonUniformShuffleXor", held, scope, value, b.const("u32", mask))


def shuffle_xor(b: Body, ins: Ins, scene: object) -> None:
    dtype, mask = register_type(ins.args[0]).dtype, _int_attr(ins, "mask")
    b.put(ins.dsts[0], [_exchange(b, dtype, v, mask) for v in b.get(ins.args[0])])


def _fold(b: Body, dtype: str, kind: str, value: int, width: int) -> int:
    held = HELD_IN[dtype]
    name = {"f32": _FLOAT, "i32": _INT}.get(held, _UINT)[kind]
    if width == b.subgroup and dtype == held:
        scope = _need(b, "GroupNonUniformArithmetic")
        letter = "" if name.startswith("Op") else name[0]
        tail = name[2:] if name.startswith("Op") else name[1:]
        return b.ins(f"OpGroupNonUniform{letter}{tail}", b.type(dtype), scope, _REDUCE, value)
    step = width // 2
    while step:
        other = _exchange(b, dtype, value, step)
        made = b.ins if name.startswith("Op") else b.ext
        value = rounded(b, dtype, made(name, b.type(dtype), value, other))
        step //= 2
    return value


def reduce(b: Body, ins: Ins, scene: object) -> None:
    dtype, kind, width = register_type(ins.args[0]).dtype, str(ins.attr("kind")), ins.attr("width")
    assert isinstance(width, int), ins
    b.put(ins.dsts[0], [_fold(b, dtype, kind, v, width) for v in b.get(ins.args[0])])


def broadcast(b: Body, ins: Ins, scene: object) -> None:
    scope = _need(b, "GroupNonUniformBallot")
    dtype = _exchangeable(register_type(ins.args[0]).dtype)
    lane = b.const("u32", _int_attr(ins, "lane"))
    name = "OpGroupNonUniformBroadcast"
    b.put(ins.dsts[0], [b.ins(name, b.type(dtype), scope, v, lane) for v in b.get(ins.args[0])])


def vote(which: str) -> Callable[[Body, Ins, object], None]:
    def row(b: Body, ins: Ins, scene: object) -> None:
        scope = _need(b, "GroupNonUniformVote")
        name = f"OpGroupNonUniform{which}"
        b.put(ins.dsts[0], [b.ins(name, b.type("bool"), scope, b.one(ins.args[0]))])

    return row


def ballot(b: Body, ins: Ins, scene: object) -> None:
    scope = _need(b, "GroupNonUniformBallot")
    bits = b.ins("OpGroupNonUniformBallot", b.vector_type("u32", 4), scope, b.one(ins.args[0]))
    b.put(ins.dsts[0], [b.u32("OpCompositeExtract", bits, 0)])
