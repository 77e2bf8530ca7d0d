"""wgpu, by wgpu-py: Vulkan, Metal or D3D12 behind WebGPU's rules."""

from __future__ import annotations

from poot.backends.wgpu.adapters import connect, read_adapters
from poot.backends.wgpu.device import WgpuDevice
from poot.limits import DeviceLimits


def found() -> list[tuple[str, DeviceLimits]]:
    """Each adapter's description and limits. Raises BackendUnavailable with what to install."""
    return [(a.description, a.limits) for a in read_adapters()]


def open_device(index: int = 0, *, limits: DeviceLimits | None = None) -> WgpuDevice:
    """The adapter of that index, with all it has, or exactly `limits` (a profile, such as
    "webgpu-baseline"). Raises BackendUnavailable."""
    return WgpuDevice(connect(index, limits))
