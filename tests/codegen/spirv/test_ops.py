"""Every row of the op table, on every GPU target, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from poot.codegen.kir.build import BOOL, F32, I32, U32, KernelBuilder, Val
from poot.codegen.kir.nodes import Ins, Kernel, Reg, Ty
from poot.codegen.kir.ops import KIR_OPS
from poot.codegen.spirv.emit import emit
from poot.errors import DtypeLowering
from poot.ir.dtypes import DTYPES
from poot.limits import profile
from tests.support.gpu import DEVICES, gpu, launch_arrays

N = 64
INF, NAN = np.inf, np.nan


@dataclass(frozen=True, slots=True)
class Case:
    """out[i] = op(inputs[i]...) for one dtype; `ulp` is the float error allowed, 0 for equality."""

    op: str
    inputs: tuple[np.ndarray, ...]
    expected: np.ndarray
    ulp: float = 0.0
    to: str = ""
    dtype: str = "f32"
    result: str = "f32"


def spread(*special: float) -> np.ndarray:
    """64 floats of many sizes, the special ones first."""
    rng = np.random.default_rng(7)
    x = (rng.standard_normal(N) * 10.0 ** rng.integers(-6, 7, N)).astype(np.float32)
    x[: len(special)] = np.array(special, np.float32)
    return x


def integers(dtype: str, *special: int) -> np.ndarray:
    rng = np.random.default_rng(11)
    info = np.iinfo(DTYPES[dtype].numpy)
    x = rng.integers(info.min, info.max, N, dtype=DTYPES[dtype].numpy, endpoint=True)
    x[: len(special)] = np.array(special, np.int64).astype(x.dtype)
    return x


A = spread(0.0, -0.0, 1.0, INF, -INF, 2.5, -3.5, 0.5)
B = np.roll(A, 5)
WITH_NAN = spread(NAN, 1.0, NAN, -INF, INF, 0.0)
OTHER_NAN = spread(2.0, NAN, NAN, NAN, 1.0, NAN)
POSITIVE = np.abs(spread(0.0, 1.0, INF, 4.0))
S, T = integers("i32", 0, 1, -1, -(2**31), 2**31 - 1), integers("i32", 7, -7, 3, 2, -5)
U, V = integers("u32", 0, 1, 2**32 - 1, 2**31), integers("u32", 7, 2**32 - 1, 2**32 - 1, 3)
P, Q = np.arange(N) % 2 == 0, np.arange(N) % 3 == 0
SHIFTS = np.arange(N, dtype=np.int32) % 32


def _arith() -> list[Case]:
    out: list[Case] = []
    table: dict[str, Callable[..., np.ndarray]] = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum,
        "max": np.maximum,
    }  # fmt: skip
    for op, f in table.items():
        with np.errstate(all="ignore"):
            out += [
                Case(op, (A, B), f(A, B), 1.0 if op in ("add", "sub", "mul") else 0.0),
                Case(op, (S, T), f(S, T), dtype="i32", result="i32"),
                Case(op, (U, V), f(U, V), dtype="u32", result="u32"),
            ]
    with np.errstate(all="ignore"):
        out.append(Case("div", (A, B), A / B, 2.5))
        k = np.where(T == 0, 5, T).astype(np.int64)
        k = np.where((S == -(2**31)) & (k == -1), 3, k)
        wide = S.astype(np.int64)
        quotient = np.sign(wide) * np.sign(k) * (np.abs(wide) // np.abs(k))
        rest = wide - quotient * k
        ints = (S, k.astype(np.int32))
        out += [
            Case("div", ints, quotient.astype(np.int32), dtype="i32", result="i32"),
            Case("rem", ints, rest.astype(np.int32), dtype="i32", result="i32"),
            Case("div", (U, V | 1), U // (V | 1), dtype="u32", result="u32"),
            Case("rem", (U, V | 1), U % (V | 1), dtype="u32", result="u32"),
        ]
        high = (U.astype(np.uint64) * V.astype(np.uint64) >> np.uint64(32)).astype(np.uint32)
        out.append(Case("mulhi", (U, V), high, dtype="u32", result="u32"))
    return out


def _unary() -> list[Case]:
    finite = spread(0.0, -0.0, 2.5, -3.5, 0.5, 1.5, -0.5, 7.0)
    nan_bits = np.isnan(WITH_NAN)
    with np.errstate(all="ignore"):
        root = np.sqrt(POSITIVE.astype(np.float64))
        return [
            Case("neg", (A,), -A),
            Case("neg", (S,), -S, dtype="i32", result="i32"),
            Case("abs", (A,), np.abs(A)),
            Case("abs", (S,), np.abs(S), dtype="i32", result="i32"),
            Case("abs", (U,), U, dtype="u32", result="u32"),
            Case("floor", (finite,), np.floor(finite)),
            Case("rint", (finite,), np.rint(finite)),
            Case("sqrt", (POSITIVE,), root.astype(np.float32), 2.5),
            Case("rsqrt", (POSITIVE,), (1 / root).astype(np.float32), 2.5),
            Case("rcp", (A,), (1 / A.astype(np.float64)).astype(np.float32), 2.5),
            Case("isnan", (WITH_NAN,), nan_bits, result="bool"),
            Case("not", (S,), ~S, dtype="i32", result="i32"),
            Case("not", (U,), ~U, dtype="u32", result="u32"),
            Case("not", (P,), ~P, dtype="bool", result="bool"),
            Case("fma", (A[8:], B[8:], A[8:]), _fma(A[8:], B[8:], A[8:]), -1.0),
            Case("nanmin", (WITH_NAN, OTHER_NAN), np.minimum(WITH_NAN, OTHER_NAN)),
            Case("nanmax", (WITH_NAN, OTHER_NAN), np.maximum(WITH_NAN, OTHER_NAN)),
        ]


def _fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return (a.astype(np.float64) * b + c).astype(np.float32)


def _bits() -> list[Case]:
    out: list[Case] = []
    table: dict[str, Callable[..., np.ndarray]] = {
        "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    }  # fmt: skip
    for op, f in table.items():
        out += [
            Case(op, (S, T), f(S, T), dtype="i32", result="i32"),
            Case(op, (U, V), f(U, V), dtype="u32", result="u32"),
            Case(op, (P, Q), f(P, Q), dtype="bool", result="bool"),
        ]
    left = (U.astype(np.uint64) << SHIFTS.astype(np.uint64)).astype(np.uint32)
    out += [
        Case("shl", (S, SHIFTS), S << SHIFTS, dtype="i32", result="i32"),
        Case("shr", (S, SHIFTS), S >> SHIFTS, dtype="i32", result="i32"),
        Case("shl", (U, SHIFTS.astype(np.uint32)), left, dtype="u32", result="u32"),
        Case("shr", (U, SHIFTS.astype(np.uint32)), U >> SHIFTS.astype(np.uint32),
             dtype="u32", result="u32"),
    ]  # fmt: skip
    return out


def _compares() -> list[Case]:
    table: dict[str, Callable[..., np.ndarray]] = {
        "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
        "gt": np.greater, "ge": np.greater_equal,
    }  # fmt: skip
    out: list[Case] = []
    same = np.where(np.arange(N) % 4 == 0, WITH_NAN, OTHER_NAN).astype(np.float32)
    for op, f in table.items():
        k = np.where(np.arange(N) % 4 == 0, S, T).astype(np.int32)
        u = np.where(np.arange(N) % 4 == 0, U, V).astype(np.uint32)
        out += [
            Case(op, (WITH_NAN, same), f(WITH_NAN, same), result="bool"),
            Case(op, (S, k), f(S, k), dtype="i32", result="bool"),
            Case(op, (U, u), f(U, u), dtype="u32", result="bool"),
        ]
    out += [
        Case("eq", (P, Q), P == Q, dtype="bool", result="bool"),
        Case("ne", (P, Q), P != Q, dtype="bool", result="bool"),
    ]
    return out


def _casts() -> list[Case]:
    out: list[Case] = []
    small = np.clip(spread(0.0, -0.0, 1.9, -1.9, 2.0**30), -(2.0**31), 2.0**31 - 256)
    small = small.astype(np.float32)
    halves = spread(65504.0, 65519.9, 65520.0, 1e6, 2.0**-24, 2.0**-25, 6e-8, INF, -INF, NAN)
    with np.errstate(all="ignore"):
        for source, target, x in (
            ("f32", "i32", small), ("f32", "u32", np.abs(small)), ("i32", "f32", S),
            ("u32", "f32", U), ("i32", "u32", S), ("u32", "i32", U), ("bool", "f32", P),
            ("bool", "i32", P), ("bool", "u32", P), ("i32", "bool", S), ("f32", "bool", A),
            ("i32", "i8", S), ("i32", "u8", S), ("u32", "i8", U), ("f32", "f16", halves),
            ("f32", "bf16", halves), ("i32", "f16", integers("i8").astype(np.int32)),
        ):  # fmt: skip
            expected = x.astype(DTYPES[target].numpy)
            out.append(Case("cast", (x,), expected, to=target, dtype=source, result=target))
    eights = spread(448.0, 463.9, 464.0, 465.0, 2.0**-9, 2.0**-10, 0.0, -INF, NAN)
    f8 = eights.astype(DTYPES["f8e4m3"].numpy)
    out.append(Case("cast", (eights,), f8, to="f8e4m3", result="f8e4m3"))
    for a, b, x in (("f32", "i32", A), ("i32", "u32", S), ("u32", "f32", A.view(np.uint32))):
        expected = x.view(DTYPES[b].numpy)
        out.append(Case("bitcast", (x,), expected, to=b, dtype=a, result=b))
    return out


CASES = [*_arith(), *_unary(), *_bits(), *_compares(), *_casts()]
NARROW = ("f16", "bf16", "i8", "u8", "f8e4m3")


def kernel_of(case: Case) -> Kernel:
    """Lane i reads element i of each input and stores the result; narrow results widened."""
    k = KernelBuilder(f"{case.op}_{case.dtype}", N)
    names = []
    for at, x in enumerate(case.inputs):
        dtype = "bool" if x.dtype == np.bool_ else _name(x)
        names.append(k.param(f"x{at}", dtype, N, "r"))
    store_as = _stored(case.result)
    y = k.param("y", store_as, N, "w")
    i = k.lane()
    args = [k.load(name, i) for name in names]
    result = k.op(case.op, *args, type=Ty(case.to) if case.to else None)
    k.store(y, i, k.cast(result, store_as) if store_as != case.result else result)
    return k.kernel()


def _stored(dtype: str) -> str:
    if dtype in ("i8", "u8"):
        return "i32"
    return "f32" if dtype in NARROW else dtype


def _name(x: np.ndarray) -> str:
    return next(d.name for d in DTYPES.values() if d.numpy == x.dtype)


def padded(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, np.ones(N - x.size, x.dtype)]) if x.size < N else x


def agree(got: np.ndarray, case: Case) -> None:
    want = padded(case.expected)
    if case.result in NARROW:
        want = want.astype(np.float32 if case.result[0] in "fb" else np.int32)
    count = case.expected.size
    got, want = got[:count], want[:count]
    if case.ulp == 0.0:
        np.testing.assert_array_equal(got, want)
        return
    if case.ulp < 0:  # fma: one rounding or two, so the bound hangs on the largest term
        scale = np.maximum(np.abs(case.inputs[0] * case.inputs[1]), np.abs(case.inputs[2]))
        assert count
        with np.errstate(invalid="ignore"):
            near = np.abs(got.astype(np.float64) - want) <= scale * 2.0**-22
        assert (near | (got == want) | (np.isnan(got) & np.isnan(want))).all()
        return
    tiny = np.abs(want) < 2.0**-125  # subnormals may flush to zero
    with np.errstate(invalid="ignore"):
        near = np.abs(got.astype(np.float64) - want) <= case.ulp * np.spacing(np.abs(want))
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    assert (near | same | (tiny & (np.abs(got) <= np.abs(want)))).all()


@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.op}-{c.dtype}-{c.result}")
def test_a_row_does_what_its_op_says(target, case):
    device = gpu(target)
    inputs = {f"x{at}": padded(x) for at, x in enumerate(case.inputs)}
    agree(launch_arrays(device, kernel_of(case), inputs)["y"], case)


@pytest.mark.parametrize("target", DEVICES)
def test_exp2_and_log2_keep_their_bounds(target):
    device = gpu(target)
    k = KernelBuilder("exponentials", N)
    x, e = k.param("x", "f32", 4096, "r"), k.param("e", "f32", 4096, "w")
    p, g = k.param("p", "f32", 4096, "r"), k.param("g", "f32", 4096, "w")
    i = k.group_id(0) * N + k.lane()
    k.store(e, i, k.op("exp2", k.load(x, i)))
    k.store(g, i, k.op("log2", k.load(p, i)))
    rng = np.random.default_rng(3)
    powers = rng.uniform(-126, 127.9, 4096).astype(np.float32)
    powers[:8] = [0.0, 1.0, -1.0, -INF, INF, 200.0, NAN, 0.5]
    values = (2.0 ** rng.uniform(-120, 120, 4096)).astype(np.float32)
    values[:1024] = rng.uniform(0.5, 2.0, 1024)
    values[:5] = [0.0, 1.0, INF, 2.0, 4.0]
    out = launch_arrays(device, k.kernel(), {"x": powers, "p": values}, (64, 1, 1))
    special = np.array([0.0, INF, INF, NAN], np.float32)
    np.testing.assert_array_equal(out["e"][3:7], special)
    np.testing.assert_array_equal(out["g"][:3], np.array([-INF, 0.0, INF], np.float32))
    true = 2.0 ** powers[8:].astype(np.float64)
    assert np.max(np.abs(out["e"][8:] / true - 1)) <= 2.0**-21
    logs = np.log2(values[5:].astype(np.float64))
    error = np.abs(out["g"][5:] - logs) / np.maximum(1.0, np.abs(logs))
    assert np.max(error) <= 2.0**-21


def lanes(build: Callable[[KernelBuilder, Val], Val], result: str, threads: int = N) -> Kernel:
    """out[lane] = what `build` makes of the lane index."""
    k = KernelBuilder("lanes", threads)
    y = k.param("y", result, threads, "w")
    i = k.lane()
    k.store(y, i, build(k, i))
    return k.kernel()


@pytest.mark.parametrize("target", DEVICES)
def test_vectors_are_made_read_and_changed_by_lane(target):
    def build(k: KernelBuilder, i: Val) -> Val:
        v = k.vec(i, i * 2, i * 3, i * 4) + k.vec(i, i, i, i)
        w = k.op("insert", v, i * 100, at=2)
        return k.extract(w, 0) + k.extract(w, 2) * 2 + k.extract(w, 3)

    got = launch_arrays(gpu(target), lanes(build, "i32"), {})["y"]
    np.testing.assert_array_equal(got, np.arange(N) * (2 + 200 + 5))


@pytest.mark.parametrize("target", DEVICES)
def test_words_are_bitcast_to_vectors_of_narrow_elements_and_back(target):
    def build(k: KernelBuilder, i: Val) -> Val:
        pair = k.bitcast(k.cast(i, "u32") * 65537 + 0x3C000000, Ty("f16", 2))
        bytes4 = k.bitcast(k.cast(i, "u32") * 16843009, Ty("u8", 4))
        total = k.cast(k.extract(bytes4, 3), "u32") + k.cast(k.extract(bytes4, 0), "u32")
        return k.bitcast(pair, U32) + total * 0x1000000

    got = launch_arrays(gpu(target), lanes(build, "u32"), {})["y"]
    i = np.arange(N, dtype=np.uint32)
    np.testing.assert_array_equal(got, i * 65537 + 0x3C000000 + 2 * i * 0x1000000)


@pytest.mark.parametrize("target", DEVICES)
def test_ids_say_where_a_lane_is(target):
    k = KernelBuilder("where", 16)
    y = k.param("y", "i32", 16 * 3 * 2 * 2, "w")
    x, r, z = (k.group_id(axis) for axis in range(3))
    flat = (z * k.num_groups(1) + r) * k.num_groups(0) + x
    k.store(y, flat * 16 + k.lane(), flat * 1000 + k.lane())
    got = launch_arrays(gpu(target), k.kernel(), {}, (3, 2, 2))["y"]
    want = np.arange(12)[:, None] * 1000 + np.arange(16)
    np.testing.assert_array_equal(got, want.reshape(-1))


@pytest.mark.parametrize("target", DEVICES)
def test_immediates_arrive_in_order_with_their_types(target):
    k = KernelBuilder("imms", 1)
    y = k.param("y", "f32", 3, "w")
    a, b, c = k.imm("a"), k.imm("b", "f32"), k.imm("c", "u32")
    k.store(y, 0, k.cast(a, "f32"))
    k.store(y, 1, b)
    k.store(y, 2, k.cast(c, "f32"))
    got = launch_arrays(gpu(target), k.kernel(), {}, imms=(-7, 2.5, 3000000000))["y"]
    np.testing.assert_array_equal(got, np.array([-7, 2.5, 3e9], np.float32))


@pytest.mark.parametrize("target", DEVICES)
def test_infinities_and_nan_can_be_written_as_literals(target):
    def build(k: KernelBuilder, i: Val) -> Val:
        first = k.select(i < 1, k.lit(-INF), k.lit(INF))
        return k.select(i < 2, first, k.lit(NAN))

    got = launch_arrays(gpu(target), lanes(build, "f32", 4), {})["y"]
    np.testing.assert_array_equal(got, np.array([-INF, INF, NAN, NAN], np.float32))


@pytest.mark.parametrize("target", ["vulkan", "wgpu", "cpu"])
def test_wide_integers_where_the_device_has_them(target):
    device = gpu(target)
    if not device.limits.has_i64:
        pytest.skip(f"{device.limits.name} has no 64-bit integers")

    def build(k: KernelBuilder, i: Val) -> Val:
        wide = k.cast(i, "i64") * k.lit(3_000_000_000, Ty("i64")) + k.cast(i, "i64")
        return k.cast(wide >> k.lit(16, Ty("i64")), "i32")

    got = launch_arrays(device, lanes(build, "i32"), {})["y"]
    np.testing.assert_array_equal(got, np.arange(N) * 3_000_000_001 >> 16)


# Those that a device with cooperative matrices has: test_coop.py.
MATRICES = ("frag_fill", "frag_load", "frag_store", "mma")


@pytest.mark.parametrize(
    "op", sorted(o.name for o in KIR_OPS.values() if not o.portable and o.name not in MATRICES)
)
def test_a_target_only_op_is_refused_with_a_reason(op):
    row = KIR_OPS[op]
    args = tuple(Reg(f"a{n}", I32) for n in range(row.args or 0))
    dsts = tuple(Reg(f"d{n}", F32) for n in range(row.dsts))
    kernel = Kernel("k", (), (), (), (), 1, None, (Ins(op, dsts, args, ()),))
    with pytest.raises(DtypeLowering, match=f"kernel k: spirv has no {op}: "):
        emit(kernel, profile("lavapipe"))


def test_a_dtype_that_an_op_lacks_is_refused_by_name():
    ins = Ins("sqrt", (Reg("d", I32),), (Reg("a", I32),), ())
    undef = Ins("undef", (Reg("a", I32, True),), (), ())
    kernel = Kernel("k", (), (), (), (), 1, None, (undef, ins))
    with pytest.raises(DtypeLowering, match=r"sqrt: .*not for i32"):
        emit(kernel, profile("lavapipe"))


def test_wide_integers_are_refused_without_the_feature():
    k = KernelBuilder("wide", 1)
    k.store(k.param("y", "i32", 1, "w"), 0, k.cast(k.cast(k.lane(), "i64") + 1, "i32"))
    with pytest.raises(DtypeLowering, match="64-bit integers, which webgpu-baseline lacks"):
        emit(k.kernel(), profile("webgpu-baseline"))


@pytest.mark.parametrize("target", DEVICES)
def test_select_takes_its_condition_lane_by_lane(target):
    def build(k: KernelBuilder, i: Val) -> Val:
        cond = k.bitcast(k.vec(i, i), Ty("i32", 2)) < k.vec(k.lit(3, I32), k.lit(60, I32))
        chosen = k.select(cond, k.vec(i, i), k.vec(k.lit(-1, I32), k.lit(-1, I32)))
        flag = k.op("and", k.extract(cond, 0), k.extract(cond, 1), type=BOOL)
        return k.extract(chosen, 0) * 1000 + k.extract(chosen, 1) + k.cast(flag, "i32")

    got = launch_arrays(gpu(target), lanes(build, "i32"), {})["y"]
    i = np.arange(N)
    want = np.where(i < 3, i, -1) * 1000 + np.where(i < 60, i, -1) + (i < 3)
    np.testing.assert_array_equal(got, want)
