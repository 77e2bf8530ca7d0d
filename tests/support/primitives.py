"""Every primitive at every dtype, and at the edges where targets like to differ: one table of
cases, which the suite compiles a family at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from poot.ir.build import Builder
from poot.ir.dtypes import DTYPES, dtype_of
from poot.ir.graph import Graph, Slot, State, TensorType, Var
from poot.ir.rules.elementwise import BINARY, BITWISE, COMPARE, SHIFT

FLOATS = ("f32", "f16", "bf16", "f8e4m3")
WHOLE = ("i32", "u32")
NAN, INF = float("nan"), float("inf")
# Ranks 0 to 5; extents 1, 0 and odd ones.
SHAPES = (
    (), (1,), (7,), (0,), (3, 5), (2, 0, 3), (1, 1, 1, 1), (2, 1, 33), (2, 3, 2, 5),
    (1, 2, 3, 1, 5),
)  # fmt: skip
EDGES = (
    NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-3, 1e30, -1e30, 65504.0, -448.0, 1e-40,
    2147483648.0, -2147483648.0, 4294967296.0,
)  # fmt: skip
INTS = (0, 1, -1, 2, 7, -7, 31, 32, 33, -(2**31), 2**31 - 1, 2**24 + 1, 255, 256, -129)


@dataclass(frozen=True, slots=True)
class Case:
    """One eqn on these arrays. `row` is the tolerance of its first result; its others are exact.
    With `in_place` the first operand is a State that the result replaces."""

    name: str
    op: str
    ins: tuple[np.ndarray, ...]
    attrs: tuple[tuple[str, object], ...] = ()
    row: str = "exact"
    in_place: bool = False


def floats(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    """Unit-normal numbers."""
    x = np.random.default_rng(seed).standard_normal(shape)
    return np.asarray(x).astype(np.float32).astype(DTYPES[dtype].numpy)


def edge_floats(dtype: str) -> np.ndarray:
    """The edges, then 40 numbers of many sizes."""
    rng = np.random.default_rng(1)
    sizes = rng.standard_normal(40) * 10.0 ** rng.integers(-3, 4, 40)
    with np.errstate(all="ignore"):
        return np.concatenate([EDGES, sizes]).astype(np.float32).astype(DTYPES[dtype].numpy)


def edge_ints(dtype: str) -> np.ndarray:
    return np.asarray(INTS, np.int64).astype(DTYPES[dtype].numpy)


def values(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    """Any numbers of the dtype, its own extremes among the integers."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if DTYPES[dtype].kind == "float":
        return floats(dtype, *shape, seed=seed)
    info = np.iinfo(DTYPES[dtype].numpy)
    return np.asarray(rng.integers(info.min, info.max, shape, endpoint=True), info.dtype)


def edges(dtype: str) -> np.ndarray:
    if dtype == "bool":
        return np.asarray([False, True])
    return edge_floats(dtype) if DTYPES[dtype].kind == "float" else edge_ints(dtype)


UNARY_ROWS = {
    "neg": "exact", "abs": "exact", "floor": "exact", "exp": "math", "log": "math", "tanh": "math",
    "erf": "math", "sqrt": "math", "rsqrt": "math", "recip": "div", "sin": "angle", "cos": "angle",
}  # fmt: skip
BINARY_ROWS = {
    "add": "arith", "sub": "arith", "mul": "arith", "div": "div", "max": "exact", "min": "exact",
    "rem": "exact",
}  # fmt: skip
assert tuple(BINARY_ROWS) == BINARY


def unary() -> Iterator[Case]:
    for op, row in UNARY_ROWS.items():
        for dtype in FLOATS:
            x = edges(dtype)
            if row == "angle":  # what is asked of sin and cos: positions, up to 2^20
                x = x[~(np.abs(x.astype(np.float64)) > 2.0**20)]
            yield Case(f"{op} {dtype}", op, (x,), row=row)
    for op in ("neg", "abs"):
        yield Case(f"{op} i32", op, (edges("i32"),))
        for shape in SHAPES:
            yield Case(f"{op} f32{list(shape)}", op, (floats("f32", *shape),))
    for dtype in (*WHOLE, "bool"):
        yield Case(f"not {dtype}", "not", (edges(dtype),))


