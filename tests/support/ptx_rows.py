"""What each PTX instruction that poot emits does to the bits of its operands, in numpy.

A row gets operand arrays as unsigned words of the instruction's width and gives the result's.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

Words = np.ndarray
Row = Callable[..., Words]
WORD = {"b16": np.uint16, "b32": np.uint32, "b64": np.uint64, "pred": np.bool_}
VIEW = {
    "f32": np.float32, "s32": np.int32, "u32": np.uint32, "b32": np.uint32, "s64": np.int64,
    "u64": np.uint64, "b64": np.uint64, "f16": np.float16, "u16": np.uint16, "b16": np.uint16,
    "s16": np.int16,
}  # fmt: skip


def _typed(fn: Row, kind: str, result: str = "") -> Row:
    """fn over operands seen as `kind`, the result's bits kept."""
    view, out = VIEW[kind], VIEW[result or kind]

    def row(*words: Words) -> Words:
        got = np.asarray(fn(*(w.view(view) for w in words)))
        return got.astype(out, copy=False).view(np.dtype(f"u{out().itemsize}"))

    return row


def _mulhi(a: Words, b: Words) -> Words:
    wide = np.int64 if a.dtype == np.int32 else np.uint64
    return (a.astype(wide) * b.astype(wide) >> wide(32)).astype(a.dtype)


def _truncdiv(a: Words, b: Words) -> Words:
    assert (b != 0).all(), "division by zero"
    rest = np.fmod(a, b)
    return (a - rest) // b


def _shift_left(a: Words, n: Words) -> Words:
    bits = a.dtype.itemsize * 8
    n = n.astype(np.uint64)
    return np.where(n < bits, a << np.minimum(n, bits - 1).astype(a.dtype), 0).astype(a.dtype)


def _shift_right(a: Words, n: Words) -> Words:
    bits = a.dtype.itemsize * 8
    over = np.minimum(n.astype(np.uint64), bits - 1).astype(a.dtype)
    return np.where(n < bits, a >> over, a >> (bits - 1) if a.dtype.kind == "i" else 0)


