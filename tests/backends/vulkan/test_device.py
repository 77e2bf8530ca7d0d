"""What is Vulkan's own in the device: staging, replay, refusals by the host's memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import poot
from poot.backends import vulkan
from poot.backends.base import BufferRef, Launch
from poot.backends.vulkan import device as device_module
from poot.backends.vulkan.device import VulkanDevice, host_free_nbytes
from poot.backends.vulkan.loader import vk
from poot.caller_runner import CallerRunner
from poot.codegen.kir.build import I32, KernelBuilder
from poot.errors import BackendError, BackendUnavailable, LaunchError, OutOfDeviceMemory
from poot.foreign_array import adopt
from tests.support.gpu import clean


def opened(**options: bool) -> VulkanDevice:
    try:
        return vulkan.open_device(0, **options)
    except BackendUnavailable as e:
        pytest.skip(e.message)


def test_copies_through_staging_are_whole(monkeypatch):
    monkeypatch.setattr(device_module, "STAGING_NBYTES", 1 << 16)
    device = opened(validation=True, use_staging=True)
    data = np.random.default_rng(0).integers(0, 1 << 30, (5 << 16) // 4 + 3, dtype=np.uint32)
    buffer = device.allocate(data.nbytes + 64, "staged")
    assert not device.copy_out(buffer, 0, data.nbytes + 64).any()
    device.copy_in(buffer, 32, data)
    np.testing.assert_array_equal(device.copy_out(buffer, 32, data.nbytes).view(np.uint32), data)
    assert not device.copy_out(buffer, 0, 32).any()
    clean(device)
    device.close()


def test_a_recording_replays_over_new_contents():
    device = opened(validation=True)
    k = KernelBuilder("double", 16)
    x = k.param("x", "i32", 16, "rw")
    k.store(x, k.lane(), k.load(x, k.lane()) * 2)
    loaded = device.load([device.emit(k.kernel())])
    arena = device.allocate(64, "arena")
    launches = [Launch(0, (1, 1, 1), (BufferRef("arena", 0, 64),))] * 5
    run = device.prepare(loaded, launches, {"arena": arena})
    assert run.is_replay
    for start in (1, 7):
        device.copy_in(arena, 0, np.full(16, start, np.int32))
        run.run()
        assert (device.copy_out(arena, 0, 64).view(np.int32) == 32 * start).all()
    clean(device)


def test_an_executable_keeps_what_it_needs_alive():
    device = opened(validation=True)
    k = KernelBuilder("three", 16)
    y = k.param("y", "i32", 16, "w")
    k.store(y, k.lane(), k.imm("n") + k.lane())
    arena = device.allocate(64, "arena")
    launch = Launch(0, (1, 1, 1), (BufferRef("arena", 0, 64),), (3,))
    run = device.prepare(device.load([device.emit(k.kernel())]), [launch], {"arena": arena})
    run.run()
    want = np.arange(16) + 3
    np.testing.assert_array_equal(device.copy_out(arena, 0, 64).view(np.int32), want)
    clean(device)


def test_a_request_beyond_the_hosts_free_memory_is_refused_before_it_is_touched(monkeypatch):
    device = opened()
    limits = replace(device.limits, is_software=True)  # a card has memory of its own
    monkeypatch.setattr(VulkanDevice, "limits", property(lambda self: limits))
    monkeypatch.setattr(device_module, "host_free_nbytes", lambda: 1 << 20)
    with pytest.raises(OutOfDeviceMemory, match="kv asks 2097152 bytes: the host has 1048576 free"):
        device.allocate(2 << 20, "kv")


def test_the_hosts_free_memory_is_told_where_linux_tells_it(monkeypatch, tmp_path):
    assert host_free_nbytes() > 0
    monkeypatch.setattr(device_module, "_MEMINFO", tmp_path / "none")
    assert host_free_nbytes() is None


def test_a_kernel_for_another_subgroup_width_is_refused_at_load():
    device = opened()
    width = device.limits.subgroup
    k = KernelBuilder("wide", 64, subgroup=width)
    k.store(k.param("y", "i32", 64, "w"), k.lane(), k.op("subgroup_lane", type=I32))
    code = device.emit(k.kernel())
    object.__setattr__(code.kernel, "subgroup", width * 2)
    with pytest.raises(LaunchError, match=f"wide is written for subgroups of {width * 2}"):
        device.load([code])


def test_closing_frees_what_was_allocated():
    device = opened()
    buffer = device.allocate(1 << 16, "kept")
    device.close()
    assert buffer.is_freed
    device.close()


def made_by_hand(device: VulkanDevice, nbytes: int) -> tuple[object, Callable[[], None]]:
    """A buffer that a caller makes on the device's VkDevice, and what destroys it."""
    h = device.handles
    both = vk.VK_BUFFER_USAGE_TRANSFER_SRC_BIT | vk.VK_BUFFER_USAGE_TRANSFER_DST_BIT
    usage = vk.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | both
    buffer = vk.vkCreateBuffer(h.device, vk.VkBufferCreateInfo(size=nbytes, usage=usage), None)
    need = vk.vkGetBufferMemoryRequirements(h.device, buffer)
    kind = (need.memoryTypeBits & -need.memoryTypeBits).bit_length() - 1
    order = vk.VkMemoryAllocateInfo(allocationSize=need.size, memoryTypeIndex=kind)
    memory = vk.vkAllocateMemory(h.device, order, None)
    vk.vkBindBufferMemory(h.device, buffer, memory, 0)

    def destroy() -> None:
        vk.vkDestroyBuffer(h.device, buffer, None)
        vk.vkFreeMemory(h.device, memory, None)

    return buffer, destroy


@pytest.mark.parametrize("as_number", [False, True])
def test_a_buffer_of_the_callers_is_adopted_by_its_handle(as_number):
    device = opened(validation=True)
    buffer, destroy = made_by_hand(device, 64)
    handle = int(vk.ffi.cast("uintptr_t", buffer)) if as_number else buffer
    array = adopt(device, handle, "f32", (16,))
    stored = array.stored()
    assert stored.buffer is not None
    device.copy_in(stored.buffer, 0, np.arange(16, dtype=np.float32))
    graph = poot.trace(lambda x: x * 2.0, (poot.slot((16,), "f32"),))
    out = poot.compile(graph, device).bind().step(x=array)
    np.testing.assert_array_equal(out, 2 * np.arange(16))  # pyright: ignore[reportArgumentType] - one output
    device.free(stored.buffer)
    destroy()  # it is the caller's still
    clean(device)


def test_what_is_no_buffer_is_not_adopted():
    device = opened(validation=True)
    for handle in (0, -4, "text", vk.ffi.NULL):
        with pytest.raises(BackendError, match="needs a VkBuffer, or its number"):
            adopt(device, handle, "f32", (16,))
    with pytest.raises(BackendError, match="needs whole words"):
        adopt(device, 64, "f32", (0,))


def test_a_program_over_its_callers_memory_is_not_for_handles():
    device = opened(validation=True)
    graph = poot.trace(lambda x: x * 2.0, (poot.slot((16,), "f32"),))
    with pytest.raises(BackendError, match="works in its own memory alone"):
        CallerRunner(poot.compile(graph, device), {}, "main")
