"""Arrays of other libraries in a device's own memory, as arrays of poot's."""

from __future__ import annotations

from typing import cast

import numpy as np

from poot.backends.base import Adopts, Device, TakesArrays
from poot.device_array import Always, DeviceArray, Stored
from poot.errors import BackendError, BindError
from poot.ir.dtypes import DTYPES
from poot.ir.graph import TensorType
from poot.limits import DeviceLimits
from poot.ops.kinds import wholes

# What is told apart without a look at its attributes.
_PLAIN = (np.ndarray, np.generic, DeviceArray, int, float, bool, list, tuple)


def on_device(device: Device | None, value: object, name: str) -> object:
    """The value as a DeviceArray where it is another library's array in the device's memory (over
    DLPack or `__cuda_array_interface__`), else the value itself. Nothing is copied; what the device
    does next waits for what the array's maker enqueued. Raises BindError on one that can't be taken
    as it is."""
    seen: object = value
    if isinstance(seen, _PLAIN) or not isinstance(device, TakesArrays):
        return value
    found = device.take(value, name)
    if found is None:
        return value
    buffer, type = found
    return DeviceArray(Stored(type, device, buffer), Always())


def adopt(
    device: Device, handle: object, dtype: str, shape: tuple[int, ...], owner: object = None
) -> DeviceArray:
    """Memory that somebody else made for this device, as an array that can be given to a slot and
    read. `handle` is an address (cuda, cpu), a VkBuffer of the device's VkDevice, or a GPUBuffer of
    its wgpu device; `owner` is held as long as the array. It is in C order, a bool a u32 word. The
    caller orders what it does there with poot's steps. Raises BindError or BackendError."""
    if not isinstance(cast("object", dtype), str) or dtype not in DTYPES:  # it is the user's
        raise BindError(f"poot has no dtype {dtype!r}; dtypes: {', '.join(DTYPES)}")
    extents = wholes(shape)
    if extents is None or any(n < 0 for n in extents):
        raise BindError(f"adopt needs a shape of whole extents of 0 or more: got {shape!r}")
    if not isinstance(device, Adopts):
        limits = getattr(cast("object", device), "limits", None)
        if not isinstance(limits, DeviceLimits):
            what = "adopt needs an open device, as a compiled program's `device` is"
            raise BindError(f"{what}: got {device.__class__.__name__} {device!r:.60}")
        raise BackendError(f"{limits.name} adopts no memory")
    type = TensorType(dtype, extents)
    buffer = device.adopt(handle, -(-type.nbytes // 4) * 4, "adopted memory", owner)
    return DeviceArray(Stored(type, device, buffer), Always())
