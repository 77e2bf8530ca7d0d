"""What values are in registers: their types, rounding to 16 and 8 bits, casts, and their bits.

f32, f16, bf16 and f8e4m3 are held as f32 (a narrow one is always a number its dtype has), i8
and i32 as i32, u8 and u32 as u32, bool as bool. An op on a narrow dtype computes in f32 and
rounds once.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.math import NAN_BITS, SIGN, bits, nan, trunc
from poot.codegen.kir.build import BOOL, F32, I32, U32, KernelBuilder, Val
from poot.codegen.kir.nodes import Ty
from poot.ir.dtypes import DTYPES, is_float
from poot.limits import DeviceLimits

_HELD = {"float": F32, "int": I32, "uint": U32, "bool": BOOL}


def held(dtype: str) -> Ty:
    """The register type of a dtype."""
    return _HELD[DTYPES[dtype].kind]


@dataclass(frozen=True, slots=True)
class Narrow:
    """A float dtype narrower than f32: mantissa bits, exponent of the least normal, largest finite
    value."""

    nbits: int
    mantissa: int
    least: int
    largest: float
    has_inf: bool


# IEEE 754 binary16; bfloat16 (the upper half of f32); OCP 8-bit floating point specification, E4M3.
NARROW = {
    "f16": Narrow(16, 10, -14, 65504.0, True),
    "bf16": Narrow(16, 7, -126, 3.3895313892515355e38, True),
    "f8e4m3": Narrow(8, 3, -6, 448.0, False),
}


@dataclass(frozen=True, slots=True)
class Numbers:
    """Number formats in one kernel. `native` dtypes are rounded and packed by the target's own
    casts."""

    k: KernelBuilder
    native: frozenset[str]

    def rounded(self, x: Val, dtype: str) -> Val:
        """An f32 register rounded to the nearest number of a float dtype, ties to even."""
        k = self.k
        if dtype == "f32":
            return x
        if dtype in self.native:
            return k.cast(k.cast(x, dtype), "f32")
        form = NARROW[dtype]
        word = bits(k, x)
        drop = 23 - form.mantissa
        up = word + ((word >> drop) & 1) + ((1 << (drop - 1)) - 1)
        near = k.bitcast(up & (0xFFFFFFFF << drop & 0xFFFFFFFF), F32)
        size = k.bitcast(word & 0x7FFFFFFF, F32)
        if form.least > -126:
            step = 2.0 ** (form.mantissa - form.least)
            near = k.select(size < 2.0**form.least, k.op("rint", x * step) * (1.0 / step), near)
        if form.has_inf:
            if dtype != "bf16":
                endless = k.bitcast((word & SIGN) | 0x7F800000, F32)
                near = k.select(k.op("abs", near) > form.largest, endless, near)
            return k.select(k.op("isnan", x), x, near)
        bad = k.op("or", k.op("isnan", x), k.op("abs", near) > form.largest)
        return k.select(bad, nan(k), near)

    def to_bits(self, x: Val, dtype: str) -> Val:
        """The dtype's bits, in the low end of a u32, of one of its numbers."""
        k = self.k
        if dtype in ("i8", "u8"):
            return k.bitcast(x, U32) & 0xFF
        if dtype == "bool":
            return k.cast(x, "u32")
        if dtype not in NARROW:
            return k.bitcast(x, U32)
        word = bits(k, x)
        if dtype == "bf16":
            return k.select(k.op("isnan", x), k.lit(0x7FC0, U32), word >> 16)
        form = NARROW[dtype]
        drop = 23 - form.mantissa
        size = word & 0x7FFFFFFF
        normal = (size - ((form.least + 126) << 23)) >> drop
        is_tiny = size < ((form.least + 127) << 23)
        small = k.select(is_tiny, k.bitcast(size, F32), k.lit(0.0))
        value = k.select(
            is_tiny, k.cast(small * 2.0 ** (form.mantissa - form.least), "u32"), normal
        )
        top = 0x7C00 if form.has_inf else 0x7F
        if form.has_inf:
            value = k.select(size >= 0x7F800000, k.lit(top, U32), value)
            top = 0x7E00
        value = k.select(size > 0x7F800000, k.lit(top, U32), value)
        return value | ((word >> 31) << (form.nbits - 1))

    def from_bits(self, word: Val, dtype: str) -> Val:
        """The register that a dtype's bits, in the low end of a u32 with zeros above, stand for."""
        k = self.k
        if dtype == "i8":
            return (k.bitcast(word, I32) << 24) >> 24
        if dtype == "bool":
            return word.ne(0)
        if dtype not in NARROW:
            return k.bitcast(word, held(dtype))
        if dtype == "bf16":
            return k.bitcast(word << 16, F32)
        form = NARROW[dtype]
        size = word & ((1 << (form.nbits - 1)) - 1)
        drop = 23 - form.mantissa
        normal = k.bitcast((size << drop) + ((form.least + 126) << 23), F32)
        tiny = k.cast(size, "f32") * 2.0 ** (form.least - form.mantissa)
        value = k.select(size < (1 << form.mantissa), tiny, normal)
        if form.has_inf:
            value = k.select(size >= 0x7C00, k.bitcast((size << 13) | 0x7F800000, F32), value)
        else:
            value = k.select(size.eq(0x7F), k.bitcast(k.lit(NAN_BITS, U32), F32), value)
        return k.bitcast(bits(k, value) | ((word >> (form.nbits - 1)) << 31), F32)

    def cast(self, x: Val, source: str, target: str) -> Val:
        """A value of one dtype as another: floats round to even; float to integer truncates and
        saturates, NaN gives 0; integers wrap; to bool is x != 0."""
        k = self.k
        if source == target:
            return x
        if target == "bool":
            return x.ne(0)
        if source == "bool":
            return k.cast(x, held(target).dtype)
        if is_float(target):
            wide = x if is_float(source) else k.cast(x, "f32")
            return wide if _is_wider(source, target) else self.rounded(wide, target)
        if is_float(source):
            return self._float_to_int(x, target)
        word = k.bitcast(x, U32)
        if target in ("i8", "u8") and source != target:
            return self.from_bits(word & 0xFF, target)
        return k.bitcast(word, held(target))

    def _float_to_int(self, x: Val, target: str) -> Val:
        k = self.k
        kind = held(target)
        lowest, highest = _RANGE[target]
        safe_high = float(highest) if highest < 1 << 24 else _BELOW[target]
        is_nan = k.op("isnan", x)
        clamped = k.op(
            "min", k.op("max", k.select(is_nan, k.lit(0.0), x), float(lowest)), safe_high
        )
        value = k.cast(trunc(k, clamped), kind.dtype)
        if highest >= 1 << 24:
            value = k.select(x >= float(highest), k.lit(highest, kind), value)
        return value

    def bitcast(self, x: Val, source: str, target: str) -> Val:
        """The same bits under another dtype of the same size."""
        if DTYPES[source].nbytes == 4:
            return self.k.bitcast(x, held(target))
        return self.from_bits(self.to_bits(x, source), target)


_RANGE = {
    "i32": (-(1 << 31), (1 << 31) - 1),
    "u32": (0, (1 << 32) - 1),
    "i8": (-128, 127),
    "u8": (0, 255),
}
# The largest f32 below 2^31 and below 2^32.
_BELOW = {"i32": 2147483520.0, "u32": 4294967040.0}
_FINER = {"f16": ("f8e4m3",), "bf16": ("f8e4m3",), "f32": ("f16", "bf16", "f8e4m3"), "f8e4m3": ()}


def _is_wider(source: str, target: str) -> bool:
    """Every number of source is one of target."""
    return source in _FINER[target] or (target == "f32" and source in ("i8", "u8"))


def natives(limits: DeviceLimits) -> frozenset[str]:
    """The narrow float dtypes whose casts and storage the target has itself."""
    if limits.target != "spirv":
        return frozenset({"f16", "bf16"})
    return frozenset({"f16"}) if limits.has_f16_storage else frozenset()