def _pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Every edge against every edge, by broadcasting."""
    x = edges(dtype)
    return x[:, None], x


def binary() -> Iterator[Case]:
    for op, row in BINARY_ROWS.items():
        for dtype in (*FLOATS, *WHOLE):
            yield Case(f"{op} {dtype}", op, _pairs(dtype), row=row)
    for n, shape in enumerate(SHAPES):
        a, b = floats("f32", *shape, seed=n), floats("f32", *shape, seed=n + 50)
        yield Case(f"add {list(shape)}", "add", (a, b), row="arith")
        stretched = tuple(1 if i % 2 else m for i, m in enumerate(shape[1:]))
        yield Case(f"sub {list(shape)}", "sub", (a, floats("f32", *stretched)), row="arith")
        yield Case(
            f"mul {list(stretched)} {list(shape)}",
            "mul",
            (floats("f32", *stretched), b),
            row="arith",
        )


def compare_and_bits() -> Iterator[Case]:
    for op in COMPARE:
        for dtype in ("f32", "f16", "bf16", *WHOLE, "bool"):
            yield Case(f"{op} {dtype}", op, _pairs(dtype))
    for op in BITWISE:
        for dtype in (*WHOLE, "bool"):
            yield Case(f"{op} {dtype}", op, _pairs(dtype))
    for op in SHIFT:
        for dtype in WHOLE:
            yield Case(f"{op} {dtype}", op, _pairs(dtype))
    for dtype in DTYPES:
        a, b = values(dtype, 3, 7), values(dtype, 7, seed=1)
        cond = values("bool", 3, 1)
        yield Case(f"select {dtype}", "select", (cond, a, b))
    nan = np.full((2, 5), NAN, np.float32)
    cond = np.asarray([[True], [False]])
    yield Case("select hides NaN", "select", (cond, floats("f32", 2, 5), nan))
    for shape in SHAPES:
        ins = (values("bool", *shape), floats("f32", *shape), floats("f32", *shape, seed=1))
        yield Case(f"select {list(shape)}", "select", ins)
    x = edges("i32")
    for lo, hi in ((0, 1), (-3, 8), (-(2**31), 2**31 - 1), (2**24, 2**24 + 2)):
        yield Case(f"index_guard {lo}..{hi}", "index_guard", (x,), (("hi", hi), ("lo", lo)))


def casts() -> Iterator[Case]:
    for source, target in itertools.product(DTYPES, DTYPES):
        x = edges(source)
        yield Case(f"cast {source} to {target}", "cast", (x,), (("dtype", target),))
        alike = DTYPES[source].nbytes == DTYPES[target].nbytes and "bool" not in (source, target)
        if alike:
            yield Case(f"bitcast {source} to {target}", "bitcast", (x,), (("dtype", target),))


def moves() -> Iterator[Case]:
    dtypes = itertools.cycle(DTYPES)
    for before, after in (
        ((), (1, 1)), ((1,), ()), ((6,), (2, 3)), ((2, 3, 4), (4, 6)), ((0, 3), (3, 0)),
        ((2, 3, 4, 5), (10, 12)), ((12, 5), (2, 1, 3, 2, 5)), ((33,), (1, 33)),
    ):  # fmt: skip
        for dtype in dict.fromkeys((next(dtypes), "f32")):
            name, attrs = f"reshape {before} {after} {dtype}", (("shape", after),)
            yield Case(name, "reshape", (values(dtype, *before),), attrs)
    for before, after in (
        ((), (3,)), ((1,), (4,)), ((5,), (3, 5)), ((3, 1), (3, 7)), ((2, 1, 4), (5, 2, 3, 4)),
        ((1, 1), (0, 3)), ((1, 3, 1, 5), (2, 3, 4, 5)), ((3, 1, 1), (1, 2, 3, 4, 5)),
    ):  # fmt: skip
        for dtype in dict.fromkeys((next(dtypes), "f32")):
            name, attrs = f"broadcast {before} {after} {dtype}", (("shape", after),)
            yield Case(name, "broadcast", (values(dtype, *before),), attrs)
    perms = [(), (0,), (1, 0), *itertools.permutations(range(3)), (0, 2, 1, 3), (3, 1, 0, 2)]
    perms += [(4, 3, 2, 1, 0), (1, 0, 4, 2, 3)]
    for perm in perms:
        x = values(next(dtypes), *(3, 5, 2, 1, 7)[: len(perm)])
        yield Case(f"transpose {perm} {x.dtype}", "transpose", (x,), (("perm", perm),))
    yield Case("transpose of nothing", "transpose", (floats("f32", 0, 3),), (("perm", (1, 0)),))
    yield from _slices()
    yield from _made()


def _slices() -> Iterator[Case]:
    dtypes = itertools.cycle(DTYPES)
    for shape, start, stop, step in (
        ((), (), (), ()),
        ((9,), (0,), (9,), (2,)),
        ((9,), (3,), (3,), (1,)),
        ((5, 7), (1, 2), (5, 7), (3, 2)),
        ((33, 2), (32, 0), (33, 2), (1, 1)),
        ((2, 3, 4), (0, 1, 0), (2, 3, 4), (1, 1, 3)),
        ((2, 2, 3, 2, 3), (1, 0, 1, 0, 2), (2, 2, 3, 2, 3), (1, 1, 1, 1, 1)),
    ):
        for dtype in dict.fromkeys((next(dtypes), "f16")):
            attrs = (("start", start), ("step", step), ("stop", stop))
            yield Case(f"slice {shape} {start} {dtype}", "slice", (values(dtype, *shape),), attrs)
    for shapes, axis in (
        (((3,), (1,), (4,)), 0),
        (((2, 3), (2, 0), (2, 1)), 1),
        (((1, 2, 2), (3, 2, 2)), 0),
        (((2, 1, 3, 1), (2, 1, 3, 2)), 3),
        (((5, 7),), 0),
    ):
        for dtype in dict.fromkeys((next(dtypes), "bf16")):
            ins = tuple(values(dtype, *s, seed=n) for n, s in enumerate(shapes))
            yield Case(f"concat {shapes} {dtype}", "concat", ins, (("axis", axis),))


def _made() -> Iterator[Case]:
    for dtype in WHOLE:
        for shape, axis in (((5,), 0), ((3, 4), 0), ((3, 4), 1), ((2, 3, 4), 1), ((0, 2), 0)):
            attrs = (("axis", axis), ("dtype", dtype), ("shape", shape))
            yield Case(f"iota {dtype} {shape} {axis}", "iota", (), attrs)
    for dtype, value in (
        ("f32", INF), ("f32", -INF), ("f32", NAN), ("f32", -1e9), ("f32", 0.1), ("f32", 1e-40),
        ("f16", 65504.0), ("f16", 1e6), ("f16", 0.1), ("bf16", 0.1), ("bf16", -INF),
        ("f8e4m3", 448.0), ("f8e4m3", 0.3), ("i32", -(2**31)), ("i32", 2**31 - 1),
        ("u32", 2**32 - 1), ("i8", -128), ("u8", 255), ("bool", True), ("bool", False),
    ):  # fmt: skip
        for shape in ((), (3,), (2, 5)):
            attrs = (("dtype", dtype), ("shape", shape), ("value", value))
            yield Case(f"const {dtype} {value} {shape}", "const", (), attrs)


def graph_of(cases: list[Case]) -> tuple[Graph, dict[str, object], list[tuple[Case, int, str]]]:
    """One graph of all the cases, what to feed it, and for each of its outputs the case, which of
    the case's results it is, and the State that holds it ("" where it is an output)."""
    b = Builder()
    feed: dict[str, object] = {}
    outputs: list[Var] = []
    pairs: list[tuple[Var, Var]] = []
    made: list[tuple[Case, int, str]] = []
    for n, case in enumerate(cases):
        ins: list[Var] = []
        for i, x in enumerate(case.ins):
            dtype = dtype_of(np.asarray(x).dtype)
            assert dtype is not None, case.name
            storage = State() if case.in_place and i == 0 else Slot()
            ins.append(b.input(TensorType(dtype, x.shape), f"c{n}.{i}", storage))
            feed[f"c{n}.{i}"] = np.array(x)
        outs = b.emit(case.op, *ins, loc=f"{case.name}:{n}", **dict(case.attrs))
        if case.in_place:
            pairs.append((ins[0], outs[0]))
            made.append((case, 0, f"c{n}.0"))
            continue
        outputs += outs
        made += [(case, i, "") for i in range(len(outs))]
    return b.graph(tuple(outputs), tuple(pairs)), feed, made
