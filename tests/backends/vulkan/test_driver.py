"""Sharing, losing and validating the process's VkDevice."""

from __future__ import annotations

import pytest

from poot.backends import vulkan
from poot.backends.vulkan import driver
from poot.backends.vulkan.api import Binding, Shader
from poot.backends.vulkan.driver import VulkanDriver, connect, instance, translated
from poot.errors import BackendError, BackendUnavailable, DeviceLost, LaunchError, OutOfDeviceMemory


def shared(validation: bool = False) -> VulkanDriver:
    try:
        return connect(0, validation)
    except BackendUnavailable as e:
        pytest.skip(e.message)


def test_openings_share_one_device():
    assert shared() is shared()
    a, b = vulkan.open_device(0), vulkan.open_device(0)
    a.close()
    assert not b.copy_out(b.allocate(16, "still open"), 0, 16).any()
    with pytest.raises(BackendError, match="was closed"):
        a.allocate(16, "closed")
    b.close()


def test_a_hundred_openings_leave_nothing_allocated():
    before = shared().free_nbytes()
    for _ in range(100):
        device = vulkan.open_device(0)
        device.allocate(1 << 20, "kept until close")
        device.close()
    assert shared().free_nbytes() >= before


def test_a_lost_device_is_one_clear_error_and_a_new_one_works(monkeypatch):
    lost = shared()

    def lose(*args: object) -> None:
        raise driver.vk.VkErrorDeviceLost()

    block = lost.allocate(64, True, "probe")
    with monkeypatch.context() as m:
        m.setattr(driver.vk, "vkQueueSubmit", lose)
        with pytest.raises(DeviceLost, match="copying 16 bytes: the device is lost; open it anew"):
            lost.copy(Binding(block, 0, 16), Binding(block, 32, 16))
    assert lost.is_lost
    with pytest.raises(DeviceLost, match="open it anew"):
        lost.copy(Binding(block, 0, 16), Binding(block, 32, 16))
    fresh = connect(0)
    assert fresh is not lost
    device = vulkan.open_device(0)
    assert not device.copy_out(device.allocate(64, "after"), 0, 64).any()
    lost.free(block)


def test_a_failed_allocation_leaves_nothing_behind(monkeypatch):
    api = shared()
    before = api.free_nbytes()

    def fail(*args: object) -> None:
        raise driver.vk.VkErrorOutOfDeviceMemory()

    for call in ("vkAllocateMemory", "vkBindBufferMemory"):
        with monkeypatch.context() as m:
            m.setattr(driver.vk, call, fail)
            with pytest.raises(OutOfDeviceMemory, match="allocating 4096 bytes for kv"):
                api.allocate(4096, False, "kv")
    assert api.free_nbytes() >= before  # a card gives back what ended before, too


def test_the_validation_layer_is_heard():
    api = shared(validation=True)
    api.messages.clear()
    block = api.allocate(64, True, "overlap")
    api.copy(Binding(block, 0, 32), Binding(block, 16, 32))
    assert any("vkCmdCopyBuffer" in text for text in api.messages)
    api.messages.clear()
    api.free(block)


def test_a_driver_error_says_what_was_being_done():
    shared()
    for error, found in (
        (driver.vk.VkErrorOutOfHostMemory(), OutOfDeviceMemory),
        (driver.vk.VkErrorDeviceLost(), DeviceLost),
        (driver.vk.VkErrorTooManyObjects(), BackendError),
    ):
        with pytest.raises(found, match="binding kv"), translated("binding kv"):
            raise error


def test_a_refused_pipeline_names_the_kernel(monkeypatch):
    api = shared()

    def refuse(*args: object) -> None:
        raise driver.vk.VkErrorInitializationFailed()

    monkeypatch.setattr(driver.vk, "vkCreateComputePipelines", refuse)
    shader = Shader("attention", b"\x03\x02\x23\x07" + b"\0" * 16, 1, False, None)
    monkeypatch.setattr(driver.vk, "vkCreateShaderModule", lambda *a: None)
    with pytest.raises(LaunchError, match="driver refuses kernel attention: VkErrorInit"):
        api.pipeline(shader)


def test_a_missing_layer_is_unavailable(monkeypatch):
    shared()

    def absent(*args: object) -> None:
        raise driver.vk.VkErrorLayerNotPresent()

    monkeypatch.setattr(driver, "_INSTANCES", {})
    monkeypatch.setattr(driver.vk, "vkCreateInstance", absent)
    with pytest.raises(BackendUnavailable, match="apt-get install vulkan-validationlayers"):
        instance(validation=True)
