"""Fragments hold matrices: loads, stores, products, reductions, conversions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from poot.codegen.kir.frags import LANE_MAPS, coords
from poot.codegen.kir.nodes import Frag
from poot.ir.dtypes import DTYPES
from tests.support.kernels import run_kernel

pytestmark = pytest.mark.quick
RNG = np.random.default_rng(0)
BF16 = ml_dtypes.bfloat16


def copies(family: str, role: str) -> tuple[str, int, int, int]:
    row = LANE_MAPS[family, role]
    return f"frag[{family},{role},{row.tile[0]},{row.tile[1]},f32]", *row.tile, row.lanes


@pytest.mark.parametrize("key", [k for k in LANE_MAPS if k[1] != "8x8"], ids="-".join)
@pytest.mark.parametrize("trans", ["true", "false"])
def test_a_matrix_comes_out_of_a_fragment_as_it_went_in(key, trans):
    name, m, n, lanes = copies(*key)
    head = f"param x: f32[{m * n}] r align=16\nparam y: f32[{m * n}] w align=16"
    pitch = m if trans == "true" else n
    body = f"f: {name} = frag_load x[0], {pitch} trans={trans}\n"
    body += f"frag_store y[0], {pitch}, f trans={trans}"
    x, y = RNG.standard_normal(m * n).astype(np.float32), np.zeros(m * n, np.float32)
    run_kernel(
        body, head, {"x": x, "y": y}, threads=lanes, width=min(lanes, 64) if lanes != 128 else 32
    )
    np.testing.assert_array_equal(x, y)


def test_an_opaque_fragment_does_too():
    head = "param x: f32[128] r align=16\nparam y: f32[128] w align=16"
    body = (
        "f: frag[coop,acc,8,16,f32] = frag_load x[0], 16\ng: frag[coop,acc,8,16,f32] = add f, f\n"
    )
    x, y = RNG.standard_normal(128).astype(np.float32), np.zeros(128, np.float32)
    run_kernel(body + "frag_store y[0], 16, g", head, {"x": x, "y": y}, threads=32, width=32)
    np.testing.assert_array_equal(2 * x, y)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("trans", ["false", "true"])
def test_elements_of_16_bits_may_lie_in_words(dtype, trans):
    head = "param x: u32[192] r align=16\nparam y: f32[256] w align=16"
    kind = f"frag[mma,a,16,16,{dtype}]"
    body = (
        f"f: {kind} = frag_load x[0], 24 trans={trans}\n"
        "g: frag[mma,a,16,16,f32] = frag_cast f\nfrag_store y[0], 16, g"
    )
    rows = RNG.standard_normal((16, 24)).astype(DTYPES[dtype].numpy)
    y = np.zeros(256, np.float32)
    run_kernel(body, head, {"x": rows.view(np.uint32).reshape(-1), "y": y}, threads=32, width=32)
    want = rows[:, :16].astype(np.float32)
    np.testing.assert_array_equal(y.reshape(16, 16), want.T if trans == "true" else want)


@pytest.mark.parametrize(
    "family, m, n, k, lanes",
    [("mma", 16, 8, 16, 32), ("mfma", 16, 16, 16, 64), ("wmma", 16, 16, 16, 32)],
)
def test_products_are_of_the_matrices(family, m, n, k, lanes):
    a, b, c = (RNG.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n), (m, n)))
    a, b = a.astype(np.float16), b.astype(np.float16)
    head = f"""
      param a: f16[{m * k}] r align=16
      param b: f16[{k * n}] r align=16
      param c: f32[{m * n}] rw align=16
    """
    body = f"""
      fa: frag[{family},a,{m},{k},f16] = frag_load a[0], {k}
      fb: frag[{family},b,{k},{n},f16] = frag_load b[0], {n}
      fc: frag[{family},acc,{m},{n},f32] = frag_load c[0], {n}
      fd: frag[{family},acc,{m},{n},f32] = mma fa, fb, fc
      frag_store c[0], {n}, fd
    """
    got = c.copy()
    run_kernel(body, head, {"a": a, "b": b, "c": got}, threads=lanes, width=lanes)
    np.testing.assert_allclose(
        got, c + a.astype(np.float32) @ b.astype(np.float32), rtol=1e-5, atol=1e-5
    )


HEAD = "param x: f32[128] r align=16\nparam y: f32[128] w align=16\nshared s: bf16[1024] align=1024"


def on_tile(body: str, x: np.ndarray) -> np.ndarray:
    """What a body makes of an mma accumulator tile [16, 8]."""
    y = np.zeros(128, np.float32)
    text = f"f: frag[mma,acc,16,8,f32] = frag_load x[0], 8\n{body}\nfrag_store y[0], 8, r"
    run_kernel(text, HEAD, {"x": x, "y": y}, threads=32, width=32)
    return y.reshape(16, 8)


X = RNG.standard_normal((16, 8)).astype(np.float32)
ACC = "frag[mma,acc,16,8,f32]"


def butterfly(masks: tuple[int, ...], kind: str) -> str:
    lines, last = [], "p"
    for n, mask in enumerate(masks):
        lines += [f"e{n}x: f32 = extract {last} at=0", f"e{n}y: f32 = extract {last} at=1"]
        for c in "xy":
            lines += [
                f"s{n}{c}: f32 = shuffle_xor e{n}{c} mask={mask}",
                f"t{n}{c}: f32 = {kind} e{n}{c}, s{n}{c}",
            ]
        lines.append(f"v{n}: f32x2 = vec t{n}x, t{n}y")
        last = f"v{n}"
    return "\n".join(lines)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind, fold", [("max", np.max), ("add", np.sum)])
def test_a_reduction_is_the_lanes_part_then_the_masks_of_the_map(axis, kind, fold):
    masks = LANE_MAPS["mma", "acc"].lane_masks(axis)
    assert masks == ((1, 2) if axis == 1 else (4, 8, 16))
    body = f"p: f32x2 = frag_reduce f axis={axis} kind={kind}\n{butterfly(masks, kind)}\n"
    body += (
        f"z: {ACC} = frag_fill 0.0\nr: {ACC} = frag_apply z, v{len(masks) - 1} axis={axis} kind=add"
    )
    want = np.broadcast_to(fold(X, axis=axis, keepdims=True), X.shape)
    np.testing.assert_allclose(on_tile(body, X), want, rtol=1e-5, atol=1e-6)


def test_elements_know_their_place():
    body = (
        "a: frag[mma,acc,16,8,i32] = frag_coord axis=0\n"
        "b: frag[mma,acc,16,8,i32] = frag_coord axis=1\n"
    )
    body += "c: frag[mma,acc,16,8,bool] = lt b, a\nz: frag[mma,acc,16,8,f32] = frag_fill 0.0\n"
    got = on_tile(body + f"r: {ACC} = select c, f, z", X)
    rows, columns = np.indices((16, 8))
    np.testing.assert_array_equal(got, np.where(columns < rows, X, 0))


def test_registers_can_be_taken_out_and_put_together():
    body = "\n".join(f"e{n}: f32 = extract f at={n}" for n in range(4))
    got = on_tile(body + f"\ng: {ACC} = frag_pack e1, e0, e3, e2\nr: {ACC} = insert g, 0.5 at=0", X)
    want = X.reshape(16, 4, 2)[:, :, ::-1].reshape(16, 8).copy()
    r, c = coords(Frag("mma", "acc", 16, 8, "f32"))
    want[r[0], c[0]] = 0.5
    np.testing.assert_array_equal(got, want)


def test_an_accumulator_moves_to_an_operand_as_the_same_matrix():
    """P [16 keys, 8 heads] as B: an identity times it is P."""
    y = np.zeros(128, np.float32)
    head = HEAD + "\nparam one: bf16[256] r align=16"
    body = """
      f: frag[mma,acc,16,8,f32] = frag_load x[0], 8
      h: frag[mma,acc,16,8,bf16] = frag_cast f
      b: frag[mma,b,16,8,bf16] = frag_move h
      a: frag[mma,a,16,16,bf16] = frag_load one[0], 16
      z: frag[mma,acc,16,8,f32] = frag_fill 0.0
      r: frag[mma,acc,16,8,f32] = mma a, b, z
      frag_store y[0], 8, r
    """
    run_kernel(body, head, {"x": X, "y": y, "one": np.eye(16).astype(BF16)}, threads=32, width=32)
    np.testing.assert_array_equal(y.reshape(16, 8), X.astype(BF16).astype(np.float32))


def test_a_slice_has_the_columns_from_its_start():
    x = RNG.standard_normal((16, 32)).astype(np.float32)
    y = np.zeros((16, 16), np.float32)
    head = "param x: f32[512] r align=16\nparam y: f32[256] w align=16"
    body = """
      f: frag[mma,acc,16,32,f32] = frag_load x[0], 32
      r: frag[mma,acc,16,16,f32] = frag_slice f at=8
      frag_store y[0], 16, r
    """
    run_kernel(body, head, {"x": x, "y": y}, threads=32, width=32)
    np.testing.assert_array_equal(y, x[:, 8:24])


@pytest.mark.parametrize("name", ["row", '"128B"'])
def test_a_swizzled_tile_is_read_as_it_was_written(name):
    y = np.zeros(256, np.float32)
    head = (
        "param x: bf16[256] r align=16\nparam y: f32[256] w align=16\n"
        "shared s: bf16[1024] align=1024"
    )
    body = f"""
      f: frag[mma,a,16,16,bf16] = frag_load x[0], 16
      frag_store s[16], 64, f swizzle={name}
      barrier scope=subgroup
      g: frag[mma,a,16,16,bf16] = frag_load s[16], 64 swizzle={name}
      h: frag[mma,a,16,16,f32] = frag_cast g
      frag_store y[0], 16, h
    """
    x = RNG.standard_normal(256).astype(BF16)
    run_kernel(body, head, {"x": x, "y": y}, threads=32, width=32)
    np.testing.assert_array_equal(y, x.astype(np.float32))


@pytest.mark.parametrize("dtype, kind", [("i8", np.int8), ("f8e4m3", ml_dtypes.float8_e4m3fn)])
def test_every_code_is_unpacked_as_it_is(dtype: str, kind: type):
    codes = np.arange(256, dtype=np.uint8)
    y = np.zeros(256, np.float16)
    head = "param x: u32[64] r align=16\nparam y: f16[256] w align=16"
    body = f"""
      l: i32 = lane
      at: i32 = mul l, 4
      u: u32 = load x[l]
      four: f16x4 = unpack u dtype={dtype}
      store y[at], four
    """
    run_kernel(body, head, {"x": codes.view(np.uint32), "y": y}, threads=64, width=32)
    np.testing.assert_array_equal(y, codes.view(kind).astype(np.float16))
