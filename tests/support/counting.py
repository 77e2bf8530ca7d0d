"""A kernel that counts up, on a CUDA device or a stand-in for one."""

from __future__ import annotations

import numpy as np
import pytest

from poot.backends import cuda
from poot.backends.base import BufferRef, Launch
from poot.backends.cuda.device import CudaDevice
from poot.codegen.kir.build import KernelBuilder
from poot.codegen.kir.nodes import Kernel
from poot.errors import BackendUnavailable

PROVIDERS = ("cuda-bindings", "pycuda")


def opened_card(provider: str) -> CudaDevice:
    """The first card; skips the test where the provider isn't installed."""
    try:
        return cuda.open_device(0, provider=provider)
    except BackendUnavailable as e:
        pytest.skip(e.message)


def count_up(step: int = 1, name: str = "count_up") -> Kernel:
    k = KernelBuilder(name, 32)
    y = k.param("y", "i32", 64, "rw")
    i = k.group_id(0) * 32 + k.lane()
    k.store(y, i, k.load(y, i) + step)
    return k.kernel()


def counted(device: CudaDevice, kernel: Kernel):
    """The kernel over a buffer `states` of 64 words: (buffer, executable)."""
    states = device.allocate(256, "states")
    launch = Launch(0, (2, 1, 1), (BufferRef("states", 0, 256),))
    return states, device.prepare(device.load([device.emit(kernel)]), [launch], {"states": states})


def words(device: CudaDevice, buffer: object) -> np.ndarray:
    return device.copy_out(buffer, 0, 256).view(np.int32)  # pyright: ignore[reportArgumentType] - a buffer of the device
