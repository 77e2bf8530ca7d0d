"""Fragments and products of AMD's matrix units: by fibers against the simulator, and as the units'
own instructions in code objects. The fibers' units follow AMD's guides, not poot's lane maps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.codegen.emitters import emit
from poot.codegen.kir.build import I32, KernelBuilder, Val
from poot.codegen.kir.nodes import Frag, Kernel, Ty
from poot.codegen.kir.sim.values import NUMPY
from poot.errors import DtypeLowering
from tests.support.hip.both import MI300X, RDNA3, agree, code_of, text_of
from tests.support.hip.code_objects import assembly, code_object, facts

FAMILIES = {"mfma": (64, MI300X), "wmma": (32, RDNA3)}
PAIRS = [("mfma", "f16"), ("mfma", "bf16"), ("mfma", "f32"), ("wmma", "f16"), ("wmma", "bf16")]
M, N, K = 32, 48, 32
WITHIN = 1e-4
INSTRUCTIONS = {
    ("mfma", "f16"): "v_mfma_f32_16x16x16_f16", ("mfma", "bf16"): "v_mfma_f32_16x16x16_bf16",
    ("mfma", "f32"): "v_mfma_f32_16x16x4_f32", ("wmma", "f16"): "v_wmma_f32_16x16x16_f16",
    ("wmma", "bf16"): "v_wmma_f32_16x16x16_bf16",
}  # fmt: skip


class Tile:
    """A kernel of one wave in the making, with its family's fragments."""

    def __init__(self, family: str, name: str) -> None:
        self.family = family
        self.wave, self.limits = FAMILIES[family]
        self.k = KernelBuilder(name, self.wave, self.wave)

    def frag(self, role: str, m: int, n: int, dtype: str) -> Frag:
        return Frag(self.family, role, m, n, dtype)

    def at(self, number: int) -> Val:
        return self.k.lit(number, I32)

    def load(self, mem: str, frag: Frag, pitch: int, trans: bool = False, **attrs: object) -> Val:
        return self.k.op(
            "frag_load", self.at(0), self.at(pitch), type=frag, mem=mem, trans=trans, **attrs
        )

    def store(self, mem: str, value: Val, pitch: int, trans: bool = False) -> None:
        self.k.do("frag_store", self.at(0), self.at(pitch), value, mem=mem, trans=trans)


def product(family: str, dtype: str) -> Kernel:
    """d = a x b + c over [32, 32] x [32, 48]; a lies transposed."""
    t = Tile(family, f"product_{family}_{dtype}")
    a = t.k.param("a", dtype, M * K, "r")
    b = t.k.param("b", dtype, K * N, "r")
    c, d = t.k.param("c", "f32", M * N, "r"), t.k.param("d", "f32", M * N, "w")
    left = t.load(a, t.frag("a", M, K, dtype), M, trans=True)
    right = t.load(b, t.frag("b", K, N, dtype), N)
    total = t.load(c, t.frag("acc", M, N, "f32"), N)
    made = t.k.op("mma", left, right, total, type=t.frag("acc", M, N, "f32"))
    t.store(d, made, N)
    return t.k.kernel()


