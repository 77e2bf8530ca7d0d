"""The cases of primitives whose elements meet: folds, ranks, products, and addresses that are
data."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from poot.ir.dtypes import DTYPES
from tests.support.primitives import (
    FLOATS,
    INF,
    NAN,
    WHOLE,
    Case,
    binary,
    casts,
    compare_and_bits,
    floats,
    moves,
    unary,
    values,
)


def _reduce(name: str, x: np.ndarray, kind: str, axis: tuple[int, ...], keep: bool = False) -> Case:
    row = "sum" if kind == "sum" and x.dtype.kind not in "iu" else "exact"
    attrs = (("axis", axis), ("keepdim", keep), ("kind", kind))
    return Case(f"reduce {kind} {name}", "reduce", (x,), attrs, row)


def folds() -> Iterator[Case]:
    for dtype in (*FLOATS, *WHOLE):
        x = values(dtype, 5, 65)
        if dtype == "f8e4m3":
            x = np.abs(x)
        yield _reduce(f"{dtype} rows", np.abs(x) if dtype in FLOATS else x, "sum", (1,))
        for kind in ("max", "min"):
            yield _reduce(f"{dtype} rows", x, kind, (1,))
            yield _reduce(f"{dtype} columns", x, kind, (0,), True)
    for axis in ((), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
        for keep in (False, True):
            x = np.abs(floats("f32", 3, 7, 10))
            yield _reduce(f"{axis} {keep}", x, "sum", axis, keep)
    for cols in (1, 2, 33, 63, 64, 65, 1000):
        x = floats("f32", 3, cols)
        x[:, min(40, cols - 1)] = 9.0
        yield _reduce(f"of {cols}", x, "max", (1,))
    holes = floats("f32", 4, 70)
    holes[0, 69], holes[1, 3], holes[2, :], holes[3, 5] = NAN, INF, -INF, -INF
    for kind in ("sum", "max", "min"):
        yield _reduce("NaN and infinities", holes, kind, (1,))
    yield _reduce("over nothing", floats("f32", 3, 0), "sum", (1,))
    yield _reduce("over nothing i32", values("i32", 0, 3), "sum", (0,))
    yield _reduce("of no rows", floats("f32", 0, 3), "max", (1,))
    yield _reduce("of one", floats("f32", 1, 1, 1, 1, 1), "min", (4,))
    wrap = np.full((2, 9), 2**31 - 1, np.int32)
    yield _reduce("wraps", wrap, "sum", (1,))


def ranks() -> Iterator[Case]:
    for dtype in ("f32", "f16", "bf16", "f8e4m3", "i32", "u32", "i8", "u8"):
        x = values(dtype, 3, 37)
        yield Case(f"argmax {dtype}", "argmax", (x,), (("axis", 1),))
        for k in (1, 5, 37):
            yield Case(f"topk {dtype} {k}", "topk", (x,), (("k", k),))
    yield Case("argmax bool", "argmax", (values("bool", 4, 5),), (("axis", 0),))
    ties = np.asarray([[2, 7, 7, 1, 7], [0, 0, 0, 0, 0]], np.float32)
    nans = np.asarray([[NAN, 1, NAN, 3, -INF], [NAN] * 5, [NAN, -INF, NAN, -INF, NAN]], np.float32)
    infs = np.asarray([[INF, -INF, INF, 0, -0.0], [-0.0, 0.0, -INF, -INF, -INF]], np.float32)
    for name, x in (("ties", ties), ("NaN", nans), ("infinities", infs)):
        yield Case(f"argmax of {name}", "argmax", (x,), (("axis", 1),))
        for k in (1, 3, 5):
            yield Case(f"topk {k} of {name}", "topk", (x,), (("k", k),))
    for shape, axis in (((1,), 0), ((2, 3, 4), 1), ((129,), 0), ((3, 5), 0), ((0, 3), 1)):
        yield Case(f"argmax {shape}", "argmax", (floats("f32", *shape),), (("axis", axis),))
    for shape in ((1,), (2, 1, 9), (300,), (0, 4)):
        yield Case(f"topk {shape}", "topk", (floats("f32", *shape),), (("k", min(4, shape[-1])),))


MATRICES = (
    ((1, 1), (1, 1)), ((1, 7), (7, 1)), ((3, 5), (5, 4)), ((1, 64), (64, 33)), ((5, 33), (33, 65)),
    ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (3, 4, 5)), ((4, 3), (2, 3, 2)), ((0, 3), (3, 4)),
    ((3, 0), (0, 4)), ((1, 2, 1, 3, 2), (1, 1, 2, 2, 3)), ((65, 130), (130, 70)),
    ((1, 300), (300, 1)),
)  # fmt: skip


def products() -> Iterator[Case]:
    for a, b in MATRICES:
        ins = (floats("f32", *a), floats("f32", *b, seed=1))
        yield Case(f"matmul {a} {b}", "matmul", ins, row="matmul")
    for dtype in FLOATS[1:]:
        for a, b in MATRICES[2:6]:
            ins = (floats(dtype, *a), floats(dtype, *b, seed=1))
            yield Case(f"matmul {a} {b} {dtype}", "matmul", ins, row="matmul")
    x, y = floats("f32", 4, 9), floats("f32", 9, 5, seed=1)
    x[1, 3], x[2, 0], y[8, 4] = NAN, INF, -INF
    yield Case("matmul with NaN and infinities", "matmul", (x, y), row="matmul")


def _i32(*x: int) -> np.ndarray:
    return np.asarray(x, np.int32)


_WILD = (0, 2, -1, 9, 2**31 - 1, -(2**31))


def addresses() -> Iterator[Case]:
    for dtype in DTYPES:
        x = values(dtype, 3, 5, 33)
        for axis in range(3):
            yield Case(f"gather {dtype} {axis}", "gather", (x, _i32(*_WILD)), (("axis", axis),))
        attrs = (("axis", 1), ("size", 2))
        yield Case(f"dynamic_slice {dtype}", "dynamic_slice", (x, _i32(0, 4, -2)), attrs)
        new = values(dtype, 3, 2, 33, seed=1)
        for start in (_i32(0, 4, -2), np.int32(3)):
            ins = (x, new, np.asarray(start))
            name, attrs = f"dynamic_update_slice {dtype} {start}", (("axis", 1),)
            yield Case(name, "dynamic_update_slice", ins, attrs)
            yield Case(f"{name} in place", "dynamic_update_slice", ins, attrs, in_place=True)
        ins = (values(dtype, 7, 33), values(dtype, 4, 33, seed=1), _i32(6, -1, 7, 0))
        yield Case(f"scatter_update {dtype}", "scatter_update", ins)
        yield Case(f"scatter_update {dtype} in place", "scatter_update", ins, in_place=True)
    table = floats("f32", 6)
    for index in (np.asarray(3, np.int32), _i32(*_WILD).reshape(2, 3), np.zeros((0, 2), np.int32)):
        yield Case(f"gather by {list(index.shape)}", "gather", (table, index), (("axis", 0),))
    x = floats("f32", 4, 6)
    for start, size in itertools.product((0, 3, 6, -9, 2**31 - 1, -(2**31)), (0, 1, 6)):
        attrs = (("axis", 1), ("size", size))
        name = f"dynamic_slice {start} {size}"
        yield Case(name, "dynamic_slice", (x, np.asarray(start, np.int32)), attrs)
    for start, size in itertools.product((5, -9, 2**31 - 1, -(2**31)), (0, 1, 4)):
        ins = (x, floats("f32", size, 6, seed=2), np.asarray(start, np.int32))
        attrs = (("axis", 0),)
        name = f"dynamic_update_slice {start} {size}"
        yield Case(name, "dynamic_update_slice", ins, attrs)
        yield Case(f"{name} in place", "dynamic_update_slice", ins, attrs, in_place=True)
    for rows in ((-1, -1, -1), (5, -(2**31), 2**31 - 1), (2, 0, 1)):
        ins = (floats("f32", 5, 2, 3), floats("f32", 3, 2, 3, seed=1), _i32(*rows))
        yield Case(f"scatter_update {rows}", "scatter_update", ins)
        yield Case(f"scatter_update {rows} in place", "scatter_update", ins, in_place=True)
    ins = (floats("f32", 5), np.zeros(0, np.float32), np.zeros(0, np.int32))
    yield Case("scatter_update of nothing", "scatter_update", ins, in_place=True)


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "unary": unary,
    "binary": binary,
    "compare and bits": compare_and_bits,
    "casts": casts,
    "moves": moves,
    "folds": folds,
    "ranks": ranks,
    "products": products,
    "addresses": addresses,
}
