"""What is proved of integer values while they are traced: the least and the largest each can be.

A small forward interval analysis, one step an eqn. None means unknown, as does any result that the
dtype can't hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from poot.ir.graph import TensorType

Bounds = tuple[int, int] | None
Known = tuple[int, int]
_LIMITS = {"i32": (-(2**31), 2**31 - 1), "u32": (0, 2**32 - 1)}


def fit(dtype: str, lo: int, hi: int) -> Bounds:
    """(lo, hi), or None where the dtype can't hold them all."""
    limits = _LIMITS.get(dtype)
    return (lo, hi) if limits and limits[0] <= lo and hi <= limits[1] else None


def of_numbers(array: np.ndarray) -> Bounds:
    """The least and largest of an integer array that is known."""
    if array.dtype.kind not in "iu" or array.size == 0:
        return None
    return int(array.min()), int(array.max())


def _add(dtype: str, a: Known, b: Known) -> Bounds:
    return fit(dtype, a[0] + b[0], a[1] + b[1])


def _sub(dtype: str, a: Known, b: Known) -> Bounds:
    return fit(dtype, a[0] - b[1], a[1] - b[0])


def _mul(dtype: str, a: Known, b: Known) -> Bounds:
    corners = (a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])
    return fit(dtype, min(corners), max(corners))


def _rem(dtype: str, a: Known, b: Known) -> Bounds:
    most = max(abs(b[0]), abs(b[1])) - 1
    if most < 0:
        return (0, 0)
    return fit(dtype, max(min(a[0], 0), -most), min(max(a[1], 0), most))


def _div(dtype: str, a: Known, b: Known) -> Bounds:
    if b[0] <= 0:
        return None
    corners = [abs(x) // y * (1 if x >= 0 else -1) for x in a for y in b]
    return fit(dtype, min(corners), max(corners))


def _and(dtype: str, a: Known, b: Known) -> Bounds:
    if a[0] < 0 or b[0] < 0:
        return None
    return fit(dtype, 0, min(a[1], b[1]))


def _shr(dtype: str, a: Known, b: Known) -> Bounds:
    if not 0 <= b[0] <= b[1] < 32:
        return None
    corners = [x >> y for x in a for y in b]
    return fit(dtype, min(corners), max(corners))


_BINARY: dict[str, Callable[[str, Known, Known], Bounds]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "rem": _rem,
    "and": _and,
    "shr": _shr,
    "max": lambda dtype, a, b: fit(dtype, max(a[0], b[0]), max(a[1], b[1])),
    "min": lambda dtype, a, b: fit(dtype, min(a[0], b[0]), min(a[1], b[1])),
}
_SAME = ("reshape", "broadcast", "transpose", "slice", "gather", "dynamic_slice", "topk")
_JOIN = {"concat": 0, "select": 1, "dynamic_update_slice": 0, "scatter_update": 0}


def _join(ins: Sequence[Bounds]) -> Bounds:
    known = [b for b in ins if b is not None]
    if len(known) < len(ins) or not known:
        return None
    return min(b[0] for b in known), max(b[1] for b in known)


def after(
    op: str,
    attrs: dict[str, object],
    ins: Sequence[Bounds],
    first: TensorType,
    outs: Sequence[TensorType],
) -> tuple[Bounds, ...]:
    """The bounds of each of `outs` of an eqn whose operands have bounds `ins`; `first` is the type
    of the first operand (of the first out where there is none)."""
    out = outs[0].dtype
    if op == "argmax":
        axis = attrs["axis"]
        return ((0, first.shape[axis] - 1),) if isinstance(axis, int) else (None,)
    if op == "topk":
        return (ins[0], (0, first.shape[-1] - 1))
    if op == "index_guard":
        lo, hi = attrs["lo"], attrs["hi"]
        assert isinstance(lo, int)
        assert isinstance(hi, int)
        held = ins[0] or (lo, hi - 1)
        clamped = (min(max(held[0], lo), hi - 1), min(max(held[1], lo), hi - 1))
        return (clamped, None)
    if out not in _LIMITS:
        return (None,) * len(outs)
    if op == "iota":
        axis = attrs["axis"]
        assert isinstance(axis, int)
        return (fit(out, 0, max(outs[0].shape[axis] - 1, 0)),)
    if op == "const":
        value = attrs["value"]
        return ((value, value) if isinstance(value, int) else None,)
    if op == "cast":
        return (_cast(out, first.dtype, ins[0]),)
    if op in _SAME:
        return (ins[0],)
    if op in _JOIN:
        data = ins[_JOIN[op] :] if op in ("concat", "select") else ins[:2]
        return (_join(data),)
    rule = _BINARY.get(op)
    a, b = (ins[0], ins[1]) if len(ins) == 2 else (None, None)
    return (rule(out, a, b) if rule and a and b else None,)


def _cast(out: str, source: str, held: Bounds) -> Bounds:
    if source == "bool":
        return (0, 1)
    if source in ("i8", "u8"):
        held = held or ((-128, 127) if source == "i8" else (0, 255))
    return fit(out, *held) if held else None