def _fma(a: Words, b: Words, c: Words) -> Words:
    return (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(np.float32)


def _bfe(signed: bool) -> Row:
    def row(a: Words, at: Words, count: Words) -> Words:
        field = a >> at & ((np.uint32(1) << count) - np.uint32(1))
        if not signed:
            return field
        top = np.uint32(1) << (count - np.uint32(1))
        return (field ^ top) - top

    return row


def _bfi(a: Words, b: Words, at: Words, count: Words) -> Words:
    mask = ((np.uint32(1) << count) - np.uint32(1)) << at
    return (b & ~mask) | (a << at & mask)


def _to_int(kind: str) -> Row:
    info = np.iinfo(VIEW[kind])

    def row(a: Words) -> Words:
        whole = np.trunc(np.nan_to_num(a.view(np.float32), nan=0.0)).astype(np.float64)
        inside = np.clip(whole, float(info.min), float(info.max))
        top = whole >= float(info.max)
        low = np.where(top, 0, inside).astype(VIEW[kind])
        return np.where(top, info.max, low).astype(VIEW[kind]).view(np.dtype(f"u{info.bits // 8}"))

    return row


def _bf16(a: Words) -> Words:
    bits = a.view(np.uint32)
    up = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(nan, np.uint32(0x7FFF), up).astype(np.uint16)


def _f16(a: Words) -> Words:
    return a.view(np.float32).astype(np.float16).view(np.uint16)


def _pairs(half: Row) -> Row:
    """cvt.rn.{f16,bf16}x2.f32 d, high, low."""

    def row(high: Words, low: Words) -> Words:
        return half(high).astype(np.uint32) << np.uint32(16) | half(low).astype(np.uint32)

    return row


def _prmt(a: Words, b: Words, picked: Words) -> Words:
    """Four bytes of the eight, each named by four bits; no sign is spread."""
    both = np.stack([x >> np.uint32(8 * n) & np.uint32(255) for x in (a, b) for n in range(4)])
    out = np.zeros_like(a)
    for n in range(4):
        which = (picked >> np.uint32(4 * n) & np.uint32(7)).astype(np.int64)
        out |= np.take_along_axis(both, which[None], 0)[0] << np.uint32(8 * n)
    return out


def _halves_apart(fn: Row) -> Row:
    """fn over the two f16 of a word."""

    def row(*words: Words) -> Words:
        halves = [np.ascontiguousarray(w).view(np.float16) for w in words]
        return np.asarray(fn(*halves)).astype(np.float16).view(np.uint32)

    return row


def _of_e4m3(a: Words) -> Words:
    codes = a.astype(np.uint16).view(np.uint8).view(ml_dtypes.float8_e4m3fn)
    return codes.astype(np.float16).view(np.uint32)


def _cvt(to: str, source: str) -> Row:
    def row(a: Words) -> Words:
        got = a.view(VIEW[source]).astype(VIEW[to])
        return got.view(np.dtype(f"u{VIEW[to]().itemsize}"))

    return row


_COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "neu": np.not_equal,
}  # fmt: skip
ROWS: dict[str, Row] = {
    "fma.rn.f32": _typed(_fma, "f32"),
    "div.full.f32": _typed(np.true_divide, "f32"),
    "sqrt.approx.f32": _typed(np.sqrt, "f32"),
    "rsqrt.approx.f32": _typed(lambda a: (1 / np.sqrt(a.astype(np.float64))), "f32"),
    "rcp.approx.f32": _typed(lambda a: np.float32(1) / a, "f32"),
    "ex2.approx.ftz.f32": _typed(np.exp2, "f32"),
    "lg2.approx.f32": _typed(np.log2, "f32"),
    "min.f32": _typed(np.fmin, "f32"),
    "max.f32": _typed(np.fmax, "f32"),
    "min.NaN.f32": _typed(np.minimum, "f32"),
    "max.NaN.f32": _typed(np.maximum, "f32"),
    "neg.f32": _typed(np.negative, "f32"),
    "abs.f32": _typed(np.abs, "f32"),
    "cvt.rmi.f32.f32": _typed(np.floor, "f32"),
    "cvt.rni.f32.f32": _typed(np.rint, "f32"),
    "cvt.rn.bf16.f32": _bf16,
    "cvt.rn.f16.f32": _f16,
    "cvt.rn.bf16x2.f32": _pairs(_bf16),
    "cvt.rn.f16x2.f32": _pairs(_f16),
    "prmt.b32": _prmt,
    "sub.rn.f16x2": _halves_apart(np.subtract),
    "cvt.rn.f16x2.e4m3x2": _of_e4m3,
    "bfe.u32": _bfe(False),
    "bfe.s32": _bfe(True),
    "bfi.b32": _bfi,
    "not.pred": np.logical_not,
    "and.pred": np.logical_and,
    "or.pred": np.logical_or,
    "xor.pred": np.logical_xor,
    "and.b16": np.bitwise_and,
    **{f"{op}.rn.f32": _typed(fn, "f32") for op, fn in
       (("add", np.add), ("sub", np.subtract), ("mul", np.multiply))},
    **{f"cvt.rzi.{k}.f32": _to_int(k) for k in ("s32", "u32", "s64", "u64")},
    **{f"cvt.rn.{f}.{k}": _cvt(f, k) for f in ("f32", "f16") for k in ("s32", "u32")},
    **{f"cvt.rn.f32.{k}": _cvt("f32", k) for k in ("s64", "u64")},
    **{f"cvt.{a}.{b}": _cvt(a, b) for a, b in
       (("f32", "f16"), ("u16", "u32"), ("u32", "u16"), ("u32", "u64"), ("u64", "u32"),
        ("s64", "s32"), ("u64", "s32"), ("s64", "u32"))},
}  # fmt: skip
for _k in ("s32", "u32", "s64", "u64"):
    ROWS |= {
        f"add.{_k}": _typed(np.add, _k),
        f"sub.{_k}": _typed(np.subtract, _k),
        f"mul.lo.{_k}": _typed(np.multiply, _k),
        f"mad.lo.{_k}": _typed(lambda a, b, c: a * b + c, _k),
        f"div.{_k}": _typed(_truncdiv, _k),
        f"rem.{_k}": _typed(np.fmod, _k),
        f"min.{_k}": _typed(np.minimum, _k),
        f"max.{_k}": _typed(np.maximum, _k),
        f"neg.{_k}": _typed(np.negative, _k),
        f"abs.{_k}": _typed(np.abs, _k),
        f"mul.hi.{_k}": _typed(_mulhi, _k),
        f"shr.{_k}": lambda a, n, view=VIEW[_k]: (
            _shift_right(a.view(view), n).astype(view).view(a.dtype)
        ),
    }
for _b in ("b32", "b64"):
    ROWS |= {
        f"and.{_b}": np.bitwise_and,
        f"or.{_b}": np.bitwise_or,
        f"xor.{_b}": np.bitwise_xor,
        f"not.{_b}": np.invert,
        f"shl.{_b}": _shift_left,
    }
for _name, _fn in _COMPARE.items():
    for _k in ("s32", "u32", "s64", "u64", "f32", "u16", "b32"):
        ROWS[f"setp.{_name}.{_k}"] = lambda a, b, fn=_fn, view=VIEW[_k]: fn(
            a.view(view), b.view(view)
        )


def source_bits(op: str) -> str:
    """The register class of an instruction's source operands, which immediates take."""
    last = op.split(".")[-1]
    if last == "e4m3x2":
        return "b16"
    if last in ("pred", "b16", "u16", "s16", "f16"):
        return "pred" if last == "pred" else "b16"
    return "b64" if last.endswith("64") else "b32"
