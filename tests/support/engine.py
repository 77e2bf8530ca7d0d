"""An engine with a Vulkan device of its own, which the C runtime adopts."""

from __future__ import annotations

import ctypes as c
from typing import Any

from poot.backends.vulkan import driver as vulkan_driver
from poot.backends.vulkan.api import Recording
from poot.backends.vulkan.loader import vk
from tests.support.c_runtime import Device, Handles, Session


def _address(handle: Any) -> int:
    return int(vk.ffi.cast("uintptr_t", handle))


class Engine:
    """A VkDevice with a queue and command buffers."""

    def __init__(self) -> None:
        self.driver: Any = vulkan_driver.connect(0)

    def adopted(self) -> Device:
        """The device as the runtime's."""
        own, driver = vulkan_driver.instance(), self.driver
        loader = c.CDLL("libvulkan.so.1")
        return Device.adopt(
            Handles(
                _address(own.handle),
                _address(driver._physical.handle),
                _address(driver._device),
                _address(driver._queue),
                driver._physical.family,
                7,
                c.cast(loader.vkGetInstanceProcAddr, c.c_void_p),
            )
        )

    def record(self, session: Session) -> Recording:
        """A command buffer with the session's launches in it."""
        driver = self.driver
        commands = driver._begin()
        try:
            session.record(_address(commands))
        except BaseException:
            vk.vkEndCommandBuffer(commands)
            raise
        driver._end(commands)
        fence = vk.vkCreateFence(driver._device, vk.VkFenceCreateInfo(), None)
        return Recording(commands, None, fence, None, 0)
