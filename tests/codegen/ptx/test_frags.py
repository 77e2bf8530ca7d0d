"""Fragments in registers: made, folded, changed in form, multiplied, as the simulator has it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from poot.codegen.kir.build import I32, KernelBuilder, Val
from poot.codegen.kir.nodes import Frag, Kernel, Ty
from poot.errors import DtypeLowering
from tests.support.kernels import kernel_text
from tests.support.ptx_agree import AMPERE, agree, assembled, ptx_of
from tests.support.ptxas import ARCHES

BF16 = ml_dtypes.bfloat16
ACC = Frag("mma", "acc", 32, 16, "f32")
A = Frag("mma", "a", 32, 32, "bf16")
B = Frag("mma", "b", 32, 16, "bf16")


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def start() -> tuple[KernelBuilder, Val]:
    """A builder with x [32, 16] of f32 as a fragment, and y like it to write."""
    k = KernelBuilder("frags", 32, 32)
    k.param("x", "f32", 512, "r")
    k.param("y", "f32", 512, "w")
    return k, k.op("frag_load", k.lit(0, I32), k.lit(16, I32), type=ACC, mem="x")


def finish(k: KernelBuilder, value: Val) -> Kernel:
    k.do("frag_store", k.lit(0, I32), k.lit(16, I32), value, mem="y")
    return k.kernel()


X = {"x": normal(0, 32, 16)}


def test_elements_know_their_rows_and_columns():
    k, x = start()
    coord = Frag("mma", "acc", 32, 16, "i32")
    row, column = (k.op("frag_coord", type=coord, axis=axis) for axis in (0, 1))
    below = k.op("lt", row, column, type=Frag("mma", "acc", 32, 16, "bool"))
    y = agree(finish(k, k.op("select", below, x, k.op("neg", x))), X)["y"].reshape(32, 16)
    want = np.where(np.arange(32)[:, None] < np.arange(16), X["x"], -X["x"])
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["add", "max", "min"])
def test_rows_and_columns_fold_in_the_lane_and_apply_back(axis, kind):
    k, x = start()
    line = k.op("frag_reduce", x, type=Ty("f32", 4), axis=axis, kind=kind)
    agree(finish(k, k.op("frag_apply", x, line, axis=axis, kind="sub")), X, within=1e-6)


def test_an_accumulator_becomes_a_left_operand_without_moving():
    k, x = start()
    a = k.op("frag_cast", x, type=Frag("mma", "a", 32, 16, "bf16"))
    b = k.op("frag_move", k.op("frag_cast", x, type=Frag("mma", "acc", 32, 16, "bf16")),
             type=B)  # fmt: skip
    wide = k.op("frag_cast", x, type=Frag("mma", "acc", 32, 16, "f16"))
    back = k.op("frag_cast", wide, type=ACC)
    left = k.op("frag_load", k.lit(0, I32), k.lit(0, I32), type=Frag("mma", "b", 16, 16, "bf16"),
                mem=k.param("one", "bf16", 16, "r"), trans=True)  # fmt: skip
    made = k.op("mma", a, left, back, type=ACC)
    wide_a = k.op("frag_fill", k.lit(1.0, Ty("bf16")), type=A)
    made = k.op("mma", wide_a, b, made, type=ACC)
    one = np.eye(1, 16, dtype=np.float32).astype(BF16).reshape(-1)
    agree(finish(k, made), {**X, "one": one}, within=1e-5)


def test_columns_are_cut_off_a_fragment():
    k, x = start()
    half = Frag("mma", "acc", 32, 8, "f32")
    first, second = (k.op("frag_slice", x, type=half, at=at) for at in (0, 8))
    k.do("frag_store", k.lit(0, I32), k.lit(16, I32), second, mem="y")
    k.do("frag_store", k.lit(8, I32), k.lit(16, I32), first, mem="y")
    y = agree(k.kernel(), X)["y"].reshape(32, 16)
    np.testing.assert_array_equal(y, np.roll(X["x"], 8, axis=1))


def test_sixteen_bit_columns_are_cut_too():
    k, x = start()
    narrow = k.op("frag_cast", x, type=Frag("mma", "a", 32, 16, "bf16"))
    wide = k.op("frag_pack", *(k.extract(narrow, n) for n in range(16)), type=narrow.type)
    half = k.op("frag_slice", k.op("frag_cast", x, type=Frag("mma", "acc", 32, 16, "bf16")),
                type=Frag("mma", "acc", 32, 8, "bf16"), at=8)  # fmt: skip
    k.param("z", "bf16", 512, "w")
    k.do("frag_store", k.lit(0, I32), k.lit(16, I32), wide, mem="z")
    k.do("frag_store", k.lit(0, I32), k.lit(16, I32), half, mem="z")
    agree(finish(k, x), X)


def product(dtype: str, acc: str = "f32") -> Kernel:
    k = KernelBuilder("product", 32, 32)
    x, y = k.param("a", dtype, 32 * 32, "r"), k.param("b", dtype, 32 * 16, "r")
    z = k.param("c", acc, 32 * 16, "w")
    a = k.op(
        "frag_load", k.lit(0, I32), k.lit(32, I32), type=Frag("mma", "a", 32, 32, dtype), mem=x
    )
    b = k.op(
        "frag_load", k.lit(0, I32), k.lit(16, I32), type=Frag("mma", "b", 32, 16, dtype), mem=y
    )
    c = k.op("frag_fill", k.lit(0.5, Ty(acc)), type=Frag("mma", "acc", 32, 16, acc))
    k.do("frag_store", k.lit(0, I32), k.lit(16, I32), k.op("mma", a, b, c, type=c.type), mem=z)
    return k.kernel()


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_products_are_the_matrices(dtype):
    kind = {"bf16": BF16, "f16": np.float16}[dtype]
    a, b = normal(1, 32, 32).astype(kind), normal(2, 32, 16).astype(kind)
    got = agree(product(dtype), {"a": a, "b": b}, within=1e-5)["c"].reshape(32, 16)
    want = a.astype(np.float64) @ b.astype(np.float64) + 0.5
    np.testing.assert_allclose(got, want, atol=1e-4)


def test_products_assemble_with_f16_sums_and_refuse_others():
    assert [r.spills for r in assembled(product("f16", "f16"))] == [0, 0]
    with pytest.raises(DtypeLowering, match="sums bf16 products in f32 alone"):
        ptx_of(product("bf16", "f16"))
    with pytest.raises(DtypeLowering, match="multiplies f16 or bf16 into f32: not f32"):
        ptx_of(product("f32"))


@pytest.mark.parametrize("lengths", [(128, 1), (100, 33)])
def test_the_decode_kernel_by_rings_and_matrix_units_agrees(lengths):
    q, k, v = (normal(n, 2, rows, 64).astype(BF16) for n, rows in enumerate((4, 128, 128)))
    arrays = {"q": q, "k": k, "v": v, "lens": np.array(lengths, np.int32)}
    agree(kernel_text("decode_mma"), arrays, (2, 1, 1), within=1e-5)


@pytest.mark.parametrize("dtype", ["i8", "f8e4m3"])
def test_every_code_is_unpacked_as_the_simulator_has_it(dtype: str):
    k = KernelBuilder("codes", 64, 32)
    k.param("x", "u32", 64, "r")
    k.param("y", "f16", 256, "w")
    lane = k.lane()
    four = k.op("unpack", k.load("x", lane), type=Ty("f16", 4), dtype=dtype)
    k.store("y", lane * 4, four)
    codes = np.arange(256, dtype=np.uint8).view(np.uint32)
    arches = ("sm_90a",) if dtype == "f8e4m3" else ARCHES
    agree(k.kernel(), {"x": codes, "y": np.zeros(256, np.float16)}, arches=arches)


def test_an_older_card_refuses_codes_of_fp8():
    k = KernelBuilder("codes", 32, 32)
    k.param("y", "f16", 128, "w")
    word = k.bitcast(k.lane(), Ty("u32"))
    k.store("y", k.lane() * 4, k.op("unpack", word, type=Ty("f16", 4), dtype="f8e4m3"))
    with pytest.raises(DtypeLowering, match="f8e4m3 needs sm_89 or newer"):
        ptx_of(k.kernel(), AMPERE)
