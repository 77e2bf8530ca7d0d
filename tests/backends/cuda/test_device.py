"""The device over a driver in numpy: order of calls, lifetimes, errors; and over real ones."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from poot.backends import cuda
from poot.backends.base import Attributes, BufferRef, Launch
from poot.backends.cuda.device import CudaDevice, pack_arguments
from poot.codegen.kir.build import KernelBuilder
from poot.codegen.kir.nodes import Blob, Kernel
from poot.errors import (
    BackendError,
    CaptureUnavailable,
    DeviceLost,
    GridLimit,
    LaunchError,
    OutOfDeviceMemory,
)
from tests.support.counting import PROVIDERS, count_up, counted, opened_card, words
from tests.support.fake_cuda import FakeDriver, fake_device


def opened(kernel: Kernel, **options: object) -> tuple[CudaDevice, FakeDriver]:
    driver = FakeDriver({kernel.name: kernel}, **options)  # pyright: ignore[reportArgumentType] - fields by name
    return fake_device(driver), driver


def test_memory_starts_as_zeros_and_copies_come_back():
    device, _ = opened(count_up())
    buffer = device.allocate(40, "x")
    assert not device.copy_out(buffer, 0, 40).any()
    device.copy_in(buffer, 8, np.arange(4, dtype=np.float32))
    np.testing.assert_array_equal(device.copy_out(buffer, 8, 16).view(np.float32), [0, 1, 2, 3])


def test_a_list_runs_direct_until_it_is_recorded_and_then_as_one_graph():
    kernel = count_up()
    device, driver = opened(kernel)
    states, run = counted(device, kernel)
    run.run()
    assert (driver.asked[-1], run.is_replay) == ("launch count_up", False)
    assert run.record()
    assert run.is_replay
    run.run()
    run.run()
    assert driver.asked.count("replay") == 2
    assert driver.asked.count("record") == 1
    assert (words(device, states) == 3).all()


def test_a_step_allocates_nothing():
    kernel = count_up()
    device, driver = opened(kernel)
    states, run = counted(device, kernel)
    before = (driver.memory(), driver.host_nbytes)
    for n in range(200):
        device.copy_in(states, 0, np.full(64, n, np.int32))
        run.run()
        assert (words(device, states) == n + 1).all()
    assert (driver.memory(), driver.host_nbytes) == before


def test_capture_without_graphs_names_the_extra_and_direct_launches_go_on():
    kernel = count_up()
    device, _ = opened(kernel, has_graphs=False)
    states, run = counted(device, kernel)
    with pytest.raises(CaptureUnavailable, match=r"poot\[cuda\]"):
        run.record()
    run.run()
    assert (words(device, states) == 1).all()


def test_memory_that_is_not_there_is_refused_with_both_numbers():
    device, _ = opened(count_up(), total=4096)
    with pytest.raises(OutOfDeviceMemory, match="kv asks 5000 bytes: h200 has 4096 of 4096 free"):
        device.allocate(5000, "kv")
    assert device.allocate(256, "kv").nbytes == 256


def test_a_lost_device_names_the_launches_and_what_is_still_usable():
    kernel = count_up()
    device, driver = opened(kernel)
    states, run = counted(device, kernel)
    run.run()
    driver.fails["synchronize"] = "ILLEGAL_ADDRESS"
    with pytest.raises(DeviceLost, match=r"(?s)outside of every allocation.*of count_up") as e:
        words(device, states)
    assert "still usable" in e.value.message
    driver.fails.clear()
    with pytest.raises(DeviceLost, match="h200 was lost before"):
        run.run()


def test_a_loss_that_comes_out_at_a_free_is_raised_and_remembered():
    kernel = count_up()
    device, driver = opened(kernel)
    states, run = counted(device, kernel)
    run.run()
    driver.fails["free"] = "ILLEGAL_ADDRESS"
    with pytest.raises(DeviceLost, match=r"(?s)outside of every allocation.*of count_up"):
        device.free(states)
    driver.fails.clear()
    device.free(states)
    with pytest.raises(DeviceLost, match="h200 was lost before"):
        device.allocate(16, "more")


def test_a_loss_that_a_dropped_buffer_finds_is_told_to_who_asks_next():
    device, driver = opened(count_up())
    buffer = device.allocate(16, "x")
    driver.fails["free"] = "ILLEGAL_ADDRESS"
    del buffer
    with pytest.raises(DeviceLost, match="h200 was lost before"):
        device.synchronize()


def test_a_loss_that_comes_out_at_the_close_is_raised_with_all_closed():
    device, driver = opened(count_up())
    kept = device.allocate(16, "x"), device.allocate(16, "y")
    driver.fails["free"] = "ILLEGAL_ADDRESS"
    with pytest.raises(DeviceLost, match="outside of every allocation"):
        device.close()
    assert all(buffer.is_freed for buffer in kept)
    assert not driver.is_open
    device.close()


def test_a_dropped_device_closes_its_driver():
    device, driver = opened(count_up())
    del device
    gc.collect()
    assert not driver.is_open


def test_a_launch_that_the_driver_refuses_is_named():
    kernel = count_up()
    device, driver = opened(kernel)
    _, run = counted(device, kernel)
    driver.fails["launch"] = "INVALID_VALUE"
    with pytest.raises(LaunchError, match="count_up: the driver says INVALID_VALUE"):
        run.run()


def test_a_checked_device_waits_after_each_launch():
    kernel = count_up()
    driver = FakeDriver({kernel.name: kernel})
    device = fake_device(driver, is_checked=True)
    held = counted(device, kernel)
    held[1].run()
    assert driver.asked[-2:] == ["launch count_up", "synchronize"]


def test_a_module_that_the_driver_refuses_leaves_none_loaded():
    device, driver = opened(count_up())
    driver.fails["load"] = "second"
    codes = [device.emit(count_up(name=name)) for name in ("first", "second")]
    with pytest.raises(LaunchError, match="kernel second"):
        device.load(codes)
    assert "unload first" in driver.asked


def test_code_for_another_target_is_refused():
    device, _ = opened(count_up())
    code = device.emit(count_up())
    other = type(code)(code.name, "spirv", code.binary, code.text, code.key, code.kernel)
    with pytest.raises(LaunchError, match="count_up is for spirv: h200 takes ptx"):
        device.load([other])


def test_a_closed_device_has_freed_its_buffers():
    device, driver = opened(count_up())
    device.allocate(64, "x")
    device.close()
    assert (driver.memory_at, driver.is_open) == ({}, False)
    with pytest.raises(BackendError, match="was closed; open the device again"):
        device.allocate(64, "x")


def test_copies_are_whole_words_inside_a_buffer():
    device, _ = opened(count_up())
    buffer = device.allocate(16, "x")
    for offset, nbytes in ((2, 4), (0, 6), (12, 8)):
        with pytest.raises(BackendError, match="needs whole words inside x of 16 bytes"):
            device.copy_out(buffer, offset, nbytes)


def test_a_launch_without_groups_is_left_out():
    kernel = count_up()
    device, driver = opened(kernel)
    states = device.allocate(256, "states")
    launch = Launch(0, (0, 1, 1), (BufferRef("states", 0, 256),))
    loaded = device.load([device.emit(kernel)])
    device.prepare(loaded, [launch], {"states": states}).run()
    assert "launch count_up" not in driver.asked


def test_a_grid_over_the_devices_is_refused_by_name():
    kernel = count_up()
    device, _ = opened(kernel)
    states = device.allocate(256, "states")
    launch = Launch(0, (1, 70000, 1), (BufferRef("states", 0, 256),))
    with pytest.raises(GridLimit, match="kernel count_up asks 70000 groups on axis 1"):
        device.prepare(device.load([device.emit(kernel)]), [launch], {"states": states})


def test_arguments_lie_as_the_entry_declares_them():
    k = KernelBuilder("mixed", 32)
    k.param("x", "f32", 4, "r")
    k.param("y", "f32", 4, "w")
    k.imm("n")
    k.imm("f", "f32")
    raw, offsets = pack_arguments(k.kernel(), (-2, 0.5), (1 << 40, 3))
    assert offsets == (0, 8, 16, 20)
    assert np.frombuffer(raw[:16], np.uint64).tolist() == [1 << 40, 3]
    assert np.frombuffer(raw[16:20], np.int32)[0] == -2
    assert np.frombuffer(raw[20:], np.float32)[0] == 0.5
    with pytest.raises(LaunchError, match="kernel mixed immediates"):
        pack_arguments(k.kernel(), (1 << 40, 0.5), (1, 3))


def test_the_blobs_of_a_kernel_lie_aligned_behind_its_immediates():
    k = KernelBuilder("mapped", 32)
    k.param("x", "f32", 4, "r")
    k.imm("n")
    kernel = replace(k.kernel(), blobs=(Blob("a"), Blob("b")))
    raw, offsets = pack_arguments(kernel, (7,), (1,), (b"A" * 128, b"B" * 128))
    assert offsets == (0, 8, 64, 192)
    assert (raw[64:66], raw[192:194], len(raw)) == (b"AA", b"BB", 320)


def test_groups_that_wait_for_one_another_are_resident_all_at_once():
    kernel = count_up()
    device, _ = opened(kernel)
    states = device.allocate(256, "states")
    loaded = device.load([device.emit(kernel)])
    asked = Attributes(is_resident=True)
    most = 2 * device.limits.compute_units  # the stand-in holds two on each
    for groups in (most, most + 1):
        row = Launch(0, (groups, 1, 1), (BufferRef("states", 0, 256),), (), asked)
        if groups == most:
            device.prepare(loaded, [row], {"states": states})
            continue
        with pytest.raises(GridLimit, match=f"asks {groups} groups that are resident all at once"):
            device.prepare(loaded, [row], {"states": states})


def test_a_provider_without_attributes_refuses_what_it_cannot_leave_out():
    kernel = count_up()
    device, driver = opened(kernel, can=frozenset())
    states = device.allocate(256, "states")
    loaded = device.load([device.emit(kernel)])
    ref = (BufferRef("states", 0, 256),)
    row = Launch(0, (2, 1, 1), ref, (), Attributes(cluster=(2, 1, 1)))
    with pytest.raises(LaunchError, match="count_up asks clusters of groups"):
        device.prepare(loaded, [row], {"states": states})
    row = Launch(0, (2, 1, 1), ref, (), Attributes(overlap=True))
    device.prepare(loaded, [row], {"states": states}).run()
    assert driver.asked[-1] == "launch count_up"


# On hardware


@pytest.fixture(params=PROVIDERS)
def real(request: pytest.FixtureRequest):
    """A device of each provider; closed afterwards."""
    device = opened_card(request.param)
    yield device
    device.close()


@pytest.mark.cuda
def test_real_memory_copies_and_launches(real: CudaDevice):
    kernel = count_up()
    states, run = counted(real, kernel)
    assert not words(real, states).any()
    for _ in range(10):
        run.run()
    assert (words(real, states) == 10).all()
    times = run.timed()
    assert len(times) == 1
    assert 0 < times[0] < 1e5
    large = np.random.default_rng(0).integers(0, 255, 5 << 20, dtype=np.uint8)
    buffer = real.allocate(large.size, "large")
    real.copy_in(buffer, 0, large)
    twin = real.allocate(large.size, "twin")
    real.copy(buffer, 0, twin, 0, large.size)
    np.testing.assert_array_equal(real.copy_out(twin, 0, large.size), large)


@pytest.mark.cuda
def test_real_workgroup_memory_above_48_kib(real: CudaDevice):
    k = KernelBuilder("large_shared", 128)
    s = k.shared("s", "i32", 50000)
    y = k.param("y", "i32", 64, "rw")
    with k.for_(k.lane(), 50000, 128) as at:
        k.store(s, at, at * 3)
    k.barrier()
    with k.if_(k.lane() < 64):
        k.store(y, k.lane(), k.load(s, 49999 - k.lane()))
    kernel = k.kernel()
    loaded = real.load([real.emit(kernel)])
    states = real.allocate(256, "states")
    launch = Launch(0, (1, 1, 1), (BufferRef("states", 0, 256),))
    real.prepare(loaded, [launch], {"states": states}).run()
    np.testing.assert_array_equal(words(real, states), (49999 - np.arange(64)) * 3)
    row = real.resources(loaded)[0]
    assert row.registers > 0
    assert row.shared_nbytes >= 200000
    assert row.local_nbytes == 0


@pytest.mark.cuda
def test_a_real_graph_gives_what_launches_give(real: CudaDevice):
    kernels = [count_up(1, "one"), count_up(5, "five")]
    states = real.allocate(256, "states")
    ref = (BufferRef("states", 0, 256),)
    launches = [Launch(n % 2, (2, 1, 1), ref) for n in range(20)]
    loaded = real.load([real.emit(k) for k in kernels])
    run = real.prepare(loaded, launches, {"states": states})
    run.run()
    if not real.driver.has_graphs:
        with pytest.raises(CaptureUnavailable, match=r"poot\[cuda\]"):
            run.record()
        return
    assert run.record()
    for _ in range(9):
        run.run()
    assert (words(real, states) == 10 * 60).all()


@pytest.mark.cuda
def test_real_memory_is_refused_with_both_numbers(real: CudaDevice):
    total = real.limits.memory_nbytes
    held = real.allocate(total // 2, "half")
    with pytest.raises(OutOfDeviceMemory, match=rf"kv asks {total} bytes: .* has \d+ of \d+ free"):
        real.allocate(total, "kv")
    real.free(held)


@pytest.mark.cuda
def test_a_module_that_a_real_driver_refuses_comes_with_its_words(real: CudaDevice):
    code = real.emit(count_up())
    broken = code.binary.replace(b"add.s32", b"bad.s32")
    bad = type(code)(code.name, "ptx", broken, code.text, code.key, code.kernel)
    with pytest.raises(LaunchError, match="count_up") as e:
        real.load([bad])
    assert "bad" in e.value.message or "PTX" in e.value.message


LOSE_AND_GO_ON = """
import sys
import numpy as np
from poot.backends import cuda
from poot.backends.base import BufferRef, Launch
from poot.codegen.kir.build import KernelBuilder
from poot.errors import DeviceLost

