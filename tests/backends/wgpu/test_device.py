"""What is wgpu's own in the device: refusals before a submit, its errors, runs in flight."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import poot
from poot.backends.base import BufferRef, Code, Launch
from poot.backends.wgpu.device import IN_FLIGHT, WgpuDevice, translated
from poot.backends.wgpu.loader import wgpu
from poot.codegen.kir.build import KernelBuilder
from poot.errors import BackendError, DeviceLost, LaunchError, OutOfDeviceMemory
from poot.foreign_array import adopt
from tests.support.gpu import gpu


def opened() -> WgpuDevice:
    device = gpu("wgpu")
    assert isinstance(device, WgpuDevice)
    return device


def count_up(device: WgpuDevice) -> Code:
    k = KernelBuilder("count_up", 16)
    y = k.param("y", "i32", 16, "rw")
    k.store(y, k.lane(), k.load(y, k.lane()) + 1)
    return device.emit(k.kernel())


def test_many_runs_without_a_read_stay_bounded_and_all_happen():
    device = opened()
    arena = device.allocate(64, "arena")
    launch = Launch(0, (1, 1, 1), (BufferRef("arena", 0, 64),))
    run = device.prepare(device.load([count_up(device)]), [launch], {"arena": arena})
    runs = 5 * IN_FLIGHT + 3
    for _ in range(runs):
        run.run()
    assert (device.copy_out(arena, 0, 64).view(np.int32) == runs).all()


def test_many_launches_are_timed_in_parts():
    device = opened()
    arena = device.allocate(64, "arena")
    launch = Launch(0, (1, 1, 1), (BufferRef("arena", 0, 64),))
    run = device.prepare(device.load([count_up(device)]), [launch] * 2100, {"arena": arena})
    assert len(run.timed()) == 2100
    assert (device.copy_out(arena, 0, 64).view(np.int32) == 2100).all()


def test_a_copy_within_one_buffer_is_refused():
    device = opened()
    arena = device.allocate(64, "arena")
    with pytest.raises(BackendError, match="copies between two buffers: both are arena"):
        device.copy(arena, 0, arena, 32, 16)


def test_what_another_thread_drops_waits_for_no_lock():
    # wgpu's own thread wakes whoever waits for a read; if it stopped at the reader's lock, because
    # the collector ran there, neither would go on.
    device = opened()
    held: list[object] = [device.load([count_up(device)]), device.allocate(64, "arena")]
    other = threading.Thread(target=held.clear, daemon=True)
    with device.gpu.lock:
        other.start()
        other.join(10)
        assert not other.is_alive()
        assert len(device.gpu.dropped) == 2
    kept = device.allocate(64, "next")
    assert not device.gpu.dropped
    assert not kept.is_freed


def test_errors_are_translated_with_what_was_being_done():
    opened()
    for error, found in (
        (wgpu.GPUOutOfMemoryError("x"), OutOfDeviceMemory),
        (wgpu.GPUValidationError("Parent device is lost"), DeviceLost),
        (wgpu.GPUValidationError("bad\n  thing"), LaunchError),
        (RuntimeError("gone"), LaunchError),
    ):
        with pytest.raises(found, match="binding kv"), translated("binding kv", LaunchError):
            raise error


def test_a_closed_device_says_so():
    device = WgpuDevice(opened().gpu)
    buffer = device.allocate(16, "kept")
    device.close()
    assert buffer.is_freed
    with pytest.raises(BackendError, match="was closed; open the device again"):
        device.allocate(16, "late")


FREED = """
from poot.backends import wgpu
from poot.backends.base import BufferRef, Launch
from poot.errors import LaunchError
from tests.backends.wgpu.test_device import count_up
device = wgpu.open_device(0)
arena = device.allocate(64, "arena")
launch = Launch(0, (1, 1, 1), (BufferRef("arena", 0, 64),))
run = device.prepare(device.load([count_up(device)]), [launch], {"arena": arena})
device.free(arena)
try:
    run.run()
except LaunchError as e:
    print(e.message)
"""


def test_what_would_end_the_process_at_submit_is_refused_before_it():
    """A destroyed buffer in a submit is a fatal error of the native library."""
    opened()
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", FREED], env=env, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == "buffer arena of launches of count_up has been freed\n"


def test_a_buffer_of_the_callers_is_adopted():
    device = opened()
    use = wgpu.BufferUsage
    usage = use.STORAGE | use.COPY_SRC | use.COPY_DST
    theirs = device.gpu.device.create_buffer(size=64, usage=usage)
    device.gpu.device.queue.write_buffer(theirs, 0, np.arange(16, dtype=np.float32))
    array = adopt(device, theirs, "f32", (16,))
    graph = poot.trace(lambda x: x * 2.0, (poot.slot((16,), "f32"),))
    out = poot.compile(graph, device).bind().step(x=array)
    np.testing.assert_array_equal(out, 2 * np.arange(16))  # pyright: ignore[reportArgumentType] - one output
    stored = array.stored()
    assert stored.buffer is not None
    device.free(stored.buffer)
    assert len(device.gpu.device.queue.read_buffer(theirs)) == 64  # it is the caller's still


def test_what_can_not_be_used_as_memory_is_not_adopted():
    device = opened()
    use = wgpu.BufferUsage
    narrow = device.gpu.device.create_buffer(size=64, usage=use.STORAGE | use.COPY_DST)
    with pytest.raises(BackendError, match="the buffer has 64, and lacks COPY_SRC"):
        adopt(device, narrow, "f32", (16,))
    usage = use.STORAGE | use.COPY_SRC | use.COPY_DST
    small = device.gpu.device.create_buffer(size=32, usage=usage)
    with pytest.raises(BackendError, match=r"needs 64 bytes .* has 32, and lacks none"):
        adopt(device, small, "f32", (16,))
    with pytest.raises(BackendError, match="needs a GPUBuffer of this wgpu device: got 64"):
        adopt(device, 64, "f32", (16,))
    other = gpu("webgpu-baseline")
    with pytest.raises(BackendError, match="needs a GPUBuffer of this wgpu device"):
        adopt(other, small, "f32", (8,))