def feed(dtype: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    sizes = {"a": M * K, "b": K * N}
    out = {
        n: rng.standard_normal(s).astype(np.float32).astype(NUMPY[dtype]) for n, s in sizes.items()
    }
    return out | {"c": rng.standard_normal(M * N).astype(np.float32)}


@pytest.mark.parametrize("family, dtype", PAIRS)
def test_products_are_the_simulators(family: str, dtype: str):
    given = feed(dtype)
    got = agree(product(family, dtype), given, within=WITHIN)["d"].reshape(M, N)
    wide = {n: x.astype(np.float64) for n, x in given.items()}
    want = wide["a"].reshape(K, M).T @ wide["b"].reshape(K, N) + wide["c"].reshape(M, N)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family, dtype", PAIRS)
def test_products_are_the_units_own_instructions(family: str, dtype: str):
    wave, limits = FAMILIES[family]
    code = code_of(product(family, dtype), limits)
    rows = assembly([code], limits.arch)
    tiles = (M // 16) * (N // 16) * (K // 16) * (4 if dtype == "f32" else 1)
    assert rows.count(INSTRUCTIONS[family, dtype]) == tiles
    (said,) = facts(code_object([code], limits.arch)).values()
    assert (said.wave, said.spills, said.private_nbytes) == (wave, 0, 0)


def test_gfx90a_has_the_same_products():
    limits = replace(MI300X, arch="gfx90a")
    for dtype in ("f16", "bf16", "f32"):
        rows = assembly([code_of(product("mfma", dtype), limits)], "gfx90a")
        assert "v_mfma_f32_16x16x" in rows


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("family", FAMILIES)
def test_elements_are_reduced_and_applied_by_row_and_by_column(family: str, axis: int):
    """y = x - max of the lane's own part of each line; the parts are as the lane map says."""
    t = Tile(family, f"lines_{family}_{axis}")
    x, y = t.k.param("x", "f32", 32 * 32, "r"), t.k.param("y", "f32", 32 * 32, "w")
    kind = t.frag("acc", 32, 32, "f32")
    whole = t.load(x, kind, 32)
    held = {("mfma", 0): 2, ("mfma", 1): 8, ("wmma", 0): 2, ("wmma", 1): 16}[family, axis]
    for fold, by in (("max", "sub"), ("add", "add"), ("min", "mul")):
        line = t.k.op("frag_reduce", whole, type=Ty("f32", held), axis=axis, kind=fold)
        whole = t.k.op("frag_apply", whole, line, type=kind, axis=axis, kind=by)
    t.store(y, whole, 32)
    rng = np.random.default_rng(2)
    agree(t.k.kernel(), {"x": rng.standard_normal(1024).astype(np.float32)}, within=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_elements_know_their_row_and_column(family: str):
    t = Tile(family, f"places_{family}")
    y = t.k.param("y", "i32", 32 * 48, "w")
    kind = t.frag("acc", 32, 48, "i32")
    rows = t.k.op("frag_coord", type=kind, axis=0)
    columns = t.k.op("frag_coord", type=kind, axis=1)
    t.store(y, t.k.op("add", t.k.op("mul", rows, t.k.op("frag_fill", t.k.lit(100, I32), type=kind)),
                      columns), 48)  # fmt: skip
    got = agree(t.k.kernel(), {})["y"].reshape(32, 48)
    np.testing.assert_array_equal(got, np.arange(32)[:, None] * 100 + np.arange(48))


@pytest.mark.parametrize("family", FAMILIES)
def test_columns_are_sliced_packed_and_cast(family: str):
    t = Tile(family, f"slice_{family}")
    x, y = t.k.param("x", "f32", 16 * 48, "r"), t.k.param("y", "f16", 16 * 16, "w")
    whole = t.load(x, t.frag("acc", 16, 48, "f32"), 48)
    part = t.k.op("frag_slice", whole, type=t.frag("acc", 16, 16, "f32"), at=16)
    count = {"mfma": 4, "wmma": 8}[family]
    scalars = [t.k.extract(part, n) for n in range(count)]
    again = t.k.op("frag_pack", *scalars, type=t.frag("acc", 16, 16, "f32"))
    narrow = t.k.op("frag_cast", again, type=t.frag("acc", 16, 16, "f16"))
    t.store(y, narrow, 16, trans=True)
    given = np.random.default_rng(4).standard_normal(16 * 48).astype(np.float32)
    got = agree(t.k.kernel(), {"x": given})["y"].reshape(16, 16)
    np.testing.assert_array_equal(got.T, given.reshape(16, 48)[:, 16:32].astype(np.float16))


@pytest.mark.parametrize("swizzle", ["row", "128B"])
def test_swizzled_tiles_come_back_as_they_went(swizzle: str):
    t = Tile("mfma", f"swizzled_{swizzle}")
    x, y = t.k.param("x", "f16", 16 * 64, "r"), t.k.param("y", "f16", 16 * 64, "w")
    held = t.k.shared("held", "f16", 16 * 64, 1024)
    kind = t.frag("a", 16, 64, "f16")
    whole = t.load(x, kind, 64)
    t.k.do("frag_store", t.at(0), t.at(64), whole, mem=held, swizzle=swizzle)
    t.k.barrier()
    t.store(y, t.load(held, kind, 64, swizzle=swizzle), 64)
    given = np.random.default_rng(5).standard_normal(16 * 64).astype(np.float16)
    got = agree(t.k.kernel(), {"x": given})["y"]
    np.testing.assert_array_equal(got, given)
    assert f"swizzle_{swizzle.lower()}(" in text_of(t.k.kernel())


def test_a_unit_that_the_card_lacks_is_refused_by_name():
    for family, limits in (("mfma", replace(MI300X, arch="gfx906")), ("wmma", MI300X)):
        kernel = replace(product(family, "f16"), subgroup=None)
        with pytest.raises(DtypeLowering, match=f"frag_load: {family} fragments are of gfx"):
            emit(kernel, limits)


def test_fragments_of_another_maker_are_refused():
    k = KernelBuilder("theirs", 32, 32)
    k.op("frag_fill", k.lit(0.0), type=Frag("mma", "acc", 16, 8, "f32"))
    with pytest.raises(DtypeLowering, match="hip has no mma fragments: ask for mfma or wmma"):
        emit(k.kernel(), RDNA3)


def test_a_product_that_no_unit_has_is_refused():
    kernel = product("wmma", "f16")
    text = replace(kernel, body=tuple(_as_f32(i) for i in kernel.body))
    with pytest.raises(DtypeLowering, match="wmma multiplies no f32 by f32"):
        emit(text, RDNA3)


def _as_f32(ins: object) -> object:
    def wide(operand: object) -> object:
        type = getattr(operand, "type", None)
        if isinstance(type, Frag) and type.dtype == "f16":
            return replace(operand, type=replace(type, dtype="f32"))
        return operand

    return replace(ins, dsts=tuple(map(wide, ins.dsts)), args=tuple(map(wide, ins.args)))
