"""Loads, stores and atomics: whole vectors where addresses are linear, else gathers and scatters.

Inactive lanes touch no memory. Bases are whole words and buffers are padded to whole words, so a
gather of narrow elements reads the words that hold them.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.kir.nodes import ELEMENT_BYTES, Ins, Operand
from poot.codegen.llvm.body import UNSIGNED, Body, overload, register_type
from poot.codegen.llvm.types import (
    MEMORY,
    convert,
    from_bits,
    from_memory,
    i32,
    per_word,
    to_memory,
)

# How far ahead of a streamed load its line is fetched, in bytes. Codes of 4 bits on Zen 4: 3.1
# cycles a vector without, 2.3 to 2.4 with 1024 to 4096.
AHEAD = 1024


@dataclass(frozen=True, slots=True)
class Array:
    """A buffer or workgroup array: the dtype of its elements and the pointer to the first."""

    dtype: str
    pointer: str

    @property
    def element(self) -> str:
        return MEMORY[self.dtype]

    @property
    def nbytes(self) -> int:
        return ELEMENT_BYTES[self.dtype]


def _index(b: Body, operand: Operand) -> str:
    """The first lane's index as i64."""
    (value,), dtype = b.scalars(operand), register_type(operand).dtype
    if dtype in ("i64", "u64"):
        return value
    if not value.startswith("%"):
        return value
    return convert(b, "zext" if dtype in UNSIGNED else "sext", value, "i32", "i64", False)


def _indices(b: Body, operand: Operand) -> tuple[str, str]:
    """(LLVM scalar type, vector) of the lanes' indices; an address takes i32 as signed."""
    (value,), dtype = b.vectors(operand), register_type(operand).dtype
    if dtype in ("i64", "u64"):
        return "i64", value
    return ("i64", convert(b, "zext", value, "i32", "i64", True)) if dtype == "u32" else (
        "i32", value)  # fmt: skip


def _address(b: Body, type: str, pointer: str, index: str) -> str:
    return b.ins(f"getelementptr {type}, ptr {pointer}, i64 {index}")


def _addresses(b: Body, type: str, pointer: str, kind: str, indices: str) -> str:
    return b.ins(f"getelementptr {type}, ptr {pointer}, {b.wide(kind)} {indices}")


def load(b: Body, ins: Ins, array: Array) -> None:
    dst, index = ins.dsts[0], ins.args[0]
    count = register_type(dst).lanes
    stride = b.stride(index)
    if stride == 0:
        parts = _load_same(b, ins, array, count)
        b.put(dst, [from_memory(b, array.dtype, x, False) for x in parts], False)
    elif stride == count:
        parts = _load_run(b, array, index, count, ins.attr("cache") == "stream")
        b.put(dst, [from_memory(b, array.dtype, x, True) for x in parts], True)
    else:
        b.put(dst, _gather(b, array, index, count), True)


def _load_same(b: Body, ins: Ins, array: Array, count: int) -> list[str]:
    """`count` neighbours at one address, the same for all lanes."""
    element = array.element
    at = _address(b, element, array.pointer, _index(b, ins.args[0]))
    if count == 1:
        if ins.attr("cache") == "relaxed" and element in ("i32", "i64", "float"):
            align = array.nbytes
            return [b.ins(f"load atomic {element}, ptr {at} monotonic, align {align}")]
        return [b.ins(f"load {element}, ptr {at}, align {array.nbytes}")]
    vector = f"<{count} x {element}>"
    got = b.ins(f"load {vector}, ptr {at}, align {array.nbytes}")
    return [b.ins(f"extractelement {vector} {got}, i64 {n}") for n in range(count)]


def _repeated(b: Body, mask: str, count: int) -> str:
    """Each lane's flag `count` times in a row."""
    if count == 1:
        return mask
    order = b.steps("i32", (lane for lane in range(b.width) for _ in range(count)))
    vector = b.wide("i1")
    shape = f"<{b.width * count} x i32>"
    return b.ins(f"shufflevector {vector} {mask}, {vector} poison, {shape} {order}")


