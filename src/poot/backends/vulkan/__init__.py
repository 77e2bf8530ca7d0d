"""Raw Vulkan, through the loader and whatever driver it finds."""

from __future__ import annotations

from poot.backends.vulkan.device import VulkanDevice
from poot.backends.vulkan.driver import connect, physical_devices
from poot.limits import DeviceLimits


def found() -> list[tuple[str, DeviceLimits]]:
    """Each device's description and limits. Raises BackendUnavailable with what to install."""
    return [(p.description, p.limits) for p in physical_devices()]


def open_device(
    index: int = 0,
    *,
    limits: DeviceLimits | None = None,
    validation: bool = False,
    use_staging: bool = False,
) -> VulkanDevice:
    """The loader's device of that index, with all it has, or as if it had exactly `limits`.

    `validation` turns the validation layer on (`VulkanDevice.messages`); `use_staging` copies
    through a staging buffer even where device memory is mapped. Raises BackendUnavailable."""
    return VulkanDevice(connect(index, validation), limits, use_staging)
