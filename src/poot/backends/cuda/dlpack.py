"""Device memory as a DLPack capsule, by ctypes.

Source of the structures: DLPack 0.8, `dlpack.h` (the unversioned form, which every consumer takes).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

CUDA = 2  # kDLCUDA
# dtype -> (type code, bits): kDLInt 0, kDLUInt 1, kDLFloat 2, kDLBfloat 4. A bool is a u32 word on
# the device; f8e4m3 goes as its byte.
DTYPES = {
    "f32": (2, 32), "f16": (2, 16), "bf16": (4, 16), "i32": (0, 32), "u32": (1, 32),
    "bool": (1, 32), "i8": (0, 8), "u8": (1, 8), "f8e4m3": (1, 8),
}  # fmt: skip
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
_new = _API.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_is_valid = _API.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_char_p)
_pointer = _API.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)
_increase, _decrease = _API.Py_IncRef, _API.Py_DecRef
_increase.argtypes = (ctypes.py_object,)
_decrease.argtypes = (ctypes.c_void_p,)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _delete(address: int) -> None:
    """The tensor's deleter: lets go of what its context holds, itself among it."""
    _decrease(Managed.from_address(address).context)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _drop(capsule: int) -> None:
    """The capsule's destructor: deletes a tensor that no consumer took."""
    if _is_valid(capsule, NAME):
        _delete(_pointer(capsule, NAME))


def capsule(pointer: int, shape: Sequence[int], dtype: str, device: int, owner: object) -> object:
    """A capsule "dltensor" of contiguous device memory; `owner` lives until it is deleted."""
    code, bits = DTYPES[dtype]
    extents = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    managed = Managed()
    tensor = managed.tensor
    tensor.data, tensor.byte_offset, tensor.ndim = pointer, 0, len(shape)
    tensor.device.type, tensor.device.id = CUDA, device
    tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = code, bits, 1
    tensor.shape = ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = _delete
    held = (owner, extents, managed)
    managed.context = id(held)
    _increase(held)
    return _new(ctypes.addressof(managed), NAME, ctypes.cast(_drop, ctypes.c_void_p))