def _load_run(b: Body, array: Array, index: Operand, count: int, streams: bool) -> list[str]:
    """`count` neighbours a lane, lane after lane: one run of memory. Where it streams, the line
    that lies AHEAD is fetched with it; a fetch never faults."""
    element, total = array.element, b.width * count
    at = _address(b, element, array.pointer, _index(b, index))
    if streams:
        _fetch(b, b.ins(f"getelementptr i8, ptr {at}, i64 {AHEAD}"), 3)
    vector = f"<{total} x {element}>"
    if b.mask is None:
        got = b.ins(f"load {vector}, ptr {at}, align {array.nbytes}")
    else:
        mask = _repeated(b, b.mask, count)
        args = [("ptr", at), ("i32", str(array.nbytes)), (f"<{total} x i1>", mask),
                (vector, "zeroinitializer")]  # fmt: skip
        got = b.call(f"llvm.masked.load.{overload(vector)}.p0", vector, args)
    if count == 1:
        return [got]
    shape = f"<{b.width} x i32>"
    return [
        b.ins(
            f"shufflevector {vector} {got}, {vector} poison, {shape} "
            + b.steps("i32", range(n, total, count))
        )
        for n in range(count)
    ]


def _fetch(b: Body, address: str, level: int) -> None:
    """Fetches the line for reading, into the caches from level 1 on (3) or 2 on (2)."""
    args = [("ptr", address), ("i32", "0"), ("i32", str(level)), ("i32", "1")]
    b.call("llvm.prefetch.p0", "void", args)


def prefetch(b: Body, ins: Ins, array: Array) -> None:
    """The line of the first lane's element, into the level-2 cache: what is fetched early would
    push what is at work out of level 1."""
    index = ins.args[0]
    if b.stride(index) is None:
        kind, at = _indices(b, index)
        first = b.first(kind, at)
        first = convert(b, "sext", first, "i32", "i64", False) if kind == "i32" else first
    else:
        first = _index(b, index)
    _fetch(b, _address(b, array.element, array.pointer, first), 2)


