"""Element by element, with numpy's broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from poot.ir.dtypes import DTYPES, is_float
from poot.oracle.rows import At, held_dtype, row

Unary = Callable[[np.ndarray], np.ndarray]
Binary = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _erf(x: np.ndarray) -> np.ndarray:
    """The error function, each element by libm in f64."""
    flat = map(math.erf, x.astype(np.float64).ravel().tolist())
    return np.fromiter(flat, np.float64, x.size).reshape(x.shape).astype(x.dtype)


def _div_integers(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Cut toward zero, 0 where b is 0; the one overflow, least / -1, wraps."""
    wide_a, wide_b = a.astype(np.int64), b.astype(np.int64)
    size = np.abs(wide_a) // np.maximum(np.abs(wide_b), 1)
    signed = np.where((wide_a < 0) == (wide_b < 0), size, -size)
    return np.where(wide_b == 0, 0, signed).astype(a.dtype)


def _rem_integers(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sign of a, 0 where b is 0."""
    wide_a, wide_b = a.astype(np.int64), b.astype(np.int64)
    left = np.fmod(wide_a, np.where(wide_b == 0, 1, wide_b))
    return np.where(wide_b == 0, 0, left).astype(a.dtype)


def _shl(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    bits = np.left_shift(np.asarray(a).view(np.uint32), (b & 31).astype(np.uint32))
    return np.asarray(bits).view(a.dtype)


_UNARY: dict[str, Unary] = {
    "neg": np.negative,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: np.reciprocal(np.sqrt(x)),
    "recip": np.reciprocal,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": _erf,
    "abs": np.abs,
    "floor": np.floor,
}

# op -> (on floats, on integers)
_BINARY: dict[str, tuple[Binary, Binary]] = {
    "add": (np.add, np.add),
    "sub": (np.subtract, np.subtract),
    "mul": (np.multiply, np.multiply),
    "div": (np.divide, _div_integers),
    "max": (np.maximum, np.maximum),
    "min": (np.minimum, np.minimum),
    "rem": (np.fmod, _rem_integers),
}

_COMPARE: dict[str, Binary] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}

_BITS: dict[str, Binary] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": _shl,
    "shr": lambda a, b: np.right_shift(a, b & 31),
}


def _add_unary(name: str, fn: Unary) -> None:
    @row(name)
    def run(at: At, x: np.ndarray) -> np.ndarray:
        return at.held(fn(at.wide(x) if is_float(at.ins[0].dtype) else x))


def _add_binary(name: str, on_floats: Binary, on_integers: Binary) -> None:
    @row(name)
    def run(at: At, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if is_float(at.ins[0].dtype):
            return at.held(on_floats(at.wide(a), at.wide(b)))
        return at.held(on_integers(a, b))


def _add_compare(name: str, fn: Binary) -> None:
    @row(name)
    def run(at: At, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if is_float(at.ins[0].dtype):
            a, b = at.wide(a), at.wide(b)
        return at.held(fn(a, b))


def _add_bits(name: str, fn: Binary) -> None:
    @row(name)
    def run(at: At, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return at.held(fn(a, b))


for _name, _fn in _UNARY.items():
    _add_unary(_name, _fn)
for _name, (_floats, _integers) in _BINARY.items():
    _add_binary(_name, _floats, _integers)
for _name, _claim in _COMPARE.items():
    _add_compare(_name, _claim)
for _name, _bit in _BITS.items():
    _add_bits(_name, _bit)


@row("not")
def not_(at: At, x: np.ndarray) -> np.ndarray:
    return at.held(np.invert(x))


@row("select")
def select(at: At, cond: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(cond, a, b)


def _float_to_integer(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Cut toward zero, saturated; NaN gives 0. f64 holds both ends of each integer dtype."""
    info = np.iinfo(dtype)
    cut = np.clip(np.trunc(x.astype(np.float64)), float(info.min), float(info.max))
    return np.where(np.isnan(cut), 0.0, cut).astype(np.int64).astype(dtype)


@row("cast")
def cast(at: At, x: np.ndarray, *, dtype: str) -> np.ndarray:
    """An integer reaches a 16- or 8-bit float through f32."""
    to = held_dtype(dtype, at.f64)
    if is_float(at.ins[0].dtype):
        wide = at.wide(x)
        if DTYPES[dtype].kind in ("int", "uint"):
            return _float_to_integer(wide, to)
        return np.not_equal(wide, 0) if dtype == "bool" else wide.astype(to, copy=False)
    if is_float(dtype):
        return x.astype(np.float64 if at.f64 else np.float32).astype(to, copy=False)
    return np.not_equal(x, 0) if dtype == "bool" else x.astype(to, copy=False)


@row("bitcast")
def bitcast(at: At, x: np.ndarray, *, dtype: str) -> np.ndarray:
    """In f64 mode a float is rounded to its dtype before its bits are taken."""
    bits = x.astype(DTYPES[at.ins[0].dtype].numpy, copy=False).view(DTYPES[dtype].numpy)
    return at.held(bits)


@row("index_guard")
def index_guard(
    at: At, x: np.ndarray, *, lo: int, hi: int, what: str = ""
) -> tuple[np.ndarray, np.ndarray]:
    return at.held(np.clip(x, lo, hi - 1)), np.asarray((x >= lo) & (x < hi))
