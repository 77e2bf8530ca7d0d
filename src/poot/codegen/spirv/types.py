"""Between registers and u32 words: how each dtype lies in a word, and rounding to narrow floats.

Rounding is to nearest even by integer arithmetic, since SPIR-V leaves a conversion's rounding to
the driver. f16 reads go through UnpackHalf2x16, which needs no capability.
"""

from __future__ import annotations

from collections.abc import Sequence

from poot.codegen.kir.nodes import ELEMENT_BYTES
from poot.codegen.spirv.body import Body


def per_word(dtype: str) -> int:
    """Elements a u32 word holds: 1 from 32 bits up."""
    return max(1, 4 // ELEMENT_BYTES[dtype])


def _round_shifted(b: Body, bits: int, drop: int, rebias: int) -> int:
    """bits + rebias, its low `drop` bits rounded away to nearest even."""
    odd = b.u32("OpShiftRightLogical", bits, b.const("u32", drop))
    odd = b.u32("OpBitwiseAnd", odd, b.const("u32", 1))
    half = b.const("u32", rebias + (1 << (drop - 1)) - 1)
    up = b.u32("OpIAdd", b.u32("OpIAdd", bits, half), odd)
    return b.u32("OpShiftRightLogical", up, b.const("u32", drop))


def _magnitude(b: Body, value: int) -> tuple[int, int]:
    """The f32's bits without their sign, and the sign bit in place."""
    bits = b.cast_bits("u32", value)
    return (
        b.u32("OpBitwiseAnd", bits, b.const("u32", 0x7FFFFFFF)),
        b.u32("OpBitwiseAnd", bits, b.const("u32", 0x80000000)),
    )


def _compare(b: Body, name: str, bits: int, bound: int) -> int:
    return b.ins(name, b.type("bool"), bits, b.const("u32", bound))


def _small(b: Body, magnitude: int, anchor: float, anchor_bits: int) -> int:
    """Subnormal bits: adding the anchor, whose ulp is the narrow dtype's unit, rounds them."""
    value = b.cast_bits("f32", magnitude)
    anchored = b.ins("OpFAdd", b.type("f32"), value, b.const("f32", anchor))
    return b.u32("OpISub", b.cast_bits("u32", anchored), b.const("u32", anchor_bits))


def _f16_bits(b: Body, value: int) -> int:
    magnitude, sign = _magnitude(b, value)
    normal = _round_shifted(b, magnitude, 13, -(112 << 23))
    small = _small(b, magnitude, 0.5, 0x3F000000)
    is_nan = _compare(b, "OpUGreaterThan", magnitude, 0x7F800000)
    special = b.select("u32", is_nan, b.const("u32", 0x7E00), b.const("u32", 0x7C00))
    is_special = _compare(b, "OpUGreaterThanEqual", magnitude, 0x47800000)
    bits = b.select("u32", is_special, special, normal)
    bits = b.select("u32", _compare(b, "OpULessThan", magnitude, 0x38800000), small, bits)
    return b.u32("OpBitwiseOr", bits, b.u32("OpShiftRightLogical", sign, b.const("u32", 16)))


def _bf16_bits(b: Body, value: int) -> int:
    bits = b.cast_bits("u32", value)
    magnitude, _ = _magnitude(b, value)
    is_nan = _compare(b, "OpUGreaterThan", magnitude, 0x7F800000)
    kept = b.u32("OpShiftRightLogical", bits, b.const("u32", 16))
    quiet = b.u32("OpBitwiseOr", kept, b.const("u32", 0x40))
    return b.select("u32", is_nan, quiet, _round_shifted(b, bits, 16, 0))


def _f8e4m3_bits(b: Body, value: int) -> int:
    magnitude, sign = _magnitude(b, value)
    normal = _round_shifted(b, magnitude, 20, -(120 << 23))
    is_over = _compare(b, "OpUGreaterThan", magnitude, 0x43E80000)
    bits = b.select("u32", is_over, b.const("u32", 0x7F), normal)
    small = _small(b, magnitude, 16384.0, 0x46800000)
    bits = b.select("u32", _compare(b, "OpULessThan", magnitude, 0x3C800000), small, bits)
    return b.u32("OpBitwiseOr", bits, b.u32("OpShiftRightLogical", sign, b.const("u32", 24)))


def _f8e4m3_value(b: Body, byte: int) -> int:
    low = b.u32("OpBitwiseAnd", byte, b.const("u32", 0x7F))
    sign = b.u32("OpBitwiseAnd", byte, b.const("u32", 0x80))
    wide = b.u32("OpShiftLeftLogical", low, b.const("u32", 20))
    normal = b.u32("OpIAdd", wide, b.const("u32", 120 << 23))
    unit = b.const("f32", 2.0**-9)
    small = b.ins("OpFMul", b.type("f32"), b.ins("OpConvertUToF", b.type("f32"), low), unit)
    is_small = _compare(b, "OpULessThan", low, 8)
    bits = b.select("u32", is_small, b.cast_bits("u32", small), normal)
    is_nan = _compare(b, "OpIEqual", low, 0x7F)
    bits = b.select("u32", is_nan, b.const("u32", 0x7FC00000), bits)
    sign = b.u32("OpShiftLeftLogical", sign, b.const("u32", 24))
    return b.cast_bits("f32", b.u32("OpBitwiseOr", bits, sign))


_FLOAT_BITS = {"f16": _f16_bits, "bf16": _bf16_bits, "f8e4m3": _f8e4m3_bits}


def to_bits(b: Body, dtype: str, value: int) -> int:
    """A register lane's bits in the low end of a u32, zeros above. Up to 32 bits."""
    if dtype in _FLOAT_BITS:
        return _FLOAT_BITS[dtype](b, value)
    if dtype == "u32":
        return value
    if dtype == "bool":
        return b.select("u32", value, b.const("u32", 1), b.const("u32", 0))
    bits = value if dtype == "u8" else b.cast_bits("u32", value)
    return b.u32("OpBitwiseAnd", bits, b.const("u32", 0xFF)) if dtype in ("i8", "u8") else bits


def from_bits(b: Body, dtype: str, bits: int) -> int:
    """The lane whose bits lie in the low end of a u32; what lies above is ignored."""
    if dtype == "u32":
        return bits
    if dtype == "bool":
        return b.ins("OpINotEqual", b.type("bool"), bits, b.const("u32", 0))
    if dtype == "f16":
        pair = b.ext("UnpackHalf2x16", b.vector_type("f32", 2), bits)
        return b.ins("OpCompositeExtract", b.type("f32"), pair, 0)
    if dtype == "bf16":
        return b.cast_bits("f32", b.u32("OpShiftLeftLogical", bits, b.const("u32", 16)))
    if dtype == "f8e4m3":
        return _f8e4m3_value(b, bits)
    if dtype == "u8":
        return b.u32("OpBitwiseAnd", bits, b.const("u32", 0xFF))
    if dtype == "i8":
        high = b.cast_bits("i32", b.u32("OpShiftLeftLogical", bits, b.const("u32", 24)))
        return b.ins("OpShiftRightArithmetic", b.type("i32"), high, b.const("u32", 24))
    return b.cast_bits(dtype, bits)


def rounded(b: Body, dtype: str, value: int) -> int:
    """An arithmetic result brought back to what its dtype can hold."""
    if dtype in ("f16", "bf16", "f8e4m3", "i8", "u8"):
        return from_bits(b, dtype, to_bits(b, dtype, value))
    return value


def to_words(b: Body, dtype: str, lanes: Sequence[int]) -> list[int]:
    """The lanes as they lie in memory, as u32 words; the last is zero above what is given."""
    if dtype in ("i64", "u64"):
        return [word for lane in lanes for word in _split_wide(b, dtype, lane)]
    held, size = per_word(dtype), 8 * min(4, ELEMENT_BYTES[dtype])
    words: list[int] = []
    for at, lane in enumerate(lanes):
        bits = to_bits(b, dtype, lane)
        if at % held == 0:
            words.append(bits)
        else:
            high = b.u32("OpShiftLeftLogical", bits, b.const("u32", size * (at % held)))
            words[-1] = b.u32("OpBitwiseOr", words[-1], high)
    return words


def from_words(b: Body, dtype: str, lanes: int, words: Sequence[int]) -> list[int]:
    """The first `lanes` elements that lie in the words."""
    if dtype in ("i64", "u64"):
        pairs = zip(words[::2], words[1::2], strict=True)
        return [_join_wide(b, dtype, low, high) for low, high in pairs][:lanes]
    return [lane for word in words for lane in _lanes_of(b, dtype, word)][:lanes]


def _lanes_of(b: Body, dtype: str, word: int) -> list[int]:
    if dtype == "f16":
        pair = b.ext("UnpackHalf2x16", b.vector_type("f32", 2), word)
        return [b.ins("OpCompositeExtract", b.type("f32"), pair, at) for at in (0, 1)]
    if dtype == "bf16":
        high = b.u32("OpBitwiseAnd", word, b.const("u32", 0xFFFF0000))
        return [from_bits(b, dtype, word), b.cast_bits("f32", high)]
    held = per_word(dtype)
    out = [from_bits(b, dtype, word)]
    for at in range(1, held):
        shift = b.const("u32", 32 // held * at)
        out.append(from_bits(b, dtype, b.u32("OpShiftRightLogical", word, shift)))
    return out


def _split_wide(b: Body, dtype: str, value: int) -> tuple[int, int]:
    wide = value if dtype == "u64" else b.cast_bits("u64", value)
    high = b.ins("OpShiftRightLogical", b.type("u64"), wide, b.const("u32", 32))
    return b.u32("OpUConvert", wide), b.u32("OpUConvert", high)


def _join_wide(b: Body, dtype: str, low: int, high: int) -> int:
    wide = b.type("u64")
    top = b.ins("OpUConvert", wide, high)
    top = b.ins("OpShiftLeftLogical", wide, top, b.const("u32", 32))
    joined = b.ins("OpBitwiseOr", wide, top, b.ins("OpUConvert", wide, low))
    return joined if dtype == "u64" else b.ins("OpBitcast", b.type(dtype), joined)
