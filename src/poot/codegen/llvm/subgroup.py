"""Subgroup ops as shuffles of the lanes' vectors. A vector holds whole subgroups."""

from __future__ import annotations

from collections.abc import Callable

from poot.codegen.kir.nodes import Ins
from poot.codegen.llvm.body import HELD_IN, Body, overload, register_type

Order = Callable[[int], int]


def _width(b: Body, subgroup: int) -> int:
    return min(subgroup, b.width)


def permute(b: Body, type: str, value: str, order: Order) -> str:
    """Lane i of the result is lane order(i) of the value."""
    vector = b.wide(type)
    steps = b.steps("i32", (order(lane) for lane in range(b.width)))
    shape = b.wide("i32")
    return b.ins(f"shufflevector {vector} {value}, {vector} poison, {shape} {steps}")


def shuffle(b: Body, ins: Ins, subgroup: int) -> None:
    """Through memory: the lanes' values, then a gather of the lanes asked for."""
    type = HELD_IN[register_type(ins.args[0]).dtype]
    width = _width(b, subgroup)
    if b.width == 1:
        b.put(ins.dsts[0], b.scalars(ins.args[0]), False)
        return
    value, lane = b.one(ins.args[0], True), b.one(ins.args[1], True)
    shape = b.wide("i32")
    lane = b.ins(f"and {shape} {lane}, {b.integer(width - 1, True)}")
    base = b.steps("i32", (own // width * width for own in range(b.width)))
    lane = b.ins(f"add {shape} {lane}, {base}")
    if b.width == 16 and type in ("float", "i32") and b.has_avx512:
        kind = "sf" if type == "float" else "si"
        vector = b.wide(type)
        args = [(vector, value), (shape, lane)]
        b.put(ins.dsts[0], [b.call(f"llvm.x86.avx512.permvar.{kind}.512", vector, args)], True)
        return
    held = "i32" if type == "i1" else type
    if type == "i1":
        value = b.ins(f"zext {b.wide('i1')} {value} to {shape}")
    vector = b.wide(held)
    slot = b.slot(vector)
    b.do(f"store {vector} {value}, ptr {slot}")
    where = b.ins(f"getelementptr {held}, ptr {slot}, {shape} {lane}")
    name = f"llvm.masked.gather.{overload(vector)}.{overload(b.wide('ptr'))}"
    align = "8" if held == "i64" else "4"
    args = [(b.wide("ptr"), where), ("i32", align), (b.wide("i1"), "splat (i1 true)"),
            (vector, "zeroinitializer")]  # fmt: skip
    got = b.call(name, vector, args)
    b.put(ins.dsts[0], [b.ins(f"trunc {vector} {got} to {b.wide('i1')}") if type == "i1" else got],
          True)  # fmt: skip


def shuffle_xor(b: Body, ins: Ins, subgroup: int) -> None:
    mask = int(str(ins.attr("mask")))
    type = HELD_IN[register_type(ins.args[0]).dtype]
    value = b.one(ins.args[0], True) if b.width > 1 else b.one(ins.args[0], False)
    made = permute(b, type, value, lambda lane: lane ^ mask) if b.width > 1 else value
    b.put(ins.dsts[0], [made], b.width > 1)


def broadcast(b: Body, ins: Ins, subgroup: int) -> None:
    width, lane = _width(b, subgroup), int(str(ins.attr("lane")))
    type = HELD_IN[register_type(ins.args[0]).dtype]
    if not b.is_wide(ins.args[0]) and b.stride(ins.args[0]) == 0:
        b.put(ins.dsts[0], b.scalars(ins.args[0]), False)
    elif width == b.width:
        value = b.one(ins.args[0], True)
        b.put(ins.dsts[0], [b.ins(f"extractelement {b.wide(type)} {value}, i64 {lane}")], False)
    else:
        value = b.one(ins.args[0], True)
        made = permute(b, type, value, lambda own: own // width * width + lane)
        b.put(ins.dsts[0], [made], True)


def reduce(fold: Callable[[Body, str, str, list[str], bool], str]) -> Callable[..., None]:
    """A butterfly of shuffles; `fold(b, kind, dtype, [x, y], wide)` is one step of it."""

    def row(b: Body, ins: Ins, subgroup: int) -> None:
        width, kind = int(str(ins.attr("width"))), str(ins.attr("kind"))
        dtype = register_type(ins.args[0]).dtype
        if b.width == 1:
            b.put(ins.dsts[0], b.scalars(ins.args[0]), False)
            return
        out: list[str] = []
        for value in b.vectors(ins.args[0]):
            step = 1
            while step < width:
                other = permute(b, HELD_IN[dtype], value, lambda lane, by=step: lane ^ by)
                value = fold(b, kind, dtype, [value, other], True)
                step *= 2
            out.append(value)
        b.put(ins.dsts[0], out, True)

    return row


def _bits(b: Body, ins: Ins) -> str:
    """The lanes' flags as one integer, lane 0 lowest."""
    value = b.one(ins.args[0], True)
    return b.ins(f"bitcast {b.wide('i1')} {value} to i{b.width}")


def _each_subgroup(b: Body, width: int, bits: str, make: Callable[[str], str], type: str) -> str:
    """make(a subgroup's flags as an integer), in all lanes of the subgroup."""
    whole = f"i{b.width}"
    vector = "poison"
    for at in range(0, b.width, width):
        own = b.ins(f"lshr {whole} {bits}, {at}") if at else bits
        own = b.ins(f"trunc {whole} {own} to i{width}") if width < b.width else own
        made = make(own)
        vector = b.ins(f"insertelement {b.wide(type)} {vector}, {type} {made}, i64 {at}")
    return permute(b, type, vector, lambda lane: lane // width * width)


def vote(is_any: bool) -> Callable[..., None]:
    def row(b: Body, ins: Ins, subgroup: int) -> None:
        if not b.is_wide(ins.args[0]):
            b.put(ins.dsts[0], b.scalars(ins.args[0]), False)
            return
        width = _width(b, subgroup)

        def make(own: str) -> str:
            return b.ins(f"icmp ne i{width} {own}, 0" if is_any else f"icmp eq i{width} {own}, -1")

        bits = _bits(b, ins)
        if width == b.width:
            b.put(ins.dsts[0], [make(bits)], False)
        else:
            b.put(ins.dsts[0], [_each_subgroup(b, width, bits, make, "i1")], True)

    return row


def ballot(b: Body, ins: Ins, subgroup: int) -> None:
    width = _width(b, subgroup)
    if b.width == 1:
        flag = b.one(ins.args[0], False)
        b.put(ins.dsts[0], [b.ins(f"zext i1 {flag} to i32")], False)
        return

    def make(own: str) -> str:
        return b.ins(f"zext i{width} {own} to i32") if width < 32 else own

    bits = _bits(b, ins)
    if width == b.width:
        b.put(ins.dsts[0], [make(bits)], False)
    else:
        b.put(ins.dsts[0], [_each_subgroup(b, width, bits, make, "i32")], True)


def agree(b: Body, ins: Ins, subgroup: int) -> None:
    """The first lane's value, for all."""
    if not b.is_wide(ins.args[0]):
        b.put(ins.dsts[0], b.scalars(ins.args[0]), False)
        return
    type = HELD_IN[register_type(ins.args[0]).dtype]
    value = b.one(ins.args[0], True)
    b.put(ins.dsts[0], [b.ins(f"extractelement {b.wide(type)} {value}, i64 0")], False)
