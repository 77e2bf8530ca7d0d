"""Element by element, beyond the op table's cases (test_ops): 16 and 64 bits, bools, refusals."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from poot.codegen.kir.build import KernelBuilder
from poot.codegen.kir.nodes import Ty
from poot.errors import DtypeLowering
from tests.support.ptx_agree import agree, assembled, ptx_of

SHORT = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
EDGES = np.resize(
    np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1, -2.5, 3, 0.1, 250], np.float32), 32
)


@pytest.mark.parametrize("dtype", SHORT)
@pytest.mark.parametrize(
    "op", ["add", "sub", "mul", "div", "min", "max", "nanmin", "nanmax", "fma"]
)
def test_sixteen_bit_floats_compute_in_f32_and_round_once(op, dtype):
    k = KernelBuilder("short", 32)
    a, b = (k.param(n, dtype, 32, "r") for n in "ab")
    y = k.param("y", dtype, 32, "w")
    x, z = k.load(a, k.lane()), k.load(b, k.lane())
    args = (x, z, x) if op == "fma" else (x, z)
    k.store(y, k.lane(), k.op(op, *args))
    # Which of two min and max give when one is NaN is not said.
    x = np.where(np.isnan(EDGES), 9, EDGES) if op in ("min", "max") else EDGES
    arrays = {"a": x.astype(SHORT[dtype]), "b": np.roll(x, 3).astype(SHORT[dtype])}
    agree(k.kernel(), arrays, within=4e-3)


@pytest.mark.parametrize("dtype", SHORT)
def test_sixteen_bit_nan_is_seen_and_compared(dtype):
    k = KernelBuilder("nans", 32)
    x = k.param("x", dtype, 32, "r")
    value = k.load(x, k.lane())
    for n, made in enumerate((k.op("isnan", value), value.eq(value), value.ne(value), value < 1.0)):
        k.store(k.param(f"y{n}", "bool", 32, "w"), k.lane(), made)
    agree(k.kernel(), {"x": EDGES.astype(SHORT[dtype])})


def test_bools_are_logic_and_chosen_by_logic():
    k = KernelBuilder("logic", 32)
    a, b = (k.param(n, "bool", 32, "r") for n in "ab")
    x, z = k.load(a, k.lane()), k.load(b, k.lane())
    made = [k.op(n, x, z) for n in ("and", "or", "xor", "eq", "ne")] + [~x, k.select(x, z, ~z)]
    for n, value in enumerate(made):
        k.store(k.param(f"y{n}", "bool", 32, "w"), k.lane(), value)
    lane = np.arange(32)
    agree(k.kernel(), {"a": lane % 2 == 0, "b": lane % 3 == 0})


def test_wide_integers_have_every_row():
    k = KernelBuilder("wide", 32)
    x, y = k.param("x", "i32", 32, "r"), k.param("y", "i32", 32, "w")
    a = k.cast(k.load(x, k.lane()), "i64")
    b = k.lit(12345678901, Ty("i64"))
    total = a * b
    for made in (a - b, a & b, a | b, a ^ b, ~a, -a, total // b, total % b,
                 k.op("min", a, b), k.op("max", a, b), a << k.lit(3, Ty("i64")),
                 k.select(a < b, a, b), k.select(a.ne(b), b, a)):  # fmt: skip
        total = total * 7 + made
    k.store(y, k.lane(), k.cast(total ^ (total >> k.lit(32, Ty("i64"))), "i32"))
    agree(k.kernel(), {"x": np.arange(-16, 16, dtype=np.int32) * 77777})


def test_a_product_and_a_sum_stay_two_roundings():
    k = KernelBuilder("apart", 32)
    x, y = k.param("x", "f32", 32, "r"), k.param("y", "f32", 32, "w")
    value = k.load(x, k.lane())
    k.store(y, k.lane(), value * value + value)
    text = ptx_of(k.kernel())
    assert "mul.rn.f32" in text
    assert "add.rn.f32" in text
    assert assembled(k.kernel())[0].spills == 0


@pytest.mark.parametrize("op, dtype, words", [
    ("sqrt", "i32", "on floats: not on i32"),
    ("mulhi", "f32", "no row of this op for f32"),
    ("and", "f32", "no row of this op for f32"),
    ("lt", "bool", "no order of bools"),
])  # fmt: skip
def test_a_dtype_without_a_row_is_refused_by_name(op, dtype, words):
    k = KernelBuilder("refused", 32)
    x = k.load(k.param("x", dtype, 32, "r"), k.lane())
    k.op(op, *([x, x][: 1 if op == "sqrt" else 2]))
    with pytest.raises(DtypeLowering, match=f"kernel refused: .*{words}"):
        ptx_of(k.kernel())
