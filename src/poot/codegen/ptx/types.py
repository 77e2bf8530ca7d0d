"""Between dtypes: what a register of one holds as a register of another, and as words in memory.

f16 and bf16 registers are their 16 bits and compute in f32. An f8e4m3 is its byte; it is converted
by bit arithmetic, since the instruction for it saturates where the format has NaN (and sm_80 lacks
it).
"""

from __future__ import annotations

from collections.abc import Sequence

from poot.codegen.kir.nodes import ELEMENT_BYTES
from poot.codegen.ptx.body import Body
from poot.codegen.ptx.text import KIND, as_bits

SIGNED = ("i32", "i64", "i8")
FLOATS = ("f32", "f16", "bf16", "f8e4m3")
_LETTER = {
    "f32": "f32", "f16": "f16", "bf16": "bf16", "i32": "s32", "u32": "u32", "i8": "s32",
    "u8": "u32", "i64": "s64", "u64": "u64",
}  # fmt: skip


def letter(dtype: str) -> str:
    """The instruction type of a register of the dtype."""
    return _LETTER[dtype]


def in_register(b: Body, dtype: str, value: str) -> str:
    """A literal moved to a register: conversions and copies of bits take no other."""
    if value.startswith("$"):
        return value
    kind = KIND[dtype]
    move = {"h": "mov.b16", "d": "mov.b64", "p": "mov.pred"}.get(kind, "mov.b32")
    return b.ins(move, kind, value)


def widen(b: Body, dtype: str, value: str) -> str:
    """A float register as f32: exact."""
    if dtype == "f32":
        return value
    value = in_register(b, dtype, value)
    if dtype == "f16":
        return b.ins("cvt.f32.f16", "r", value)
    if dtype == "bf16":
        return b.ins("mov.b32", "r", f"{{0, {value}}}")
    return _f8_value(b, value)


def narrow(b: Body, dtype: str, value: str) -> str:
    """An f32 register rounded to a float dtype, to nearest even."""
    if dtype == "f32":
        return value
    if dtype == "f8e4m3":
        return _f8_byte(b, value)
    return b.ins(f"cvt.rn.{dtype}.f32", "h", value)


def _f8_value(b: Body, byte: str) -> str:
    """E4M3 is an f16 with its exponent off by eight: shifted there, then scaled by 2^8."""
    size = b.ins("and.b32", "r", byte, "127")
    sign = b.ins("shl.b32", "r", b.ins("and.b32", "r", byte, "128"), "24")
    half = b.ins("cvt.u16.u32", "h", b.ins("shl.b32", "r", size, "7"))
    value = b.ins("mul.rn.f32", "r", b.ins("cvt.f32.f16", "r", half), "0f43800000")
    is_nan = b.ins("setp.eq.u32", "p", size, "127")
    value = b.ins("selp.b32", "r", "0x7FC00000", value, is_nan)
    return b.ins("or.b32", "r", value, sign)


def _f8_byte(b: Body, value: str) -> str:
    size = b.ins("and.b32", "r", as_bits(value), "0x7FFFFFFF")
    sign = b.ins("shr.u32", "r", b.ins("and.b32", "r", as_bits(value), "0x80000000"), "24")
    odd = b.ins("bfe.u32", "r", size, "20", "1")
    near = b.ins("add.s32", "r", b.ins("add.s32", "r", size, "0x7FFFF"), odd)
    normal = b.ins("sub.s32", "r", b.ins("shr.u32", "r", near, "20"), str(120 << 3))
    # Adding 2^14 rounds to multiples of 2^-9, the least number of the format.
    small = b.ins("add.rn.f32", "r", size, "0f46800000")
    small = b.ins("sub.s32", "r", small, "0x46800000")
    is_small = b.ins("setp.lt.u32", "p", size, "0x3C800000")
    bits = b.ins("selp.b32", "r", small, normal, is_small)
    is_over = b.ins("setp.gt.u32", "p", size, "0x43E80000")  # 464: halfway past the largest
    bits = b.ins("selp.b32", "r", "127", bits, is_over)
    return b.ins("or.b32", "r", bits, sign)


def wrap(b: Body, dtype: str, value: str) -> str:
    """A 32-bit integer brought back to what i8 or u8 holds."""
    if dtype == "u8":
        return b.ins("and.b32", "r", value, "255")
    if dtype == "i8":
        return b.ins("bfe.s32", "r", value, "0", "8")
    return value


