"""What the builder knows without running: constants folded, units dropped, whole divisions made
shifts.

Float rules are only those that are exact for every value, NaN, -0 and infinities among them.
"""

from __future__ import annotations

from collections.abc import Callable

from poot.codegen.kir.nodes import Lit, Operand, Ty

_INT = ("i32", "u32", "i64")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def _wrap(value: int, dtype: str) -> int:
    if dtype == "u32":
        return value & 0xFFFFFFFF
    bits = 64 if dtype == "i64" else 32
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _trunc_div(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


_ARITH: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "min": min,
    "max": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
}


def _fold_int(name: str, a: Operand, b: Operand, type: Ty) -> Operand | None:
    x = int(a.value) if isinstance(a, Lit) else None
    y = int(b.value) if isinstance(b, Lit) else None
    if x is not None and y is not None:
        if name in _ARITH:
            return Lit(_wrap(_ARITH[name](x, y), type.dtype), type)
        if name in ("div", "rem") and y != 0:
            q = _trunc_div(x, y)
            return Lit(_wrap(q if name == "div" else x - q * y, type.dtype), type)
    zero = Lit(0, type)
    if y == 0 and name in ("add", "sub", "or", "xor", "shl", "shr"):
        return a
    if x == 0 and name in ("add", "or", "xor"):
        return b
    if (x == 0 or y == 0) and name in ("mul", "and"):
        return zero
    if y == 1 and name in ("mul", "div"):
        return a
    if x == 1 and name == "mul":
        return b
    if (y == 1 and name == "rem") or (x == 0 and name in ("div", "rem", "shl", "shr")):
        return zero
    return None


def fold(name: str, args: tuple[Operand, ...], type: Ty) -> Operand | None:
    """The operand that the instruction equals, or None where it has to run."""
    if type.lanes != 1 or (name != "select" and not any([isinstance(a, Lit) for a in args])):
        return None
    if name == "select" and isinstance(args[0], Lit):
        return args[1] if args[0].value else args[2]
    if name == "select" and args[1] == args[2]:
        return args[1]
    if len(args) == 1 and isinstance(args[0], Lit) and type.dtype == "bool" and name == "not":
        return Lit(not args[0].value, type)
    if len(args) != 2:
        return None
    a, b = args
    if name in _COMPARE and isinstance(a, Lit) and isinstance(b, Lit):
        return Lit(_COMPARE[name](a.value, b.value), type)
    if type.dtype == "bool" and name in ("and", "or"):
        for x, other in ((a, b), (b, a)):
            if isinstance(x, Lit):
                keeps = bool(x.value) == (name == "and")
                return other if keeps else x
    if type.dtype in _INT:
        return _fold_int(name, a, b, type)
    if type.dtype == "f32" and name in ("mul", "div") and isinstance(b, Lit) and b.value == 1.0:
        return a
    return None
