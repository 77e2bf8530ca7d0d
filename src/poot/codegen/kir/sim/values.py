"""What each arithmetic op does to numpy values. Floats keep their own precision: no step is wider
than f32, and the 16-bit ones are computed in f32 and rounded after each op.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from poot.codegen.kir.nodes import Ins, Lit, Token, Ty, Type
from poot.codegen.kir.sim.wave import Bools, Value, Wave
from poot.ir.dtypes import DTYPES

NUMPY: dict[str, np.dtype[np.generic]] = {
    **{d.name: d.numpy for d in DTYPES.values()},
    "i64": np.dtype(np.int64),
    "u64": np.dtype(np.uint64),
}
SHORT = ("f16", "bf16", "f8e4m3")
FLOATS = ("f32", *SHORT)
Fn = Callable[..., Value]
# What runs in a wave: it may refuse values that the op leaves undefined.
Checked = Callable[[Wave, Ins, tuple[Value, ...]], Value]
F32 = np.dtype(np.float32)


def dtype_of(type: Type) -> str:
    assert not isinstance(type, Token), type
    return type.dtype


def constant(lit: Lit) -> Value:
    """A literal as a numpy scalar of its dtype, or [elements, 1] of a vector; integers wrap, as the
    words they are.
    """
    number = _number(lit)
    return number if lit.type.lanes == 1 else np.full((lit.type.lanes, 1), number)


def _number(lit: Lit) -> Value:
    kind = NUMPY[lit.type.dtype]
    if lit.type.dtype in FLOATS:
        return cast(
            "Value", np.float32(lit.value).astype(kind)
        )  # a numpy scalar is used as an array of no axes
    if lit.type.dtype == "bool":
        return cast("Value", np.bool_(lit.value))  # as above
    bits = kind.itemsize * 8
    word = int(lit.value) & ((1 << bits) - 1)
    wrapped = word - (1 << bits) if kind.kind == "i" and word >> (bits - 1) else word
    return cast("Value", kind.type(wrapped))  # as above


def _fma(a: Value, b: Value, c: Value) -> Value:
    return np.add(np.multiply(a, b), c)


def _rcp(a: Value) -> Value:
    return np.true_divide(np.float32(1), a)


def _rsqrt(a: Value) -> Value:
    return np.true_divide(np.float32(1), np.sqrt(a))


def _mulhi(a: Value, b: Value) -> Value:
    product = np.multiply(a.astype(np.uint64), b.astype(np.uint64))
    return np.right_shift(product, np.uint64(32)).astype(np.uint32)


_FLOAT: dict[str, Fn] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "fma": _fma,
    "neg": np.negative,
    "abs": np.abs,
    "min": np.fmin,
    "max": np.fmax,
    "nanmin": np.minimum,
    "nanmax": np.maximum,
    "floor": np.floor,
    "rint": np.rint,
    "sqrt": np.sqrt,
    "rsqrt": _rsqrt,
    "rcp": _rcp,
    "exp2": np.exp2,
    "log2": np.log2,
}
_INTEGER: dict[str, Fn] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "mulhi": _mulhi,
    "neg": np.negative,
    "abs": np.abs,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
}
_BOOL: dict[str, Fn] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "not": np.logical_not,
}
_COMPARE: dict[str, Fn] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "isnan": np.isnan,
}


def _in_f32(fn: Fn, result: np.dtype[np.generic] | None) -> Fn:
    """fn on f32 copies of short floats, rounded back to `result` unless that is None."""

    def run(*args: Value) -> Value:
        out = fn(*(a.astype(F32) for a in args))
        return out if result is None else out.astype(result)

    return run


def _arithmetic(ins: Ins) -> Fn | None:
    first = ins.args[0].type if ins.args else ins.dsts[0].type
    dtype = dtype_of(first) if not isinstance(first, Token) else ""
    if ins.op in _COMPARE:
        return _in_f32(_COMPARE[ins.op], None) if dtype in SHORT else _COMPARE[ins.op]
    if dtype in FLOATS and ins.op in _FLOAT:
        return _in_f32(_FLOAT[ins.op], NUMPY[dtype]) if dtype in SHORT else _FLOAT[ins.op]
    return (_BOOL if dtype == "bool" else _INTEGER).get(ins.op) if dtype not in FLOATS else None


def _select(c: Value, a: Value, b: Value) -> Value:
    if c.ndim == 0:
        return a if c else b
    return np.where(c, a, b)


def _vec(*parts: Value) -> Value:
    if all(p.ndim == 0 for p in parts):
        return np.stack(parts)[:, None]
    return np.stack(np.broadcast_arrays(*parts))


def _element(a: Value, at: int) -> Value:
    row = a[at]
    if row.shape != (1,):
        return row
    return cast("Value", row[0])  # a numpy scalar: the same in all lanes


def _bitcast(a: Value, type: Ty) -> Value:
    """The same bits. A vector's elements lie one behind the other in each lane."""
    kind = NUMPY[type.dtype]
    if a.ndim < 2 and a.dtype.itemsize == kind.itemsize:
        return a.view(kind)
    lanes_first = np.ascontiguousarray(a.reshape(1, -1).T if a.ndim < 2 else a.T)
    out = lanes_first.view(kind).T
    if type.lanes > 1:
        return out
    return cast("Value", out[0, 0]) if a.ndim == 0 or a.shape[-1] == 1 else out[0]  # as in _element