def one(name, at):
    k = KernelBuilder(name, 32)
    y = k.param("y", "i32", 64, "rw")
    k.store(y, k.lane() + at, k.lane() + 5)
    return k.kernel()

def run(device, kernel):
    states = device.allocate(256, "states")
    launch = Launch(0, (1, 1, 1), (BufferRef("states", 0, 256),))
    device.prepare(device.load([device.emit(kernel)]), [launch], {"states": states}).run()
    return device.copy_out(states, 0, 128).view(np.int32)

device = cuda.open_device(0, provider=sys.argv[1])
try:
    run(device, one("astray", 1 << 30))
except DeviceLost as e:
    assert "astray" in e.message and "still usable" in e.message, e.message
else:
    raise SystemExit("nothing was lost")
device.close()
try:
    again = cuda.open_device(0, provider=sys.argv[1])
except DeviceLost as e:
    assert "end the process and start it again" in e.message, e.message
    print("refused")
else:
    assert (run(again, one("fine", 0)) == np.arange(32) + 5).all()
    print("went on")
"""


@pytest.mark.cuda
@pytest.mark.parametrize("provider", PROVIDERS)
def test_after_a_lost_context_a_new_device_works(provider: str):
    """In a process of its own, since it loses its context. A driver that gives a process no context
    after that is told apart, and then the next process has one."""
    command = [sys.executable, "-c", LOSE_AND_GO_ON, provider]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.strip() in ("went on", "refused"), done.stdout + done.stderr
    device = opened_card(provider)
    states, ready = counted(device, count_up())
    ready.run()
    assert (words(device, states) == 1).all()
    device.close()


def _streams() -> dict[str, Callable[[], object]]:
    def torch_stream() -> object:
        torch = pytest.importorskip("torch")
        return torch.cuda.Stream()

    def handle() -> object:
        stream = torch_stream()
        return stream.cuda_stream  # pyright: ignore[reportAttributeAccessIssue] - torch's own

    class Wrapped:
        def __init__(self) -> None:
            self.stream = torch_stream()

        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, self.stream.cuda_stream  # pyright: ignore[reportAttributeAccessIssue] - torch's

    return {"torch": torch_stream, "handle": handle, "protocol": Wrapped}


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["torch", "handle", "protocol"])
def test_a_callers_stream_is_adopted_in_its_context(kind: str):
    torch = pytest.importorskip("torch")
    stream = _streams()[kind]()
    device = cuda.open_device(0, provider="cuda-bindings", stream=stream)
    kernel = count_up()
    states, run = counted(device, kernel)
    run.run()
    run.record()
    run.run()
    assert (words(device, states) == 2).all()
    device.close()
    x = torch.ones(4, device="cuda")
    assert float((x + x).sum()) == 8.0


@pytest.mark.cuda
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_pycuda_stream_is_adopted_by_both_providers(provider: str):
    drv = pytest.importorskip("pycuda.driver")
    drv.init()
    context = drv.Device(0).retain_primary_context()
    context.push()
    try:
        stream = drv.Stream()
        device = cuda.open_device(0, provider=provider, stream=stream)
        kernel = count_up()
        states, run = counted(device, kernel)
        run.run()
        if provider == "cuda-bindings":
            run.record()
            run.run()
        assert (words(device, states) == (2 if provider == "cuda-bindings" else 1)).all()
        device.close()
    finally:
        context.pop()


def test_several_calls_in_a_row_take_the_devices_lock_before_the_drivers(
    monkeypatch: pytest.MonkeyPatch,
):
    """As each call by itself does: else two threads could hold one each."""
    device = fake_device(FakeDriver({}))
    inside: list[bool] = []

    @contextmanager
    def held(driver: FakeDriver) -> Iterator[None]:
        other = threading.Thread(target=lambda: inside.append(device._lock.acquire(timeout=0.01)))
        other.start()
        other.join()
        yield

    monkeypatch.setattr(FakeDriver, "held", held)
    with device.together():
        pass
    assert inside == [False]
    assert device._lock.acquire(timeout=1)
    device._lock.release()
