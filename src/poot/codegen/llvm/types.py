"""Between registers and memory or words: how each dtype lies there, and rounding to narrow floats.

Everything works on scalars and on vectors over the lanes alike; `wide` says which.
"""

from __future__ import annotations

from collections.abc import Sequence

from poot.codegen.kir.nodes import ELEMENT_BYTES
from poot.codegen.llvm.body import Body

# The LLVM type of an element in memory.
MEMORY = {
    "f32": "float", "f16": "half", "bf16": "i16", "f8e4m3": "i8", "i32": "i32", "u32": "i32",
    "i64": "i64", "u64": "i64", "i8": "i8", "u8": "i8", "bool": "i32",
}  # fmt: skip
NARROW_FLOATS = ("f16", "bf16", "f8e4m3")


def per_word(dtype: str) -> int:
    """Elements a u32 word holds: 1 from 32 bits up."""
    return max(1, 4 // ELEMENT_BYTES[dtype])


def convert(b: Body, op: str, value: str, was: str, now: str, wide: bool) -> str:
    """An LLVM conversion such as zext, between two scalar types or their vectors."""
    return b.ins(f"{op} {b.shaped(was, wide)} {value} to {b.shaped(now, wide)}")


def i32(b: Body, op: str, x: str, y: str | int, wide: bool) -> str:
    """An i32 instruction; a number is a constant."""
    right = b.integer(y, wide) if isinstance(y, int) else y
    return b.ins(f"{op} {b.shaped('i32', wide)} {x}, {right}")


def float_bits(b: Body, value: str, wide: bool) -> str:
    return convert(b, "bitcast", value, "float", "i32", wide)


def _compare(b: Body, how: str, bits: str, bound: int, wide: bool) -> str:
    return i32(b, f"icmp {how}", bits, bound, wide)


def choose(b: Body, type: str, cond: str, x: str | int, y: str | int, wide: bool) -> str:
    """x where the condition (of the same shape) holds, else y; numbers are constants."""
    first = b.integer(x, wide, type) if isinstance(x, int) else x
    second = b.integer(y, wide, type) if isinstance(y, int) else y
    return b.select(b.shaped(type, wide), cond, first, second, wide)


def _round_shifted(b: Body, bits: str, drop: int, rebias: int, wide: bool) -> str:
    """bits + rebias, its low `drop` bits rounded away to nearest even."""
    odd = i32(b, "and", i32(b, "lshr", bits, drop, wide), 1, wide)
    up = i32(b, "add", i32(b, "add", bits, rebias + (1 << (drop - 1)) - 1, wide), odd, wide)
    return i32(b, "lshr", up, drop, wide)


def _bf16_bits(b: Body, value: str, wide: bool) -> str:
    bits = float_bits(b, value, wide)
    is_nan = b.ins(f"fcmp uno {b.shaped('float', wide)} {value}, {value}")
    quiet = i32(b, "or", i32(b, "lshr", bits, 16, wide), 0x40, wide)
    return choose(b, "i32", is_nan, quiet, _round_shifted(b, bits, 16, 0, wide), wide)


def _f16_bits(b: Body, value: str, wide: bool) -> str:
    half = convert(b, "fptrunc", value, "float", "half", wide)
    return convert(b, "zext", convert(b, "bitcast", half, "half", "i16", wide), "i16", "i32", wide)


def _f8e4m3_bits(b: Body, value: str, wide: bool) -> str:
    """Past 464, half of the step above 448, there is only NaN; below 2^-6 the unit is 2^-9, which
    is the ulp of 16384."""
    bits = float_bits(b, value, wide)
    magnitude = i32(b, "and", bits, 0x7FFFFFFF, wide)
    sign = i32(b, "and", i32(b, "lshr", bits, 24, wide), 0x80, wide)
    normal = _round_shifted(b, magnitude, 20, -(120 << 23), wide)
    is_over = _compare(b, "ugt", magnitude, 0x43E80000, wide)
    code = choose(b, "i32", is_over, 0x7F, normal, wide)
    size = convert(b, "bitcast", magnitude, "i32", "float", wide)
    anchor = b.const("f32", 16384.0, wide)
    anchored = b.ins(f"fadd {b.shaped('float', wide)} {size}, {anchor}")
    small = i32(b, "sub", float_bits(b, anchored, wide), 0x46800000, wide)
    code = choose(b, "i32", _compare(b, "ult", magnitude, 0x3C800000, wide), small, code, wide)
    return i32(b, "or", code, sign, wide)


def _f8e4m3_value(b: Body, byte: str, wide: bool) -> str:
    low = i32(b, "and", byte, 0x7F, wide)
    sign = i32(b, "shl", i32(b, "and", byte, 0x80, wide), 24, wide)
    normal = i32(b, "add", i32(b, "shl", low, 20, wide), 120 << 23, wide)
    count = convert(b, "uitofp", low, "i32", "float", wide)
    unit = b.const("f32", 2.0**-9, wide)
    small = float_bits(b, b.ins(f"fmul {b.shaped('float', wide)} {count}, {unit}"), wide)
    bits = choose(b, "i32", _compare(b, "ult", low, 8, wide), small, normal, wide)
    bits = choose(b, "i32", _compare(b, "eq", low, 0x7F, wide), 0x7FC00000, bits, wide)
    return convert(b, "bitcast", i32(b, "or", bits, sign, wide), "i32", "float", wide)


_FLOAT_BITS = {"f16": _f16_bits, "bf16": _bf16_bits, "f8e4m3": _f8e4m3_bits}


def to_bits(b: Body, dtype: str, value: str, wide: bool) -> str:
    """A register value's bits in the low end of an i32, zeros above. Up to 32 bits."""
    if dtype in _FLOAT_BITS:
        return _FLOAT_BITS[dtype](b, value, wide)
    if dtype == "f32":
        return float_bits(b, value, wide)
    if dtype == "bool":
        return convert(b, "zext", value, "i1", "i32", wide)
    return i32(b, "and", value, 0xFF, wide) if dtype in ("i8", "u8") else value


def from_bits(b: Body, dtype: str, bits: str, wide: bool) -> str:
    """The value whose bits lie in the low end of an i32; what lies above is ignored."""
    if dtype == "bool":
        return i32(b, "icmp ne", bits, 0, wide)
    if dtype == "f32":
        return convert(b, "bitcast", bits, "i32", "float", wide)
    if dtype == "f16":
        short = convert(b, "trunc", bits, "i32", "i16", wide)
        half = convert(b, "bitcast", short, "i16", "half", wide)
        return convert(b, "fpext", half, "half", "float", wide)
    if dtype == "bf16":
        return convert(b, "bitcast", i32(b, "shl", bits, 16, wide), "i32", "float", wide)
    if dtype == "f8e4m3":
        return _f8e4m3_value(b, bits, wide)
    if dtype == "u8":
        return i32(b, "and", bits, 0xFF, wide)
    if dtype == "i8":
        return i32(b, "ashr", i32(b, "shl", bits, 24, wide), 24, wide)
    return bits


def rounded(b: Body, dtype: str, value: str, wide: bool) -> str:
    """An arithmetic result brought back to what its dtype can hold."""
    if dtype == "f16":
        half = convert(b, "fptrunc", value, "float", "half", wide)
        return convert(b, "fpext", half, "half", "float", wide)
    if dtype in ("bf16", "f8e4m3", "i8", "u8"):
        return from_bits(b, dtype, to_bits(b, dtype, value, wide), wide)
    return value


def from_memory(b: Body, dtype: str, value: str, wide: bool) -> str:
    """An element as it was loaded, as its register holds it."""
    kind = MEMORY[dtype]
    if dtype == "f16":
        return convert(b, "fpext", value, "half", "float", wide)
    if dtype == "bool":
        return from_bits(b, "bool", value, wide)
    if kind not in ("i8", "i16"):
        return value
    widened = convert(b, "sext" if dtype == "i8" else "zext", value, kind, "i32", wide)
    return widened if dtype in ("i8", "u8") else from_bits(b, dtype, widened, wide)


def to_memory(b: Body, dtype: str, value: str, wide: bool) -> str:
    """A register's value as an element of memory."""
    if dtype == "f16":
        return convert(b, "fptrunc", value, "float", "half", wide)
    if dtype == "bool":
        return convert(b, "zext", value, "i1", "i32", wide)
    kind = MEMORY[dtype]
    if kind in ("i8", "i16"):
        return convert(b, "trunc", to_bits(b, dtype, value, wide), "i32", kind, wide)
    return value


def to_words(b: Body, dtype: str, parts: Sequence[str], wide: bool) -> list[str]:
    """The elements as they lie in memory, as i32 words; the last is zero above what is given."""
    words: list[str] = []
    if dtype in ("i64", "u64"):
        for part in parts:
            words.append(convert(b, "trunc", part, "i64", "i32", wide))
            high = b.ins(f"lshr {b.shaped('i64', wide)} {part}, {b.integer(32, wide, 'i64')}")
            words.append(convert(b, "trunc", high, "i64", "i32", wide))
        return words
    held, size = per_word(dtype), 8 * ELEMENT_BYTES[dtype]
    for at, part in enumerate(parts):
        bits = to_bits(b, dtype, part, wide)
        if at % held == 0:
            words.append(bits)
        else:
            words[-1] = i32(b, "or", words[-1], i32(b, "shl", bits, size * (at % held), wide), wide)
    return words


def from_words(b: Body, dtype: str, lanes: int, words: Sequence[str], wide: bool) -> list[str]:
    """The first `lanes` elements that lie in the words."""
    out: list[str] = []
    if dtype in ("i64", "u64"):
        for low, high in zip(words[::2], words[1::2], strict=True):
            top = convert(b, "zext", high, "i32", "i64", wide)
            top = b.ins(f"shl {b.shaped('i64', wide)} {top}, {b.integer(32, wide, 'i64')}")
            bottom = convert(b, "zext", low, "i32", "i64", wide)
            out.append(b.ins(f"or {b.shaped('i64', wide)} {top}, {bottom}"))
        return out[:lanes]
    held = per_word(dtype)
    for at in range(lanes):
        word, shift = words[at // held], 8 * ELEMENT_BYTES[dtype] * (at % held)
        bits = i32(b, "lshr", word, shift, wide) if shift else word
        out.append(from_bits(b, dtype, bits, wide))
    return out
