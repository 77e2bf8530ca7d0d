"""Memory as DLPack capsules and out of them, by ctypes.

Source of the structures: DLPack 0.8, `dlpack.h` (the unversioned form, which every consumer takes).
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from poot.errors import BindError
from poot.ir.graph import TensorType

CPU, CUDA = 1, 2  # kDLCPU, kDLCUDA
# dtype -> (type code, bits): kDLInt 0, kDLUInt 1, kDLFloat 2, kDLBfloat 4. A bool is a u32 word on
# the device; f8e4m3 goes as its byte.
DTYPES = {
    "f32": (2, 32), "f16": (2, 16), "bf16": (4, 16), "i32": (0, 32), "u32": (1, 32),
    "bool": (1, 32), "i8": (0, 8), "u8": (1, 8), "f8e4m3": (1, 8),
}  # fmt: skip
# The other way round: a byte is a u8, whatever its maker meant; DLPack 1.1 names float8.
_TYPES = {
    (2, 32): "f32", (2, 16): "f16", (4, 16): "bf16", (0, 32): "i32", (1, 32): "u32", (0, 8): "i8",
    (1, 8): "u8", (10, 8): "f8e4m3",
}  # fmt: skip
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
NAME, USED = b"dltensor", b"used_dltensor"


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _Dtype(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Dtype),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    """DLManagedTensor: the tensor, what keeps it alive, and how to let that go."""

    _fields_ = (
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    )


_API = ctypes.PyDLL(None)
_pointer_in = _API.PyCapsule_GetPointer
_pointer_in.restype, _pointer_in.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_rename = _API.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_CARRIERS = {8: "|u1", 16: "<u2", 32: "<u4"}
_SOMEWHERE = 64  # an address for numpy to carry, replaced before anyone sees it


class _Owned:
    """What numpy's array is of: it holds on to the owner."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, shape: tuple[int, ...], typestr: str, owner: object) -> None:
        data = (_SOMEWHERE, False)
        self.__array_interface__ = {
            "shape": shape, "typestr": typestr, "data": data, "version": 3
        }  # fmt: skip
        self.owner = owner


def capsule(
    pointer: int, shape: Sequence[int], dtype: str, device: tuple[int, int], owner: object
) -> object:
    """A capsule "dltensor" of contiguous memory of a device (kind, index); `owner` lives until it
    is deleted.

    It is numpy's, of an array of the same shape and size that never looks at its memory, with the
    address, device and dtype written over: what deletes it runs in the middle of a consumer's
    exception too, and numpy's does so without Python."""
    code, bits = DTYPES[dtype]
    array = np.asarray(_Owned(tuple(shape), _CARRIERS[bits], owner))
    made = array.__dlpack__()
    tensor = Managed.from_address(_pointer_of(made, "an array")).tensor
    tensor.data, tensor.byte_offset = pointer, 0
    tensor.device.type, tensor.device.id = device
    tensor.dtype.code = code
    return made


@runtime_checkable
class Exports(Protocol):
    """An array with DLPack."""

    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __dlpack__(self, *, stream: int | None = None) -> object: ...


def device_of(value: Exports, what: str) -> tuple[int, int]:
    """(kind, index) of the device that an array says it lies on. Raises BindError where what it
    says is none: another library's code may raise or return anything."""
    try:
        kind, index = value.__dlpack_device__()
        return int(kind), int(index)
    except Exception as e:
        raise BindError(f"{what} names no device by DLPack: {type(e).__name__}: {e}") from e


def capsule_of(value: Exports, what: str, stream: int | None = None) -> object:
    """The capsule that an array gives. Raises BindError where it gives none."""
    try:
        return value.__dlpack__() if stream is None else value.__dlpack__(stream=stream)
    except Exception as e:
        said = f"{e}; hand it over as numpy"
        raise BindError(f"{what} can't be read over DLPack: {said}") from e


class Hold:
    """What another library gave, until the last who uses it: then its deleter runs."""

    __slots__ = ("__weakref__",)

    def __init__(self, managed: int) -> None:
        weakref.finalize(self, _give_back, managed)


def _give_back(managed: int) -> None:
    deleter = Managed.from_address(managed).deleter
    if deleter:
        deleter(managed)


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """An array out of a capsule: its first byte, its type, the device (kind, index) that it lies
    on, what keeps it, and its strides in elements where it isn't contiguous."""

    pointer: int
    type: TensorType
    device: tuple[int, int]
    hold: Hold
    strides: tuple[int, ...] | None = None


def take(capsule: object, what: str, *, is_strided: bool = False) -> Taken:
    """The array of a capsule that nobody took yet. Raises BindError where it isn't contiguous
    (unless it may be strided) or of a dtype that poot has not; then it is left untaken."""
    address = _pointer_of(capsule, what)
    tensor = Managed.from_address(address).tensor
    shape = tuple(int(tensor.shape[n]) for n in range(tensor.ndim))
    code, bits, lanes = tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes
    dtype = _TYPES.get((code, bits))
    if dtype is None or lanes != 1:
        word = f"{_CODES.get(code, f'of code {code}')}{bits}"
        raise BindError(f"{what} is {word}; poot has {', '.join(_TYPES.values())}: convert it")
    strides = tuple(int(tensor.strides[n]) for n in range(len(shape))) if tensor.strides else None
    if strides is not None and _is_contiguous(shape, strides):
        strides = None
    if strides is not None and (not is_strided or min(strides) < 0):
        raise BindError(f"{what} needs to be contiguous to be taken where it lies: make it so")
    pointer = (tensor.data or 0) + tensor.byte_offset
    device = (int(tensor.device.type), int(tensor.device.id))
    _rename(capsule, USED)
    return Taken(pointer, TensorType(dtype, shape), device, Hold(address), strides)


def _pointer_of(capsule: object, what: str) -> int:
    try:
        return int(_pointer_in(capsule, NAME))
    except ValueError as e:
        raise BindError(f"{what} gave no DLPack capsule that can be taken: {e}") from e


def _is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """In C order; the stride of an axis of one element means nothing."""
    if not math.prod(shape):
        return True
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True
