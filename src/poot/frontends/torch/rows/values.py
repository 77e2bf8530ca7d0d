"""Operands of ATen ops: tensors of several dtypes, and Python numbers among them."""

from __future__ import annotations

from poot.ir.dtypes import DTYPES
from poot.ops.array import Array, as_array
from poot.ops.record import current, refuse

Number = bool | int | float
Value = Array | bool | int | float

_RANKS = {"bool": 0, "int": 1, "uint": 1, "float": 2}


def kind_of(x: Value) -> int:
    """0 for bools, 1 for integers, 2 for floats."""
    if isinstance(x, Array):
        return _RANKS[DTYPES[x.dtype].kind]
    return 0 if isinstance(x, bool) else 1 if isinstance(x, int) else 2


def is_float(x: Array) -> bool:
    return DTYPES[x.dtype].kind == "float"


def number(value: Number, dtype: str) -> Array:
    """A Python number as a scalar of that dtype. Raises TypeRuleError where it doesn't hold it."""
    kind = DTYPES[dtype].kind
    if kind == "float":
        value = float(value)
    elif kind == "bool":
        value = bool(value)
    else:
        if isinstance(value, float) and not value.is_integer():
            refuse("a number", f"a whole number for {dtype}", value=value)
        value = int(value)
    return as_array(value, current("a number"), dtype, "a number")


def in_dtype(x: Value, dtype: str) -> Array:
    """A tensor cast to, or a number as, that dtype."""
    return x.astype(dtype) if isinstance(x, Array) else number(x, dtype)


def promoted(a: Value, b: Value) -> str:
    """The dtype in which ATen compares two operands: of the higher kind (bool, integer, float); of
    one kind, that of tensors before those without axes, and of these before numbers."""

    def weight(x: Value) -> tuple[int, int]:
        return kind_of(x), 0 if not isinstance(x, Array) else 1 if not x.shape else 2

    (kind_a, place_a), (kind_b, place_b) = weight(a), weight(b)
    if kind_a == kind_b and place_a == place_b:
        return _wider(a, b)
    first, second = (a, b) if (kind_a, place_a) > (kind_b, place_b) else (b, a)
    return first.dtype if isinstance(first, Array) else _default(first, second)


def _default(first: Value, second: Value) -> str:
    if kind_of(first) == 2:
        return "f32"
    return "i32" if kind_of(first) == 1 else "bool"


def _wider(a: Value, b: Value) -> str:
    if not isinstance(a, Array) or not isinstance(b, Array):
        return _default(a, b)
    if a.dtype == b.dtype:
        return a.dtype
    if {a.dtype, b.dtype} == {"f16", "bf16"}:
        return "f32"
    wide = {a.dtype, b.dtype} & {"f32", "i32"}
    if not wide:
        refuse("a comparison", "operands of one dtype, or one of them f32 or i32", a=a, b=b)
    return wide.pop()