def pure(ins: Ins) -> Fn | None:
    """The numpy function of an op that depends on its operands alone, or None."""
    if ins.op == "select":
        return _select
    if ins.op == "vec":
        return _vec
    if ins.op == "extract":
        at = cast("int", ins.attr("at"))  # verified: an element number
        is_scalar = isinstance(ins.args[0].type, Ty) and ins.args[0].type.lanes == 1

        def extract(a: Value) -> Value:
            return a if is_scalar else _element(a, at)

        return extract
    if ins.op == "bitcast":
        type = ins.dsts[0].type
        assert isinstance(type, Ty)

        def bitcast(a: Value) -> Value:
            return _bitcast(a, type)

        return bitcast
    if ins.op in ("div", "rem") and dtype_of(ins.dsts[0].type) not in FLOATS:
        return None
    return _arithmetic(ins)


def _range(dtype: str) -> tuple[float, float]:
    """The least integer, and one past the largest: both are powers of two, or 0."""
    bits = NUMPY[dtype].itemsize * 8
    return (0.0, 2.0**bits) if dtype.startswith("u") else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1))


def _whole_division(wave: Wave, ins: Ins, args: tuple[Value, ...]) -> Value:
    a, b = args
    wave.refuse(np.equal(b, 0), "undefined", "division by zero", ins)
    if dtype_of(ins.dsts[0].type) in ("i32", "i64"):
        least = _range(dtype_of(ins.dsts[0].type))[0]
        overflows = np.logical_and(np.equal(b, -1), np.equal(a, least))
        wave.refuse(overflows, "undefined", "the least integer divided by -1", ins)
    rest = np.fmod(a, b)
    return rest if ins.op == "rem" else np.floor_divide(np.subtract(a, rest), b)


def _shift(wave: Wave, ins: Ins, args: tuple[Value, ...]) -> Value:
    a, b = args
    if not isinstance(ins.args[1], Lit):
        bits = NUMPY[dtype_of(ins.dsts[0].type)].itemsize * 8
        outside = np.logical_or(np.less(b, 0), np.greater_equal(b, bits))
        wave.refuse(outside, "undefined", f"a shift outside 0 .. {bits - 1}", ins)
    return np.left_shift(a, b) if ins.op == "shl" else np.right_shift(a, b)


def _cast(wave: Wave, ins: Ins, args: tuple[Value, ...]) -> Value:
    a = args[0]
    was, now = dtype_of(ins.args[0].type), dtype_of(ins.dsts[0].type)
    if was in FLOATS and now not in FLOATS:
        whole = np.trunc(a.astype(F32))
        low, high = (np.float32(edge) for edge in _range(now))
        inside = np.logical_and(whole >= low, whole < high)
        wave.refuse(np.logical_not(inside), "undefined", f"a float that no {now} holds", ins)
        return whole.astype(NUMPY[now])
    if was not in ("f32", "i32", "u32", "bool") and now in SHORT:
        a = a.astype(F32)
    return a.astype(NUMPY[now])


def _insert(wave: Wave, ins: Ins, args: tuple[Value, ...]) -> Value:
    a, b = args
    if isinstance(ins.dsts[0].type, Ty) and ins.dsts[0].type.lanes == 1:
        return b
    wide = a.shape[-1] == 1 and b.ndim > 0
    out = np.array(np.broadcast_to(a, (a.shape[0], wave.lanes)) if wide else a)
    out[cast("int", ins.attr("at"))] = b  # verified: an element number
    return out


CHECKED: dict[str, Checked] = {
    "div": _whole_division,
    "rem": _whole_division,
    "shl": _shift,
    "shr": _shift,
    "cast": _cast,
    "insert": _insert,
}


def blend(mask: Bools, new: Value, old: Value) -> Value:
    """new in the active lanes, old in the others."""
    return np.where(mask, new, old)
