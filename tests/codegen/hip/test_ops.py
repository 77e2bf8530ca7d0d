"""Rows by what they say; what each does is tested on fibers beside every other target
(tests/codegen/spirv/test_ops.py), and here where the simulator is the only other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.codegen.emitters import emit
from poot.codegen.hip.ops import HIP
from poot.codegen.kir.build import BOOL, F32, I32, U32, KernelBuilder, Val
from poot.codegen.kir.nodes import Ins, Kernel, Reg, Ty
from poot.codegen.kir.ops import KIR_OPS
from poot.errors import DtypeLowering
from tests.codegen.hip.test_memory import array_of
from tests.support.hip.both import MI300X, agree, body_of, compile_ahead

N = 64
_REFUSED = """
    cp_async async_commit wait mbar_init mbar_arrive mbar_wait barrier_sync barrier_arrive tma_load
    tma_store frag_move wgmma wgmma_commit grid_wait grid_trigger
    unpack
"""
REFUSED = _REFUSED.split()
FLOATS = ("f32", "f16", "bf16")
ARITH = ("add", "sub", "mul", "div", "min", "max", "nanmin", "nanmax")
ALONE = ("neg", "abs", "floor", "rint", "sqrt", "rsqrt", "rcp", "exp2", "log2")
# fma is rounded once or twice; the functions have their bounds. Narrow results may straddle a tie.
WITHIN = {"f32": 1e-6, "f16": 2e-3, "bf16": 1.6e-2}


def kernel(name: str, dtype: str, lanes: int, args: int, build: object) -> Kernel:
    """y = build(x0, x1 ..) on vectors of `lanes`."""
    k = KernelBuilder(name, N // lanes)
    names = [k.param(f"x{n}", dtype, N, "r") for n in range(args)]
    at = k.lane() * lanes
    result = build(k, *(k.load(x, at, lanes) for x in names))
    k.store(k.param("y", result.ty.dtype, N, "w"), at, result)
    return k.kernel()


def feed(dtype: str, args: int) -> dict[str, np.ndarray]:
    out = {f"x{n}": np.roll(array_of(dtype), 7 * n) for n in range(args)}
    if dtype in FLOATS:
        for n, x in enumerate(out.values()):
            x[n : n + 3] = np.array([np.nan, np.inf, 0.0], np.float32).astype(x.dtype)
    return out


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("lanes", [1, 4])
def test_float_arithmetic_rounds_to_its_dtype_after_each_op(dtype: str, lanes: int):
    def made(op: str) -> Kernel:
        def build(k: KernelBuilder, a: Val, b: Val, c: Val) -> Val:
            return k.op(op, a, b) * c if lanes > 1 else k.op(op, a, b)

        return kernel(f"{op}_{dtype}_{lanes}", dtype, lanes, 3, build)

    kernels = {op: made(op) for op in ARITH}
    compile_ahead(list(kernels.values()))
    for op, one in kernels.items():
        given = feed(dtype, 3)
        if op in ("min", "max"):  # which is given when one is NaN is not said
            given = {n: np.roll(array_of(dtype), 7 * at) for at, n in enumerate(given)}
        agree(one, given, within=WITHIN[dtype] if op == "div" else 0.0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_one_float(dtype: str):
    kernels = {
        op: kernel(f"{op}_{dtype}", dtype, 2, 1, lambda k, a, op=op: k.op(op, a)) for op in ALONE
    }
    compile_ahead(list(kernels.values()))
    for op, made in kernels.items():
        given = feed(dtype, 1)
        if op in ("sqrt", "rsqrt", "log2"):
            given["x0"] = np.abs(given["x0"].astype(np.float32)).astype(given["x0"].dtype)
        exact = op in ("neg", "abs", "floor", "rint")
        agree(made, given, within=0.0 if exact else WITHIN[dtype])


@pytest.mark.parametrize("dtype", FLOATS)
def test_fma_is_rounded_once_or_twice(dtype: str):
    made = kernel(f"fma_{dtype}", dtype, 1, 3, lambda k, a, b, c: k.op("fma", a, b, c))
    agree(made, feed(dtype, 3), within=WITHIN[dtype])


@pytest.mark.parametrize("dtype", ["i32", "u32", "i64", "u64"])
def test_integers_wrap_and_divide(dtype: str):
    def arithmetic(k: KernelBuilder, a: Val, b: Val) -> Val:
        odd = b | k.lit(1, b.ty)
        return a * b + (a - b) + a // odd + a % odd + (k.op("max", a, b) ^ k.op("min", a, b))

    def bits(k: KernelBuilder, a: Val, b: Val) -> Val:
        by = b & k.lit(31, b.ty)
        return ((a << by) ^ (a >> by)) | (~a & b)

    for name, build in (("arithmetic", arithmetic), ("bits", bits)):
        for lanes in (1, 2):
            agree(kernel(f"{name}_{dtype}_{lanes}", dtype, lanes, 2, build), feed(dtype, 2))


@pytest.mark.parametrize(
    "target", ["f32", "f16", "bf16", "f8e4m3", "i32", "u32", "i64", "i8", "u8"]
)
def test_every_dtype_is_cast_to_every_other(target: str):
    sources = ("f32", "f16", "bf16", "f8e4m3", "i32", "u32", "i64", "u64", "i8", "u8", "bool")
    kernels = {
        source: kernel(f"{source}_to_{target}", source, 1, 1, lambda k, a: k.cast(a, target))
        for source in sources
    }
    compile_ahead(list(kernels.values()))
    for source, made in kernels.items():
        given = {"x0": array_of(source)}
        if source in FLOATS and target not in (*FLOATS, "f8e4m3"):
            low = 0 if target[0] == "u" else -100
            given = {"x0": np.clip(given["x0"].astype(np.float32) * 50, low, 100).astype(
                given["x0"].dtype)}  # fmt: skip
        if source == "f8e4m3" and target[0] == "u":
            given = {"x0": np.abs(given["x0"].astype(np.float32)).astype(given["x0"].dtype)}
        double = source in ("i64", "u64", "i32", "u32") and target in ("f16", "bf16", "f8e4m3")
        agree(made, given, within=0.13 if double else 0.0)


@pytest.mark.parametrize(
    "source, target",
    [(Ty("f16", 2), U32), (Ty("bf16", 4), Ty("u32", 2)), (Ty("u8", 4), F32),
     (Ty("i8", 8), Ty("i64")), (Ty("f32", 2), Ty("u64")),
     (Ty("u64"), Ty("f16", 4)), (Ty("i32", 4), Ty("f32", 4)),
     (Ty("f8e4m3", 4), I32), (Ty("f16", 8), Ty("i8", 16)), (Ty("i64"), Ty("u64"))],
    ids=str,
)  # fmt: skip
def test_bits_are_kept_between_shapes(source: Ty, target: Ty):
    k = KernelBuilder(f"bits_{source}_{target}", N // source.lanes)
    x = k.param("x", source.dtype, N, "r")
    y = k.param("y", target.dtype, N // source.lanes * target.lanes, "w")
    made = k.bitcast(k.load(x, k.lane() * source.lanes, source.lanes), target)
    k.store(y, k.lane() * target.lanes, made)
    given = array_of(source.dtype)
    got = agree(k.kernel(), {"x": given})["y"]
    np.testing.assert_array_equal(got.view(np.uint8), given.view(np.uint8))


def test_comparisons_with_nan_are_false_but_for_unequal():
    k = KernelBuilder("compare", N)
    x = k.param("x", "f32", N, "r")
    value = k.load(x, k.lane())
    for op in ("eq", "ne", "lt", "le", "gt", "ge"):
        k.store(k.param(op, "bool", N, "w"), k.lane(), k.op(op, value, k.lit(0.5), type=BOOL))
    agree(k.kernel(), {"x": feed("f32", 1)["x0"]})


def test_a_negative_literal_stays_one_number():
    k = KernelBuilder("minus", 1)
    y = k.param("y", "f32", 1, "rw")
    m = k.var(-2.0)
    k.set(m, k.op("neg", k.load(y, 0)) - k.lit(-3.0))
    k.store(y, 0, m)
    assert agree(k.kernel(), {"y": np.array([4.0], np.float32)})["y"][0] == -1.0
    ins = Ins("neg", (Reg("t", F32),), (k.lit(-3.0).operand,), ())
    text = body_of(Kernel("k", (), (), (), (), 1, None, (ins,)))
    assert text == ["const float t = -(-3.0f);"]


@pytest.mark.parametrize("op", REFUSED)
def test_an_op_of_other_makers_is_refused_with_a_reason(op: str):
    row = KIR_OPS[op]
    args = tuple(Reg(f"a{n}", I32) for n in range(row.args or 0))
    dsts = tuple(Reg(f"d{n}", F32) for n in range(row.dsts))
    made = Kernel("k", (), (), (), (), 1, None, (Ins(op, dsts, args, ()),))
    with pytest.raises(DtypeLowering, match=f"kernel k: hip has no {op}: "):
        emit(made, MI300X)


def test_what_is_not_refused_is_portable_or_amds_own():
    spelled = {name for name, row in KIR_OPS.items() if not row.portable} - set(REFUSED)
    assert spelled == {name for name in HIP if name.startswith("frag_") and name != "frag_move"} | {
        "mma", "elect"}  # fmt: skip


def test_a_dtype_that_an_op_lacks_is_refused_by_name():
    undef = Ins("undef", (Reg("a", I32, True),), (), ())
    ins = Ins("sqrt", (Reg("d", I32),), (Reg("a", I32, True),), ())
    with pytest.raises(
        DtypeLowering, match=r"kernel k: sqrt: hip has this op for float: not for i32"
    ):
        emit(Kernel("k", (), (), (), (), 1, None, (undef, ins)), MI300X)


@pytest.mark.parametrize(
    "scope, call", [("group", "__threadfence_block();"), ("device", "__threadfence();")]
)
def test_a_fence_reaches_as_far_as_it_says(scope: str, call: str):
    k = KernelBuilder("fence", 1)
    k.do("fence", scope=scope)
    text = emit(k.kernel(), MI300X).text
    assert [row.strip() for row in text.splitlines() if "threadfence" in row] == [call]


def test_a_fence_of_the_copy_engine_is_refused():
    k = KernelBuilder("fence", 1)
    k.do("fence", scope="async")
    with pytest.raises(DtypeLowering, match="hip fences are of a group or the device: async"):
        emit(replace(k.kernel()), MI300X)
