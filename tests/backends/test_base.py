"""What `Device` promises, on every target."""

from __future__ import annotations

import gc
import resource
import threading

import numpy as np
import pytest

from poot.backends.base import BufferRef, Code, Device, Launch
from poot.codegen.kir.build import KernelBuilder
from poot.errors import (
    BackendError,
    BindingLimit,
    GridLimit,
    LaunchError,
    OutOfDeviceMemory,
    PootError,
)
from tests.support.gpu import DEVICES, clean, gpu

N = 256
BYTES = 4 * N
pytestmark = pytest.mark.parametrize("target", DEVICES)


def axpy(device: Device, name: str = "axpy") -> Code:
    """y += a * x over N floats, in groups of 64."""
    k = KernelBuilder(name, 64)
    x, y, a = k.param("x", "f32", N, "r"), k.param("y", "f32", N, "rw"), k.imm("a", "f32")
    i = k.group_id(0) * 64 + k.lane()
    k.store(y, i, k.load(x, i) * a + k.load(y, i))
    return device.emit(k.kernel())


def launch(a: float, x: BufferRef, y: BufferRef, grid: int = 4) -> Launch:
    return Launch(0, (grid, 1, 1), (x, y), (a,))


def refs(space: str = "arena") -> tuple[BufferRef, BufferRef]:
    return BufferRef(space, 0, BYTES), BufferRef(space, BYTES, BYTES)


def test_memory_starts_as_zeros_and_holds_what_is_copied(target):
    device = gpu(target)
    for nbytes in (4, 20, 1 << 20):
        buffer = device.allocate(nbytes, "probe")
        assert buffer.nbytes == nbytes
        assert not device.copy_out(buffer, 0, nbytes).any()
        word = np.array([7], np.int32)
        device.copy_in(buffer, nbytes - 4, word)
        assert device.copy_out(buffer, nbytes - 4, 4).view(np.int32) == 7
        device.free(buffer)
    clean(device)