def convert(b: Body, source: str, target: str, value: str) -> str:
    """A register of one dtype as a register of another, as KIR's cast has it."""
    if source == target:
        return value
    value = in_register(b, source, value)
    if source == "bool":
        return _from_bool(b, target, value)
    if target == "bool":
        return _to_bool(b, source, value)
    if source in FLOATS and target in FLOATS:
        return narrow(b, target, widen(b, source, value))
    if source in FLOATS:
        wide = target if KIND[target] == "d" else ("i32" if target in ("i32", "i8") else "u32")
        if target == "u8":
            wide = "i32"
        number = widen(b, source, value)
        made = b.ins(f"cvt.rzi.{letter(wide)}.f32", KIND[wide], number)
        return wrap(b, target, made)
    if target in FLOATS:
        if target == "f16" and KIND[source] == "r":
            return b.ins(f"cvt.rn.f16.{letter(source)}", "h", value)
        return narrow(b, target, b.ins(f"cvt.rn.f32.{letter(source)}", "r", value))
    return _integer(b, source, target, value)


def _from_bool(b: Body, target: str, value: str) -> str:
    if target in ("f16", "bf16"):
        return b.ins("selp.b16", "h", "0x3C00" if target == "f16" else "0x3F80", "0", value)
    if target == "f32":
        return b.ins("selp.f32", "r", "0f3F800000", "0f00000000", value)
    if target == "f8e4m3":
        return b.ins("selp.b32", "r", "0x38", "0", value)
    kind = KIND[target]
    return b.ins("selp.b64" if kind == "d" else "selp.b32", kind, "1", "0", value)


def _to_bool(b: Body, source: str, value: str) -> str:
    if source in FLOATS:
        return b.ins("setp.neu.f32", "p", widen(b, source, value), "0f00000000")
    return b.ins(f"setp.ne.{letter(source)}", "p", value, "0")


def _integer(b: Body, source: str, target: str, value: str) -> str:
    if KIND[source] == KIND[target]:
        return wrap(b, target, value)
    if KIND[target] == "d":
        return b.ins(f"cvt.{'s' if source in SIGNED else 'u'}64.{letter(source)}", "d", value)
    return wrap(b, target, b.ins("cvt.u32.u64", "r", value))


def to_words(b: Body, dtype: str, lanes: Sequence[str]) -> list[str]:
    """The lanes as they lie in memory, as b32 words; what is over in the last is zero."""
    size = ELEMENT_BYTES[dtype]
    if dtype == "bool":
        return [b.ins("selp.b32", "r", "1", "0", lane) for lane in lanes]
    if size == 4:
        return [as_bits(lane) for lane in lanes]
    if size == 8:
        return [word for lane in lanes for word in _split(b, lane)]
    if size == 2:
        pairs = zip(lanes[::2], [*lanes[1::2], *(["0"] if len(lanes) % 2 else [])], strict=True)
        return [b.ins("mov.b32", "r", f"{{{low}, {high}}}") for low, high in pairs]
    words: list[str] = []
    for at, lane in enumerate(lanes):
        if at % 4 == 0:
            words.append(b.ins("and.b32", "r", lane, "255"))
        else:
            words[-1] = b.ins("bfi.b32", "r", lane, words[-1], str(8 * (at % 4)), "8")
    return words


def _split(b: Body, value: str) -> tuple[str, str]:
    low, high = b.temp("r"), b.temp("r")
    b.do(f"mov.b64 {{{low}, {high}}}, {in_register(b, 'i64', value)}")
    return low, high


def from_words(b: Body, dtype: str, lanes: int, words: Sequence[str]) -> list[str]:
    """The first `lanes` elements that lie in the words."""
    size = ELEMENT_BYTES[dtype]
    if dtype == "bool":
        return [b.ins("setp.ne.b32", "p", word, "0") for word in words][:lanes]
    if size == 4:
        return list(words)[:lanes]
    if size == 8:
        pairs = zip(words[::2], words[1::2], strict=True)
        return [b.ins("mov.b64", "d", f"{{{low}, {high}}}") for low, high in pairs][:lanes]
    out: list[str] = []
    for word in words:
        if size == 2:
            low, high = b.temp("h"), b.temp("h")
            b.do(f"mov.b32 {{{low}, {high}}}, {word}")
            out += [low, high]
        else:
            take = "bfe.s32" if dtype == "i8" else "bfe.u32"
            count = min(4, lanes - len(out))
            out += [b.ins(take, "r", word, str(8 * at), "8") for at in range(count)]
    return out[:lanes]
