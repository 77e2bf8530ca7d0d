"""Other libraries' arrays of CUDA memory: over DLPack, or by `__cuda_array_interface__`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NotRequired, TypedDict

import numpy as np

from poot import dlpack
from poot.errors import BindError
from poot.ir.dtypes import dtype_of
from poot.ir.graph import TensorType

_INTERFACE = "__cuda_array_interface__"
_LEGACY = 1


class Interface(TypedDict):
    """What `__cuda_array_interface__` gives, version 3; `strides` None is C order."""

    shape: tuple[int, ...]
    typestr: str
    data: tuple[int, bool]
    strides: NotRequired[tuple[int, ...] | None]
    stream: NotRequired[int | None]


@dataclass(frozen=True, slots=True, eq=False)
class Foreign:
    """An array of another library: its address, its type, what keeps it, and the stream that has to
    be waited for (None: its maker made ours wait)."""

    pointer: int
    type: TensorType
    hold: object
    stream: int | None = None


def foreign(value: object, index: int, stream: int, what: str) -> Foreign | None:
    """What an array of this device's memory is; None for what is none. Its maker makes `stream`
    wait for what it enqueued. Raises BindError where it can't be taken as it is, or is another
    card's."""
    if isinstance(value, dlpack.Exports):
        return _over_dlpack(value, index, stream, what)
    given: Interface | None = getattr(value, _INTERFACE, None)
    if given is None:
        return None
    try:
        return _by_interface(value, given, what)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as e:
        said = f"{type(e).__name__}: {e}"
        raise BindError(f"{what} has an {_INTERFACE} that says no array: {said}") from e


def _over_dlpack(value: dlpack.Exports, index: int, stream: int, what: str) -> Foreign | None:
    kind, number = dlpack.device_of(value, what)
    if kind != dlpack.CUDA:
        return None
    if number != index:
        raise BindError(f"{what} lies on cuda:{number}, and this session on cuda:{index}: move it")
    made = dlpack.take(dlpack.capsule_of(value, what, stream or _LEGACY), what)
    return Foreign(made.pointer, made.type, made.hold)


def _by_interface(value: object, given: Interface, what: str) -> Foreign:
    numpy_dtype = np.dtype(given["typestr"])
    dtype = dtype_of(numpy_dtype)
    if dtype is None or dtype == "bool":
        raise BindError(f"{what} is {numpy_dtype} on the device, which poot has not: convert it")
    strides = given.get("strides")
    if strides is not None and not _in_order(given["shape"], strides, numpy_dtype.itemsize):
        raise BindError(f"{what} needs to be contiguous to be taken where it lies: make it so")
    type = TensorType(dtype, tuple(given["shape"]))
    return Foreign(given["data"][0], type, value, given.get("stream"))


def _in_order(shape: tuple[int, ...], strides: tuple[int, ...], nbytes: int) -> bool:
    if 0 in shape:
        return True
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != nbytes:
            return False
        nbytes *= extent
    return True
