"""Loads, stores and atomics: every dtype and width against the simulator, and their spelling."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.kir.build import I32, U32, KernelBuilder
from poot.codegen.kir.nodes import ELEMENT_BYTES, Kernel, Ty
from poot.codegen.kir.sim.values import NUMPY
from poot.errors import DtypeLowering
from tests.support.hip.both import MI300X, RDNA3, agree, body_of, code_of, text_of
from tests.support.hip.code_objects import assembly, code_object, facts
from tests.support.hip.texts import own_name

N = 64
DTYPES = sorted(ELEMENT_BYTES)


def array_of(dtype: str, elems: int = N) -> np.ndarray:
    rng = np.random.default_rng(3)
    if dtype == "bool":
        return rng.integers(0, 2, elems).astype(np.bool_)
    kind = NUMPY[dtype]
    if dtype in ("f32", "f16", "bf16", "f8e4m3"):
        return rng.standard_normal(elems).astype(np.float32).astype(kind)
    info = np.iinfo(kind)
    return rng.integers(info.min, info.max, elems, dtype=kind, endpoint=True)


def copy(
    dtype: str, lanes: int, cache: str | None = None, store: str | None = None, align: int = 16
) -> Kernel:
    """Through a workgroup array and back: y = x, `lanes` elements a lane."""
    k = KernelBuilder(f"copy_{dtype}_{lanes}", N // lanes)
    x, y = k.param("x", dtype, N, "r", align), k.param("y", dtype, N, "w", align)
    held = k.shared("held", dtype, N)
    at = k.lane() * lanes
    k.store(held, at, k.load(x, at, lanes, cache=cache))
    k.barrier()
    k.store(y, at, k.load(held, at, lanes), cache=store)
    return k.kernel()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_width_arrives_as_it_left(dtype: str):
    widths = (1, 2) if dtype in ("i64", "u64") else (1, 2, 4, 8, 16)
    for lanes in widths:
        agree(copy(dtype, lanes), {"x": array_of(dtype)})


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i8"])
def test_hints_change_no_value(dtype: str):
    for load, store in (("const", None), ("stream", "stream"), ("relaxed", "relaxed")):
        for lanes in (1, 4):
            agree(copy(dtype, lanes, load, store), {"x": array_of(dtype)})


def test_an_access_without_the_alignment_goes_element_by_element():
    text = text_of(copy("f32", 4, align=4))
    assert "load_f32x4(x" not in text
    assert "f32x4{x[t2], x[t2 + 1], x[t2 + 2], x[t2 + 3]}" in text
    assert "load_f32x4(held" in text
    agree(copy("f32", 4, align=4), {"x": array_of("f32")})
    assert "load_f32x4(x" in text_of(copy("f32", 4))


def test_a_hint_is_the_compilers_own_word():
    text = text_of(copy("f32", 1, "stream", "relaxed"))
    assert "__builtin_nontemporal_load(x + t1)" in text
    assert "__hip_atomic_store(y + t1, " in text
    assert "__ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT" in text
    assert "*(volatile _Float16*)(y + t1) = " in text_of(copy("f16", 1, None, "relaxed"))


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("cache", [None, "stream"])
def test_a_vector_is_one_instruction(arch: str, cache: str | None):
    """16 bytes at once from a buffer, from workgroup memory and to a buffer."""
    limits = {"gfx942": MI300X, "gfx1100": RDNA3}[arch]
    lines = assembly([code_of(copy("f32", 4, cache, cache), limits)], arch).splitlines()
    for name in ("global_load", "ds_load", "ds_read", "global_store"):
        wide = [row for row in lines if row.split()[:1] and row.split()[0].startswith(name)]
        assert all(row.split()[0].endswith(("x4", "b128")) for row in wide), wide
    assert any("global_load" in row for row in lines)
    if cache:
        marks = {"gfx942": " nt", "gfx1100": " slc"}
        assert any(marks[arch] in row for row in lines if "global_load" in row), lines


@pytest.mark.parametrize("kind", ["add", "max", "min", "and", "or", "exchange"])
@pytest.mark.parametrize("dtype", ["i32", "u32"])
def test_atomics_fold_every_lanes_value(kind: str, dtype: str):
    k = KernelBuilder(f"fold_{kind}_{dtype}", N)
    x, y = k.param("x", dtype, N, "r"), k.param("y", dtype, 4, "rw")
    held = k.shared("held", dtype, 1)
    with k.if_(k.lane().eq(0)):
        k.store(held, 0, k.lit(1, Ty(dtype)))
    k.barrier()
    value = k.load(x, k.lane())
    for mem, at in ((y, k.group_id(0)), (held, 0)):
        k.op("atomic", at, value, type=Ty(dtype), mem=mem, kind=kind)
    k.barrier()
    if kind != "exchange":  # whose value stays is not said
        with k.if_(k.lane().eq(0)):
            k.store(y, k.group_id(0) + 2, k.load(held, 0))
    given = {"x": array_of(dtype), "y": np.array([5, 7, 0, 0], NUMPY[dtype])}
    if kind == "exchange":
        given["x"][:] = given["x"][0]
    agree(k.kernel(), given, (2, 1, 1))


def test_an_atomic_gives_the_old_value():
    k = KernelBuilder("tickets", N)
    y, count = k.param("y", "i32", N, "w"), k.param("count", "u32", 1, "rw")
    ticket = k.op("atomic", 0, k.lit(1, U32), type=U32, mem=count, kind="add")
    k.store(y, k.bitcast(ticket, I32), k.lane())
    # Which lane draws which ticket hangs on the order, so one order is run.
    got = agree(k.kernel(), {"count": np.zeros(1, np.uint32)}, order=0)
    assert sorted(got["y"]) == list(range(N))


def test_a_buffer_is_restrict_where_every_load_says_nothing_writes_it():
    k = KernelBuilder("kept", 4)
    x, z = k.param("x", "f32", 4, "r"), k.param("z", "f32", 4, "r")
    y = k.param("y", "f32", 4, "rw")
    k.store(y, k.lane(), k.load(x, k.lane(), cache="const") + k.load(z, k.lane()))
    text = text_of(k.kernel())
    assert "void poot_kept(const float* __restrict__ x, const float* z, float* y)" in text


def test_an_array_of_barriers_with_phases_is_refused():
    k = KernelBuilder("phases", 64)
    k.shared("bars", "mbar", 2)
    with pytest.raises(DtypeLowering, match="no barriers with phases: workgroup array bars"):
        text_of(k.kernel())


def test_workgroup_arrays_lie_in_one_block_as_the_plan_counts():
    """7 bytes, a gap of 1, 12 bytes, a gap of 4, 4 bytes: in that order, whoever compiles it."""
    k = KernelBuilder("block", 7)
    y = k.param("y", "f32", 7, "w")
    bytes_, words = k.shared("bytes", "u8", 7), k.shared("words", "f32", 3, 4)
    held = k.shared("shared", "i32", 1, 8)
    k.store(bytes_, k.lane(), k.cast(k.lane(), "u8"))
    with k.if_(k.lane() < 3):
        k.store(words, k.lane(), k.cast(k.lane(), "f32") * 2.0)
    with k.if_(k.lane().eq(0)):
        k.store(held, 0, 100)
    k.barrier()
    total = k.load(words, k.lane() % 3) + k.cast(k.load(bytes_, 6 - k.lane()), "f32")
    k.store(y, k.lane(), total + k.cast(k.load(held, 0), "f32"))
    kernel = k.kernel()
    assert body_of(kernel)[:4] == [
        "__shared__ unsigned char shared[28] __attribute__((aligned(16)));",
        "unsigned char (&bytes)[7] = *(unsigned char (*)[7])shared;",
        "float (&words)[3] = *(float (*)[3])(shared + 8);",
        "int (&shared_)[1] = *(int (*)[1])(shared + 24);",
    ]
    got = agree(kernel, {})["y"]
    np.testing.assert_array_equal(got, [106, 107, 108, 103, 104, 105, 100])
    for arch, limits in (("gfx942", MI300X), ("gfx1100", RDNA3)):
        said = facts(code_object([code_of(kernel, limits)], arch))[own_name(0)]
        assert said.shared_nbytes == kernel.shared_nbytes == 28
        rows = assembly([code_of(kernel, limits)], arch).splitlines()
        words = {row.split()[0] for row in rows if row.strip()}
        assert any(word.startswith("ds_") for word in words)
        # Those look up at run time which memory they are of.
        assert not [word for word in words if word.startswith("flat_")]


def test_wide_indices_reach_past_two_to_the_31():
    k = KernelBuilder("far", 1)
    x, y = k.param("x", "u8", 1 << 33, "r"), k.param("y", "u8", 1, "w")
    far = k.cast(k.group_id(0), "i64") + k.lit((1 << 32) + 5, Ty("i64"))
    k.store(y, 0, k.load(x, far))
    assert "const long long t3 = t2 + 4294967301ll;" in body_of(k.kernel())


def test_a_hint_is_a_prefetch_and_changes_no_value():
    k = KernelBuilder("hints", N)
    x, y = k.param("x", "f32", 2 * N, "r"), k.param("y", "f32", N, "w")
    k.prefetch(x, k.lane() + N)
    k.store(y, k.lane(), k.load(x, k.lane()))
    assert "__builtin_prefetch(x + " in text_of(k.kernel())
    agree(k.kernel(), {"x": array_of("f32", 2 * N)})
