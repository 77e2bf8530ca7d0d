"""Addresses, widths, caches and layout of memory."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from poot.codegen.kir.build import I32, KernelBuilder
from poot.codegen.kir.nodes import Ty
from poot.codegen.ptx.memory import dynamic_nbytes
from poot.errors import DtypeLowering
from tests.support.ptx_agree import agree, assembled, ptx_of

NUMPY = {
    "f32": np.float32, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f8e4m3": ml_dtypes.float8_e4m3fn,
    "i8": np.int8, "u8": np.uint8,
}  # fmt: skip
WIDE = ("i64", "u64")  # the test's arrays have no such dtype in a graph


def moved(dtype: str, lanes: int, align: int = 16):
    """y = x, through workgroup memory, `lanes` elements at a time."""
    k = KernelBuilder("moved", 32)
    x, y = k.param("x", dtype, 32 * lanes, "r", align), k.param("y", dtype, 32 * lanes, "w", align)
    s = k.shared("s", dtype, 32 * lanes)
    k.store(s, k.lane() * lanes, k.load(x, k.lane() * lanes, lanes))
    k.barrier()
    other = (31 - k.lane()) * lanes
    k.store(y, other, k.load(s, other, lanes))
    return k.kernel()


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("dtype", [*NUMPY, "bool"])
def test_vectors_of_every_dtype_come_and_go(dtype, lanes):
    kernel = moved(dtype, lanes)
    if dtype in WIDE:
        assert [r.spills for r in assembled(kernel)] == [0, 0]
        return
    x = np.arange(32 * lanes) % 120 - 60
    with np.errstate(invalid="ignore"):  # negative numbers as unsigned ones
        x = x % 3 == 0 if dtype == "bool" else x.astype(np.float32).astype(np.dtype(NUMPY[dtype]))
    np.testing.assert_array_equal(agree(kernel, {"x": x})["y"], x)


def test_an_access_is_as_wide_as_its_alignment():
    assert "ld.global.v4.b32" in ptx_of(moved("f32", 4))
    assert "ld.global.v2.b32" in ptx_of(moved("f32", 4, align=8))
    assert ptx_of(moved("bf16", 8)).count("ld.global.v4.b32") == 1
    assert ptx_of(moved("f32", 16)).count("ld.global.v4.b32") == 4
    assert ptx_of(moved("bf16", 2, align=2)).count("ld.global.b16") == 2


@pytest.mark.parametrize(
    "cache, load, store",
    [
        (None, "ld.global.b32", "st.global.b32"),
        ("stream", "ld.global.nc.L1::no_allocate.b32", "st.global.cs.b32"),
        ("relaxed", "ld.relaxed.gpu.global.b32", "st.relaxed.gpu.global.b32"),
    ],
)
def test_a_cache_is_a_qualifier(cache, load, store):
    k = KernelBuilder("caches", 32)
    x, y = k.param("x", "f32", 32, "r"), k.param("y", "f32", 32, "w")
    k.store(y, k.lane(), k.load(x, k.lane(), cache=cache), cache=cache)
    text = ptx_of(k.kernel())
    assert load in text
    assert store in text
    agree(k.kernel(), {"x": np.arange(32, dtype=np.float32)})


def test_what_nothing_writes_may_come_by_the_other_path():
    k = KernelBuilder("const", 32)
    x, y = k.param("x", "f32", 32, "r"), k.param("y", "f32", 32, "rw")
    k.store(y, k.lane(), k.load(x, k.lane(), cache="const") + k.load(y, k.lane(), cache="stream"))
    text = ptx_of(k.kernel())
    assert "ld.global.nc.b32" in text
    assert "ld.global.L1::no_allocate.b32" in text


def test_arrays_lie_one_behind_the_other_at_their_alignment():
    k = KernelBuilder("layout", 32)
    k.shared("a", "u8", 5)
    k.shared("b", "f32", 3, 1024)
    k.shared("c", "mbar", 2, 8)
    kernel = k.kernel()
    assert kernel.shared_offsets == {"a": 0, "b": 1024, "c": 1040}
    assert kernel.shared_nbytes == 1056
    assert dynamic_nbytes(kernel) == 0


def test_more_than_48_kib_is_asked_of_the_launch():
    k = KernelBuilder("large", 32)
    s, y = k.shared("s", "f32", 20000), k.param("y", "f32", 32, "w")
    k.store(s, k.lane() + 19968, k.cast(k.lane(), "f32"))
    k.barrier()
    k.store(y, k.lane(), k.load(s, 19999 - k.lane()))
    kernel = k.kernel()
    assert dynamic_nbytes(kernel) == 80000
    assert ".extern .shared .align 128 .b8 smem[];" in ptx_of(kernel)
    agree(kernel, {})


@pytest.mark.parametrize("dtype", ["i32", "u32", "i64"])
def test_an_index_may_be_of_every_integer(dtype):
    k = KernelBuilder("indices", 32)
    x, y, s = k.param("x", "f32", 64, "r"), k.param("y", "f32", 32, "w"), k.shared("s", "f32", 64)
    at = k.cast(k.lane(), dtype)
    k.store(s, at + k.lit(32, Ty(dtype)), k.load(x, at + k.lit(5, Ty(dtype))))
    k.store(y, at, k.load(s, at + k.lit(32, Ty(dtype))))
    agree(k.kernel(), {"x": np.arange(64, dtype=np.float32)})


@pytest.mark.parametrize("kind", ["add", "max", "min", "and", "or", "exchange"])
@pytest.mark.parametrize("dtype", ["i32", "u32"])
def test_atomics_on_buffers_and_workgroup_arrays(kind, dtype):
    k = KernelBuilder("atomics", 32)
    x, s = k.param("x", dtype, 8, "rw"), k.shared("s", dtype, 8)
    y = k.param("y", dtype, 8, "w")
    value = k.cast(k.lane() * 37 - 300, dtype)
    with k.if_(k.lane() < 8):
        k.store(s, k.lane(), k.lit(3, Ty(dtype)))
    k.barrier()
    k.op("atomic", k.lane() & 7, value, type=Ty(dtype), mem=x, kind=kind)
    k.op("atomic", k.lane() & 7, value, type=Ty(dtype), mem=s, kind=kind)
    k.barrier()
    with k.if_(k.lane() < 8):
        k.store(y, k.lane(), k.load(s, k.lane()))
    agree(k.kernel(), {"x": np.arange(8).astype(NUMPY[dtype])})


def test_atomics_on_floats_are_refused():
    k = KernelBuilder("floats", 32)
    k.op("atomic", k.lit(0, I32), k.lit(1.0), mem=k.param("x", "f32", 8, "rw"), kind="add")
    with pytest.raises(DtypeLowering, match="kernel floats: atomics are on i32 and u32: x is f32"):
        ptx_of(k.kernel())


def test_a_hint_is_a_prefetch_into_the_second_level_and_assembles():
    k = KernelBuilder("hints", 32)
    x, y = k.param("x", "f32", 64, "r"), k.param("y", "f32", 32, "w")
    k.prefetch(x, k.lane() + 32)
    k.store(y, k.lane(), k.load(x, k.lane()))
    assert "prefetch.global.L2 [" in ptx_of(k.kernel())
    assert len(assembled(k.kernel())) == 2
    agree(k.kernel(), {"x": np.arange(64, dtype=np.float32)})
