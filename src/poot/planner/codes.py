"""Keys and values kept in codes of 8 bits with a scale a row: where a step reads them from.

rows    f32[B,Hkv,Lk,D] = codes * scale, in any order of casts and moves; perhaps cast once more
codes   i8 or f8e4m3, an input [B,Hkv,Lk,D], or a pool [S,Hkv,D] that a map i32 [B,Lk] is read by
scale   f32, an input [B,Hkv,Lk], or a pool [S,Hkv] by the same map; extents of 1 anywhere
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from poot.ir.attrs import int_attr
from poot.ir.dtypes import is_float
from poot.ir.graph import Eqn, Graph, Var
from poot.passes.attention.views import MOVES, Axis, joined, moved, stretched, whole

DTYPES = ("i8", "f8e4m3")


@dataclass(frozen=True, slots=True)
class Coded:
    """Row t of batch row b and key head h is codes[b, h, t, :] * scales[b, h, t]; with `index`,
    codes[s, h, :] * scales[s, h] of slot s = index[b, t]. `codes` and `scales` are inputs."""

    codes: Var
    scales: Var
    index: Var | None

    @property
    def dtype(self) -> str:
        return self.codes.type.dtype


@dataclass(frozen=True, slots=True)
class _Leaf:
    """An input, whole or gathered by a map along its first axis, and where in it (or in what was
    gathered) each axis of a value lies."""

    source: Var
    index: Var | None
    axes: tuple[Axis, ...]


def coded_of(body: Graph, var: Var) -> Coded | None:
    """What [B,Hkv,Lk,D] is made of, or None where it is made otherwise."""
    found, outer = _followed(body, var, _is_of_floats)
    if found is None or found.op != "mul" or found.out.type.dtype != "f32":
        return None
    for codes, scale in (found.ins, found.ins[::-1]):
        one = _leaf(body, codes, found, outer, _is_of_codes)
        other = _leaf(body, scale, found, outer, _is_none)
        if one is not None and other is not None and _fit(one, other, var.type.shape):
            return Coded(one.source, other.source, one.index)
    return None


def coded_pair(body: Graph, at: Mapping[str, Var]) -> tuple[Coded, Coded] | None:
    """Keys and values of an attention's operands in codes of one kind and by one map, or None."""
    keys, values = coded_of(body, at["k"]), coded_of(body, at["v"])
    if keys is None or values is None or "read" in at or "k_shared" in at:
        return None
    is_alike = keys.index == values.index and keys.dtype == values.dtype
    return (keys, values) if is_alike else None


def is_of_16_bits(body: Graph, var: Var) -> bool:
    """Whether f16 or bf16 holds every element, as the casts show that it comes by."""
    _, steps = _followed(body, var, _is_of_floats)
    ways = {var.type.dtype} | {x.type.dtype for e in steps for x in (e.ins[0], e.out)}
    return not ways.isdisjoint(("f16", "bf16"))


def _is_of_floats(cast: Eqn) -> bool:
    return is_float(cast.ins[0].type.dtype) and is_float(cast.out.type.dtype)


def _is_of_codes(cast: Eqn) -> bool:
    return cast.ins[0].type.dtype in DTYPES and cast.out.type.dtype == "f32"


def _is_none(cast: Eqn) -> bool:
    return False


def _followed(body: Graph, var: Var, takes: Callable[[Eqn], bool]) -> tuple[Eqn | None, list[Eqn]]:
    """What makes a value, looked for through moves and the casts that are taken: (its eqn, or None
    for an input; the eqns passed, the last first)."""
    makers = {v.id: e for e in body.eqns for v in e.outs}
    steps: list[Eqn] = []
    while (eqn := makers.get(var.id)) is not None:
        if eqn.op not in MOVES and not (eqn.op == "cast" and takes(eqn)):
            break
        steps.append(eqn)
        var = eqn.ins[0]
    return eqn, steps


def _leaf(
    body: Graph, var: Var, product: Eqn, outer: list[Eqn], takes: Callable[[Eqn], bool]
) -> _Leaf | None:
    """Where an operand of the product lies, as the product's result is moved by `outer`."""
    eqn, inner = _followed(body, var, takes)
    base = inner[-1].ins[0] if inner else var
    source, index = base, None
    if eqn is not None:
        if eqn.op != "gather" or int_attr(eqn, "axis") != 0:
            return None
        source, index = eqn.ins
    if source.id not in {i.var.id for i in body.inputs}:
        return None
    axes = _moved(inner, whole(base).axes)
    if axes is not None:
        axes = _moved(outer, stretched(axes, product.out.type.shape))
    return None if axes is None else _Leaf(source, index, axes)


def _moved(steps: list[Eqn], axes: tuple[Axis, ...] | None) -> tuple[Axis, ...] | None:
    for eqn in reversed(steps):
        if eqn.op != "cast" and axes is not None:
            axes = moved(eqn, axes)
    return axes


def _fit(codes: _Leaf, scales: _Leaf, shape: tuple[int, ...]) -> bool:
    """Whether codes and scales lie as the op's rows [B,Hkv,Lk,D] want them, by the same map."""
    maps = (codes.index, scales.index)
    if maps[0] != maps[1] or codes.source.type.dtype not in DTYPES:
        return False
    if codes.index is not None and codes.source.type.shape[0] != scales.source.type.shape[0]:
        return False
    if scales.source.type.dtype != "f32" or any(stride for _, stride in scales.axes[-1]):
        return False
    return _lies(codes, shape) and _lies(scales, (*shape[:3], 1))


def _lies(leaf: _Leaf, shape: tuple[int, ...]) -> bool:
    batch, heads, keys, width = shape
    if leaf.index is None:
        total = leaf.source.type.elems
        strides = (heads * keys * width, keys * width, width, 1)
        is_whole = total == batch * strides[0]
    else:
        strides = (keys * heads * width, width, heads * width, 1)
        is_whole = leaf.index.type.shape == (batch, keys)
        is_whole = is_whole and math.prod(leaf.source.type.shape[1:]) == heads * width
    wanted = tuple(((n, s),) if n > 1 else () for n, s in zip(shape, strides, strict=True))
    found = tuple(joined(axis) for axis in leaf.axes)
    return is_whole and (found if width > 1 else (*found[:3], ())) == wanted