def _gather(b: Body, array: Array, index: Operand, count: int) -> list[str]:
    """`count` neighbours a lane, anywhere, as registers hold them."""
    kind, at = _indices(b, index)
    held = per_word(array.dtype)
    if held == 1:
        return [
            from_memory(b, array.dtype, _gather_one(b, array, kind, at, n), True)
            for n in range(count)
        ]
    vector = b.wide(kind)
    shift = b.integer(held.bit_length() - 1, True, kind)
    word = b.ins(f"ashr {vector} {at}, {shift}")
    words = Array("u32", array.pointer)
    got = [_gather_one(b, words, kind, word, n) for n in range(max(1, count // held))]
    low = b.ins(f"and {vector} {at}, {b.integer(held - 1, True, kind)}")
    bits = convert(b, "trunc", low, "i64", "i32", True) if kind == "i64" else low
    size = 8 * array.nbytes
    if count < held:
        got[0] = i32(b, "lshr", got[0], i32(b, "mul", bits, size, True), True)
    out: list[str] = []
    for n in range(count):
        word, down = got[n // held], size * (n % held)
        out.append(
            from_bits(b, array.dtype, i32(b, "lshr", word, down, True) if down else word, True)
        )
    return out


def _moved(b: Body, kind: str, at: str, by: int) -> str:
    return b.ins(f"add {b.wide(kind)} {at}, {b.integer(by, True, kind)}") if by else at


def _gather_one(b: Body, array: Array, kind: str, at: str, by: int) -> str:
    element, pointers = array.element, b.wide("ptr")
    vector = b.wide(element)
    where = _addresses(b, element, array.pointer, kind, _moved(b, kind, at, by))
    args = [(pointers, where), ("i32", str(array.nbytes)), (b.wide("i1"), b.active()),
            (vector, "zeroinitializer")]  # fmt: skip
    return b.call(f"llvm.masked.gather.{overload(vector)}.{overload(pointers)}", vector, args)


def store(b: Body, ins: Ins, array: Array) -> None:
    index, value = ins.args
    count = register_type(value).lanes
    stride = b.stride(index)
    if stride == 0 and not b.is_wide(value) and b.stride(value) == 0:
        parts = [to_memory(b, array.dtype, x, False) for x in b.scalars(value)]
        _store_same(b, ins, array, parts)
        return
    parts = [to_memory(b, array.dtype, x, True) for x in b.vectors(value)]
    if stride == count:
        _store_run(b, array, index, parts)
    else:
        kind, at = _indices(b, index)
        for n, part in enumerate(parts):
            _scatter_one(b, array, kind, _moved(b, kind, at, n), part)


def _store_same(b: Body, ins: Ins, array: Array, parts: list[str]) -> None:
    element = array.element
    at = _address(b, element, array.pointer, _index(b, ins.args[0]))
    is_atomic = ins.attr("cache") == "relaxed" and element in ("i32", "i64", "float")
    for n, part in enumerate(parts):
        where = _address(b, element, at, str(n)) if n else at
        if is_atomic:
            b.do(f"store atomic {element} {part}, ptr {where} monotonic, align {array.nbytes}")
        else:
            b.do(f"store {element} {part}, ptr {where}, align {array.nbytes}")


def _store_run(b: Body, array: Array, index: Operand, parts: list[str]) -> None:
    element, count = array.element, len(parts)
    at = _address(b, element, array.pointer, _index(b, index))
    whole, total = interleaved(b, element, parts), b.width * count
    vector = f"<{total} x {element}>"
    if b.mask is None:
        b.do(f"store {vector} {whole}, ptr {at}, align {array.nbytes}")
        return
    args = [(vector, whole), ("ptr", at), ("i32", str(array.nbytes)),
            (f"<{total} x i1>", _repeated(b, b.mask, count))]  # fmt: skip
    b.call(f"llvm.masked.store.{overload(vector)}.p0", "void", args)


def interleaved(b: Body, element: str, parts: list[str]) -> str:
    """Lane after lane, each lane's parts in a row. As many parts as a power of two."""
    size, runs, held = b.width, list(parts), 1
    while len(runs) > 1:
        half, vector = len(runs) // 2, f"<{size * held} x {element}>"
        order = [
            side * size * held + lane * held + n
            for lane in range(size)
            for side in (0, 1)
            for n in range(held)
        ]
        shape = f"<{len(order)} x i32>"
        steps = b.steps("i32", order)
        runs = [
            b.ins(f"shufflevector {vector} {runs[2 * n]}, {vector} {runs[2 * n + 1]}, "
                  f"{shape} {steps}")
            for n in range(half)
        ]  # fmt: skip
        held *= 2
    return runs[0]


def _scatter_one(b: Body, array: Array, kind: str, at: str, value: str) -> None:
    element, pointers = array.element, b.wide("ptr")
    vector = b.wide(element)
    where = _addresses(b, element, array.pointer, kind, at)
    args = [(vector, value), (pointers, where), ("i32", str(array.nbytes)),
            (b.wide("i1"), b.active())]  # fmt: skip
    b.call(f"llvm.masked.scatter.{overload(vector)}.{overload(pointers)}", "void", args)


_ATOMICS = {"add": "add", "and": "and", "or": "or", "exchange": "xchg"}


def atomic(b: Body, ins: Ins, array: Array) -> None:
    """One lane after the other, in lane order."""
    index, value = ins.args
    kind = str(ins.attr("kind"))
    name = _ATOMICS.get(kind) or ("u" if array.dtype == "u32" else "") + kind
    if b.width == 1:
        at = _address(b, "i32", array.pointer, _index(b, index))
        old = b.ins(f"atomicrmw {name} ptr {at}, i32 {b.one(value, False)} monotonic, align 4")
        b.put(ins.dsts[0], [old], False)
        return
    type, at = _indices(b, index)
    where = _addresses(b, "i32", array.pointer, type, at)
    given, counter, made = b.one(value, True), b.slot("i64"), b.slot(b.wide("i32"))
    mask = b.active()
    head, act, onward, done = (b.new_label(x) for x in ("each", "act", "next", "done"))
    b.do(f"store i64 0, ptr {counter}")
    b.do(f"store {b.wide('i32')} zeroinitializer, ptr {made}")
    b.do(f"br label %{head}")
    b.label(head)
    lane = b.ins(f"load i64, ptr {counter}")
    flag = b.ins(f"extractelement {b.wide('i1')} {mask}, i64 {lane}")
    b.do(f"br i1 {flag}, label %{act}, label %{onward}")
    b.label(act)
    own = b.ins(f"extractelement {b.wide('ptr')} {where}, i64 {lane}")
    new = b.ins(f"extractelement {b.wide('i32')} {given}, i64 {lane}")
    old = b.ins(f"atomicrmw {name} ptr {own}, i32 {new} monotonic, align 4")
    slot = b.ins(f"getelementptr i32, ptr {made}, i64 {lane}")
    b.do(f"store i32 {old}, ptr {slot}")
    b.do(f"br label %{onward}")
    b.label(onward)
    more = b.ins(f"add i64 {lane}, 1")
    b.do(f"store i64 {more}, ptr {counter}")
    is_more = b.ins(f"icmp ult i64 {more}, {b.width}")
    b.do(f"br i1 {is_more}, label %{head}, label %{done}")
    b.label(done)
    b.put(ins.dsts[0], [b.ins(f"load {b.wide('i32')}, ptr {made}")], True)
