# pyright: basic
"""torch's tensors and dtypes, as numpy arrays and poot's dtypes. Who calls this holds a
tensor, so torch is there."""

from __future__ import annotations

import importlib
from typing import Any

import ml_dtypes
import numpy as np

from poot.errors import TraceError
from poot.frontends.width import held_in_32

# A torch dtype by its name, and what it becomes. Integers of 64 bits become i32, checked where
# their values are known.
DTYPES = {
    "torch.float32": "f32",
    "torch.float16": "f16",
    "torch.bfloat16": "bf16",
    "torch.float8_e4m3fn": "f8e4m3",
    "torch.int64": "i32",
    "torch.int32": "i32",
    "torch.uint32": "u32",
    "torch.int8": "i8",
    "torch.uint8": "u8",
    "torch.bool": "bool",
}
_BITS = {
    "torch.bfloat16": ("int16", ml_dtypes.bfloat16),
    "torch.float8_e4m3fn": ("int8", ml_dtypes.float8_e4m3fn),
}


def dtype_name(dtype: Any) -> str | None:
    """poot's dtype for a torch dtype, or None where there is none."""
    return DTYPES.get(str(dtype))


def bits_of(held: Any) -> np.ndarray | None:
    """A tensor of the host of a dtype that numpy has not, as one of ml_dtypes in its memory; None
    of other dtypes."""
    bits = _BITS.get(str(held.dtype))
    if bits is None:
        return None
    narrow = getattr(importlib.import_module("torch"), bits[0])
    return held.view(narrow).numpy().view(bits[1])


def as_numpy(tensor: Any, name: str) -> np.ndarray:
    """A tensor's elements, in its own memory where that is the host's. int64 that fits becomes
    int32. Raises TraceError on a dtype that poot has not, and on integers that don't fit."""
    if dtype_name(tensor.dtype) is None:
        known = ", ".join(sorted(d.removeprefix("torch.") for d in DTYPES))
        raise TraceError(
            f"{name} is {tensor.dtype}; poot has {known}: convert it before the export"
        )
    held = tensor.detach()
    if held.device.type != "cpu":
        held = held.cpu()
    bits = bits_of(held)
    if bits is not None:
        return bits
    return held_in_32(held.numpy(), name)


def as_tensor(array: np.ndarray, like: Any) -> Any:
    """An array as a tensor of the dtype, shape and strides of `like`, which may be a fake one; in
    the array's own memory where that can be. Where elements of `like` share memory it is row-major.
    """
    torch = importlib.import_module("torch")
    bits = _BITS.get(str(like.dtype))
    if bits is not None:
        held = torch.from_numpy(array.view(np.dtype(bits[0]))).view(like.dtype)
    else:
        held = torch.from_numpy(array).to(like.dtype)
    held = held.reshape(like.shape)
    pairs = zip(like.stride(), like.shape, strict=True)
    is_shared = any(stride == 0 and extent > 1 for stride, extent in pairs)
    if is_shared or held.stride() == tuple(like.stride()):
        return held
    placed = torch.empty_strided(tuple(like.shape), tuple(like.stride()), dtype=like.dtype)
    return placed.copy_(held)
