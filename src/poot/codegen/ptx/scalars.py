"""Rows that do one element at a time: arithmetic, bits, comparisons.

Sources of the error bounds: PTX ISA, `div.full` (2 ulp), `sqrt.approx` (2^-23), `rsqrt.approx`
(2^-22.9), `rcp.approx` (1 ulp), `ex2.approx` and `lg2.approx` (2^-22). add, sub and mul are `.rn`:
without it ptxas may contract a product and a sum.
"""

from __future__ import annotations

from poot.codegen.ptx.body import Body
from poot.codegen.ptx.rows import Scalar, by_kind, floats, in_f32
from poot.codegen.ptx.text import KIND, as_bits
from poot.codegen.ptx.types import FLOATS, letter, widen
from poot.errors import DtypeLowering


def extreme(name: str, nan: str = "") -> Scalar:
    return by_kind(float_op=f"{name}{nan}.f32", int_op="" if nan else name)


def _abs(b: Body, dtype: str, names: list[str]) -> str:
    if dtype in ("u32", "u64"):
        return names[0]
    return by_kind("abs.f32", "abs")(b, dtype, names)


def _is_nan(b: Body, dtype: str, names: list[str]) -> str:
    if in_f32(dtype):
        size = b.ins("and.b16", "h", names[0], "0x7FFF")
        return b.ins("setp.gt.u16", "p", size, "0x7C00" if dtype == "f16" else "0x7F80")
    size = b.ins("and.b32", "r", as_bits(names[0]), "0x7FFFFFFF")
    return b.ins("setp.gt.u32", "p", size, "0x7F800000")


def _not(b: Body, dtype: str, names: list[str]) -> str:
    return by_kind(bits_op="not", bool_op="not")(b, dtype, names)


def shift(left: bool) -> Scalar:
    def scalar(b: Body, dtype: str, names: list[str]) -> str:
        kind, amount = KIND[dtype], names[1]
        if kind == "d" and amount.startswith("$"):
            amount = b.ins("cvt.u32.u64", "r", amount)
        op = f"shl.b{64 if kind == 'd' else 32}" if left else f"shr.{letter(dtype)}"
        return b.ins(op, kind, names[0], amount)

    return scalar


def compare(test: str) -> Scalar:
    """`!=` is true with NaN, every other comparison false."""

    def scalar(b: Body, dtype: str, names: list[str]) -> str:
        if KIND[dtype] == "p":
            if test not in ("eq", "ne"):
                raise DtypeLowering(f"ptx has no order of bools: {test}")
            differs = b.ins("xor.pred", "p", *names)
            return differs if test == "ne" else b.ins("not.pred", "p", differs)
        if dtype in FLOATS:
            of_floats = "neu" if test == "ne" else test
            return b.ins(f"setp.{of_floats}.f32", "p", *(widen(b, dtype, x) for x in names))
        return b.ins(f"setp.{test}.{letter(dtype)}", "p", *names)

    return scalar


def select(b: Body, dtype: str, cond: str, first: str, second: str) -> str:
    kind = KIND[dtype]
    if kind == "p":
        yes = b.ins("and.pred", "p", cond, first)
        no = b.ins("and.pred", "p", b.ins("not.pred", "p", cond), second)
        return b.ins("or.pred", "p", yes, no)
    op = {"h": "selp.b16", "d": "selp.b64"}.get(kind, "selp.b32")
    return b.ins(op, kind, as_bits(first), as_bits(second), cond)


FOLDS: dict[str, Scalar] = {
    "add": by_kind("add.rn.f32", "add"),
    "max": extreme("max"),
    "min": extreme("min"),
}
SCALARS: dict[str, Scalar] = {
    "add": FOLDS["add"],
    "sub": by_kind("sub.rn.f32", "sub"),
    "mul": by_kind("mul.rn.f32", "mul.lo"),
    "mulhi": by_kind(int_op="mul.hi"),
    "div": by_kind("div.full.f32", "div"),
    "rem": by_kind(int_op="rem"),
    "fma": floats("fma.rn.f32"),
    "neg": by_kind("neg.f32", "neg"),
    "abs": _abs,
    "min": FOLDS["min"],
    "max": FOLDS["max"],
    "nanmin": extreme("min", ".NaN"),
    "nanmax": extreme("max", ".NaN"),
    "floor": floats("cvt.rmi.f32.f32"),
    "rint": floats("cvt.rni.f32.f32"),
    "sqrt": floats("sqrt.approx.f32"),
    "rsqrt": floats("rsqrt.approx.f32"),
    "rcp": floats("rcp.approx.f32"),
    "exp2": floats("ex2.approx.ftz.f32"),
    "log2": floats("lg2.approx.f32"),
    "isnan": _is_nan,
    "and": by_kind(bits_op="and", bool_op="and"),
    "or": by_kind(bits_op="or", bool_op="or"),
    "xor": by_kind(bits_op="xor", bool_op="xor"),
    "not": _not,
    "shl": shift(True),
    "shr": shift(False),
    "eq": compare("eq"),
    "ne": compare("ne"),
    "lt": compare("lt"),
    "le": compare("le"),
    "gt": compare("gt"),
    "ge": compare("ge"),
}
