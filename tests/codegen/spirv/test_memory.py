"""Loads, stores, atomics and workgroup memory, at every width and dtype, on every GPU target."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.kir.build import F32, I32, KernelBuilder
from poot.codegen.kir.nodes import Param
from poot.codegen.spirv.emit import emit
from poot.codegen.spirv.memory import Access, element_of
from poot.errors import DtypeLowering
from poot.ir.dtypes import DTYPES
from poot.limits import profile
from tests.support.gpu import DEVICES, gpu, launch_arrays

DTYPE = ("f32", "i32", "u32", "bool", "f16", "bf16", "i8", "u8", "f8e4m3")
NARROW = ("f16", "bf16", "i8", "u8", "f8e4m3")


def values(dtype: str, count: int) -> np.ndarray:
    rng = np.random.default_rng(count)
    if dtype == "bool":
        return rng.integers(0, 2, count).astype(np.bool_)
    if dtype in ("i32", "u32", "i8", "u8"):
        info = np.iinfo(DTYPES[dtype].numpy)
        return rng.integers(info.min, info.max, count, DTYPES[dtype].numpy, endpoint=True)
    return rng.standard_normal(count).astype(np.float32).astype(DTYPES[dtype].numpy)


def wide(dtype: str) -> str:
    """A 32-bit dtype that holds every value of the other."""
    return {"i8": "i32", "u8": "u32", "bool": "bool"}.get(
        dtype, "f32" if dtype in NARROW else dtype
    )


def widened(x: np.ndarray, dtype: str) -> np.ndarray:
    return x.astype(DTYPES[wide(dtype)].numpy)


@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("dtype", DTYPE)
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
def test_vectors_load_at_every_width(target, dtype, lanes):
    k = KernelBuilder("loads", 4)
    count = 4 * lanes
    x, y = k.param("x", dtype, count, "r"), k.param("y", wide(dtype), count, "w")
    at = k.lane() * lanes
    v = k.load(x, at, lanes)
    for n in range(lanes):
        k.store(y, at + n, k.cast(v if lanes == 1 else k.extract(v, n), wide(dtype)))
    feed = values(dtype, count)
    got = launch_arrays(gpu(target), k.kernel(), {"x": feed})["y"]
    np.testing.assert_array_equal(got, widened(feed, dtype))


@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("dtype", DTYPE)
def test_scalars_load_at_literal_and_odd_indices(target, dtype):
    k = KernelBuilder("scalars", 1)
    x, y = k.param("x", dtype, 33, "r"), k.param("y", wide(dtype), 33, "w")
    for n in (0, 1, 2, 3, 31, 32):
        k.store(y, n, k.cast(k.load(x, n), wide(dtype)))
    with k.for_(4, 31) as i:
        k.store(y, i, k.cast(k.load(x, i), wide(dtype)))
    feed = values(dtype, 33)
    got = launch_arrays(gpu(target), k.kernel(), {"x": feed})["y"]
    np.testing.assert_array_equal(got, widened(feed, dtype))


WHOLE = [(d, n) for d in DTYPE for n in (1, 2, 4, 8) if n * DTYPES[d].nbytes >= 4]


@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("dtype, lanes", WHOLE)
def test_vectors_store_whole_words(target, dtype, lanes):
    k = KernelBuilder("stores", 4)
    count = 4 * lanes
    x, y = k.param("x", wide(dtype), count, "r"), k.param("y", dtype, count, "w")
    at = k.lane() * lanes
    parts = [k.cast(k.load(x, at + n), dtype) for n in range(lanes)]
    k.store(y, at, parts[0] if lanes == 1 else k.vec(*parts))
    feed = values(dtype, count)
    got = launch_arrays(gpu(target), k.kernel(), {"x": widened(feed, dtype)})["y"]
    np.testing.assert_array_equal(got, feed)


@pytest.mark.parametrize("target", ["vulkan", "wgpu"])
@pytest.mark.parametrize("width", [33, 63])
def test_scalar_f16_stores_where_the_device_has_them(target, width):
    device = gpu(target)
    assert device.limits.has_f16_storage
    k = KernelBuilder("halves", 1)
    x, y = k.param("x", "f32", 2 * width, "r"), k.param("y", "f16", 2 * width, "rw")
    row = k.group_id(0)
    with k.for_(0, width) as i:
        at = row * width + i
        k.store(y, at, k.cast(k.load(x, at) + k.cast(k.load(y, at), "f32"), "f16"))
    feed, old = values("f32", 2 * width), values("f16", 2 * width)
    got = launch_arrays(device, k.kernel(), {"x": feed, "y": old}, (2, 1, 1))["y"]
    np.testing.assert_array_equal(got, (feed + old.astype(np.float32)).astype(np.float16))


def stores_one(dtype: str, space: str = "param") -> KernelBuilder:
    k = KernelBuilder("one", 1)
    y = k.param("y", dtype, 4, "w") if space == "param" else k.shared("y", dtype, 4)
    k.store(y, 0, k.cast(k.lit(1.0, F32), dtype))
    return k


@pytest.mark.parametrize(
    "dtype, limits, space",
    [
        ("f16", "webgpu-baseline", "param"),
        ("bf16", "webgpu-baseline", "param"),
        ("bf16", "lavapipe", "param"),
        ("i8", "lavapipe", "param"),
        ("f16", "lavapipe", "shared"),
    ],
)
def test_a_scalar_narrow_store_is_refused_with_the_remedy(dtype, limits, space):
    held = 4 // DTYPES[dtype].nbytes
    with pytest.raises(DtypeLowering, match=f"scalar {dtype} store to y .* vectors of {held}"):
        emit(stores_one(dtype, space).kernel(), profile(limits))


@pytest.mark.parametrize(
    "lanes, limits, found",
    [
        ((4, 4), "lavapipe", ("f32", 4)),
        ((4, 2), "lavapipe", ("f32", 2)),
        ((4, 1), "lavapipe", ("f32", 1)),
        ((8, 16), "lavapipe", ("f32", 4)),
        ((), "lavapipe", ("f32", 1)),
    ],
)
def test_an_array_is_of_the_widest_vector_that_suits_every_access(lanes, limits, found):
    uses = [Access("load", n, None) for n in lanes]
    assert element_of(Param("x", "f32", 64, "r"), uses, profile(limits)) == found


@pytest.mark.parametrize(
    "uses, limits, found",
    [
        ((("load", 8),), "lavapipe", ("u32", 4)),
        ((("load", 2), ("load", 1)), "lavapipe", ("u32", 1)),
        ((("load", 1),), "lavapipe", ("f16", 1)),
        ((("load", 1),), "webgpu-baseline", ("u32", 1)),
        ((("load", 8), ("store", 1)), "lavapipe", ("f16", 1)),
        ((("store", 4),), "lavapipe", ("u32", 2)),
    ],
)
def test_halves_lie_in_words_unless_scalars_ask_for_their_own(uses, limits, found):
    made = [Access(op, n, None) for op, n in uses]
    assert element_of(Param("x", "f16", 64, "rw"), made, profile(limits)) == found


@pytest.mark.parametrize("target", DEVICES)
def test_accesses_of_different_widths_share_one_buffer(target):
    k = KernelBuilder("mixed", 8)
    x, y = k.param("x", "f32", 32, "rw"), k.param("y", "f32", 8, "w")
    lane = k.lane()
    v = k.load(x, lane * 4, 4)
    pair = k.load(x, lane * 4 + 2, 2)
    total = k.extract(v, 0) + k.extract(v, 3) * 10.0 + k.extract(pair, 0) * 100.0
    k.store(y, lane, total + k.load(x, lane * 4 + 1) * 1000.0)
    feed = np.arange(32, dtype=np.float32)
    got = launch_arrays(gpu(target), k.kernel(), {"x": feed})["y"]
    a = feed.reshape(8, 4)
    np.testing.assert_array_equal(got, a[:, 0] + a[:, 3] * 10 + a[:, 2] * 100 + a[:, 1] * 1000)


@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("dtype, lanes", [("f32", 1), ("f32", 4), ("f16", 2), ("u8", 4)])
def test_workgroup_memory_passes_values_between_lanes(target, dtype, lanes):
    threads = 32
    k = KernelBuilder("reverse", threads)
    count = threads * lanes
    x, y = k.param("x", dtype, count, "r"), k.param("y", dtype, count, "w")
    s = k.shared("s", dtype, count)
    lane = k.lane()
    k.store(s, lane * lanes, k.load(x, lane * lanes, lanes))
    k.barrier()
    k.store(y, lane * lanes, k.load(s, (31 - lane) * lanes, lanes))
    feed = values(dtype, count)
    got = launch_arrays(gpu(target), k.kernel(), {"x": feed})["y"]
    np.testing.assert_array_equal(got, feed.reshape(threads, lanes)[::-1].reshape(-1))


@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("threads", [2, 32, 64, 256])
def test_a_read_stays_between_its_barriers(target, threads):
    """Write, barrier, read, barrier, overwrite: what was read is stored (case 117)."""
    groups = 200
    k = KernelBuilder("fences", threads)
    y, s = k.param("y", "i32", threads * groups, "w"), k.shared("s", "i32", 1)
    lane = k.lane()
    with k.if_(lane.eq(0)):
        k.store(s, 0, k.lit(1, I32))
    k.barrier()
    read = k.load(s, 0)
    k.barrier()
    with k.if_(lane.eq(0)):
        k.store(s, 0, k.lit(2, I32))
    k.store(y, k.group_id(0) * threads + lane, read)
    got = launch_arrays(gpu(target), k.kernel(), {}, (groups, 1, 1))["y"]
    np.testing.assert_array_equal(got, 1)


@pytest.mark.parametrize("target", DEVICES)
def test_a_tree_in_workgroup_memory_sums_a_group(target):
    threads = 64
    k = KernelBuilder("tree", threads)
    x, y = k.param("x", "f32", threads * 3, "r"), k.param("y", "f32", 3, "w")
    s, lane = k.shared("s", "f32", threads), k.lane()
    k.store(s, lane, k.load(x, k.group_id(0) * threads + lane))
    width = threads // 2
    while width:
        k.barrier()
        with k.if_(lane < width):
            k.store(s, lane, k.load(s, lane) + k.load(s, lane + width))
        width //= 2
    k.barrier()
    with k.if_(lane.eq(0)):
        k.store(y, k.group_id(0), k.load(s, 0))
    feed = np.arange(threads * 3, dtype=np.float32)
    got = launch_arrays(gpu(target), k.kernel(), {"x": feed}, (3, 1, 1))["y"]
    np.testing.assert_array_equal(got, feed.reshape(3, threads).sum(1))


KINDS = {
    "add": lambda x: x.sum(dtype=x.dtype),
    "max": np.max,
    "min": np.min,
    "and": np.bitwise_and.reduce,
    "or": np.bitwise_or.reduce,
}


@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("dtype", ["i32", "u32"])
@pytest.mark.parametrize("space", ["buffer", "group"])
@pytest.mark.parametrize("kind", [*KINDS, "exchange"])
def test_atomics_fold_every_lane(target, dtype, space, kind):
    threads = 32
    k = KernelBuilder("atomics", threads)
    x, y = k.param("x", dtype, threads, "r"), k.param("y", dtype, 2, "rw")
    s, lane = k.shared("s", dtype, 1), k.lane()
    mem = s if space == "group" else y
    with k.if_(lane.eq(0)):
        k.store(s, 0, k.load(x, 0))
        k.store(y, 0, k.load(x, 0))
    k.barrier()
    k.do("fence", scope="group")
    with k.if_(lane > 0):
        value = k.load(x, lane)
        k.op("atomic", k.lit(0, I32), value, type=value.ty, mem=mem, kind=kind)
    k.barrier()
    with k.if_(lane.eq(0)):
        k.store(y, 1, k.load(s, 0))
    feed = values(dtype, threads)
    if kind == "exchange":  # whose value stays is not said
        feed[1:] = feed[1]
    got = launch_arrays(gpu(target), k.kernel(), {"x": feed})["y"][0 if space == "buffer" else 1]
    if kind == "exchange":
        assert got == feed[1] != feed[0]
    else:
        assert got == KINDS[kind](feed)


@pytest.mark.parametrize("target", DEVICES)
def test_a_hint_says_nothing(target):
    k = KernelBuilder("hints", 4)
    x, y = k.param("x", "f32", 8, "r"), k.param("y", "f32", 4, "w")
    k.prefetch(x, k.lane() + 4)
    k.store(y, k.lane(), k.load(x, k.lane()))
    got = launch_arrays(gpu(target), k.kernel(), {"x": values("f32", 8)})["y"]
    np.testing.assert_array_equal(got, values("f32", 8)[:4])