def test_a_large_buffer_is_copied_in_parts(target):
    device = gpu(target)
    data = np.random.default_rng(0).integers(0, 1 << 30, (70 << 20) // 4, dtype=np.uint32)
    buffer = device.allocate(data.nbytes, "large")
    device.copy_in(buffer, 0, data)
    np.testing.assert_array_equal(device.copy_out(buffer, 0, data.nbytes).view(np.uint32), data)
    device.free(buffer)
    clean(device)


def test_device_copies_are_in_order_with_runs(target):
    device = gpu(target)
    loaded = device.load([axpy(device)])
    arena, other = device.allocate(2 * BYTES, "arena"), device.allocate(2 * BYTES, "other")
    device.copy_in(arena, 0, np.ones(N, np.float32))
    run = device.prepare(loaded, [launch(3.0, *refs())], {"arena": arena})
    run.run()
    device.copy(arena, BYTES, other, 0, BYTES)
    run.run()
    first = device.copy_out(other, 0, BYTES).view(np.float32)
    second = device.copy_out(arena, BYTES, BYTES).view(np.float32)
    assert (first == 3.0).all()
    assert (second == 6.0).all()
    clean(device)


def test_launches_of_a_list_see_what_ran_before_them(target):
    device = gpu(target)
    loaded = device.load([axpy(device)])
    arena = device.allocate(3 * BYTES, "arena")
    device.copy_in(arena, 0, np.ones(N, np.float32))
    x, y = refs()
    z = BufferRef("arena", 2 * BYTES, BYTES)
    chain = [launch(2.0, x, y), launch(3.0, y, z), launch(1.0, z, y), launch(0.5, y, z)]
    device.prepare(loaded, chain, {"arena": arena}).run()
    assert (device.copy_out(arena, BYTES, BYTES).view(np.float32) == 8.0).all()
    assert (device.copy_out(arena, 2 * BYTES, BYTES).view(np.float32) == 10.0).all()
    clean(device)


def test_one_range_may_be_read_and_written_in_place(target):
    device = gpu(target)
    arena = device.allocate(BYTES, "arena")
    device.copy_in(arena, 0, np.full(N, 2.0, np.float32))
    same = BufferRef("arena", 0, BYTES)
    loaded = device.load([axpy(device)])
    device.prepare(loaded, [launch(4.0, same, same)], {"arena": arena}).run()
    assert (device.copy_out(arena, 0, BYTES).view(np.float32) == 10.0).all()
    clean(device)


def test_weights_are_read_beside_an_arena(target):
    device = gpu(target)
    weights, arena = device.allocate(BYTES, "weights"), device.allocate(2 * BYTES, "arena")
    device.copy_in(weights, 0, np.full(N, 5.0, np.float32))
    loaded = device.load([axpy(device)])
    x = BufferRef("weights", 0, BYTES)
    spaces = {"weights": weights, "arena": arena}
    device.prepare(loaded, [launch(2.0, x, refs()[1])], spaces).run()
    assert (device.copy_out(arena, BYTES, BYTES).view(np.float32) == 10.0).all()
    clean(device)


def test_each_launch_has_its_time(target):
    device = gpu(target)
    loaded = device.load([axpy(device)])
    arena = device.allocate(2 * BYTES, "arena")
    run = device.prepare(loaded, [launch(1.0, *refs())] * 3, {"arena": arena})
    times = run.timed()
    assert len(times) == 3
    assert all(0 < t < 1e6 for t in times)
    assert run.is_replay == (target in ("vulkan", "cpu"))
    clean(device)


def test_a_wrong_launch_is_refused_by_kernel_name(target):
    device = gpu(target)
    loaded, arena = device.load([axpy(device)]), device.allocate(2 * BYTES, "arena")
    x, y = refs()
    over = device.limits.grid[0] + 1
    bad = (
        (Launch(0, (4, 1, 1), (x,), (1.0,)), LaunchError, "axpy takes 2 buffers"),
        (Launch(0, (4, 1, 1), (x, y), ()), LaunchError, "and 1 immediates: got 2 and 0"),
        (launch(1.0, x, y, over), GridLimit, f"axpy asks {over} groups on axis 0"),
        (launch(1.0, x, BufferRef("heap", 0, 4)), LaunchError, "axpy y: there is no buffer heap"),
        (launch(1.0, x, BufferRef("arena", 4, 4)), LaunchError, "axpy y: offset 4"),
        (launch(1.0, x, BufferRef("arena", BYTES, 2 * BYTES)), LaunchError, r"axpy y: bytes \["),
    )
    for made, error, words in bad:
        with pytest.raises(error, match=words):
            device.prepare(loaded, [made], {"arena": arena})
    device.free(arena)
    clean(device)


def test_an_impossible_request_is_a_typed_error_and_the_device_goes_on(target):
    device = gpu(target)
    for asked in (10 << 40, device.limits.buffer_nbytes + 4):
        with pytest.raises((OutOfDeviceMemory, BindingLimit), match=f"kv asks {asked} bytes"):
            device.allocate(asked, "kv")
    buffer = device.allocate(64, "after")
    assert not device.copy_out(buffer, 0, 64).any()
    device.free(buffer)
    clean(device)


def test_a_binding_over_the_limit_is_refused_with_both_numbers(target):
    device = gpu(target)
    over = device.limits.binding_nbytes + 4
    if over > device.limits.buffer_nbytes:  # then there is no such buffer to bind
        is_all = over > device.limits.memory_nbytes
        error = OutOfDeviceMemory if is_all else BindingLimit
        with pytest.raises(error, match=f"weights asks {over} bytes"):
            device.allocate(over, "weights")
        return
    big = device.allocate(over, "weights")
    loaded, arena = device.load([axpy(device)]), device.allocate(2 * BYTES, "arena")
    bad = launch(1.0, BufferRef("weights", 0, over), refs()[1])
    with pytest.raises(
        BindingLimit, match=f"axpy x: {over} bytes .*{device.limits.binding_nbytes}"
    ):
        device.prepare(loaded, [bad], {"weights": big, "arena": arena})
    part = BufferRef("weights", device.limits.offset_align * 16, BYTES)
    device.prepare(loaded, [launch(1.0, part, refs()[1])], {"weights": big, "arena": arena}).run()
    device.free(big)
    clean(device)


def test_copies_outside_a_buffer_or_off_a_word_are_refused(target):
    device = gpu(target)
    buffer = device.allocate(64, "small")
    for offset, nbytes in ((0, 68), (2, 4), (0, 3), (-4, 4), (64, 4)):
        with pytest.raises(BackendError, match="whole words inside small of 64 bytes"):
            device.copy_out(buffer, offset, nbytes)
    device.free(buffer)
    with pytest.raises(BackendError, match="live buffer"):
        device.copy_out(buffer, 0, 4)


def test_a_freed_buffer_stops_its_executables(target):
    device = gpu(target)
    loaded, arena = device.load([axpy(device)]), device.allocate(2 * BYTES, "arena")
    run = device.prepare(loaded, [launch(1.0, *refs())], {"arena": arena})
    run.run()
    device.copy_out(arena, 0, 4)
    device.free(arena)
    with pytest.raises(LaunchError, match="buffer arena of launches of axpy has been freed"):
        run.run()
    clean(device)


def test_a_module_that_is_none_is_refused_by_kernel_name(target):
    device = gpu(target)
    good = axpy(device, "broken")
    bad = Code(good.name, good.target, good.binary[:-8], good.text, good.key, good.kernel)
    other = Code(good.name, "another", good.binary, good.text, good.key, good.kernel)
    with pytest.raises(LaunchError, match="kernel broken is for another"):
        device.load([other])
    if target != "vulkan":  # a Vulkan driver takes what it is given; spirv-val stands before it
        with pytest.raises(LaunchError, match="kernel broken"):
            device.load([bad])


def test_eight_threads_share_one_device(target):
    """Compiled in one thread, and in eight at once; run 25 times in each (case 131)."""
    device = gpu(target)
    shared = device.load([axpy(device)])
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            own = device.load([axpy(device, f"axpy{seed}")])
            arena = device.allocate(2 * BYTES, f"arena{seed}")
            rng = np.random.default_rng(seed)
            for step in range(25):
                x = rng.integers(0, 100, N).astype(np.float32)
                device.copy_in(arena, 0, x)
                device.copy_in(arena, BYTES, np.zeros(N, np.float32))
                loaded = own if step % 2 else shared
                device.prepare(loaded, [launch(seed, *refs())], {"arena": arena}).run()
                got = device.copy_out(arena, BYTES, BYTES).view(np.float32)
                np.testing.assert_array_equal(got, x * seed)
            device.free(arena)
        except (AssertionError, PootError) as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not any(t.is_alive() for t in threads)
    assert failures == []
    clean(device)


def resident_nbytes() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


def test_memory_stays_flat_over_runs_and_loads(target):
    """Runs, prepares and loads, dropped without a word (case 132, shortened)."""
    device = gpu(target)
    loaded, arena = device.load([axpy(device)]), device.allocate(2 * BYTES, "arena")
    run = device.prepare(loaded, [launch(1.0, *refs())], {"arena": arena})

    def rounds(runs: int, loads: int) -> None:
        for _ in range(runs):
            device.copy_in(arena, 0, np.ones(N, np.float32))
            run.run()
        for n in range(loads):
            fresh = device.load([axpy(device, f"fresh{n % 4}")])
            device.prepare(fresh, [launch(1.0, *refs())], {"arena": arena}).run()
        device.copy_out(arena, 0, 4)
        gc.collect()

    rounds(300, 20)
    before = resident_nbytes()
    rounds(1000, 40)
    assert resident_nbytes() - before < 24 << 20
    device.free(arena)
    clean(device)
