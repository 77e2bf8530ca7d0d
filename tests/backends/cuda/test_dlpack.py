"""The capsule: its fields, and who keeps what alive for how long."""

from __future__ import annotations

import ctypes
import gc
import weakref

import pytest

from poot.backends.cuda import dlpack
from poot.backends.cuda.dlpack import NAME, USED, Managed, capsule

_API = ctypes.pythonapi
_API.PyCapsule_GetPointer.restype = ctypes.c_void_p
_API.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_API.PyCapsule_SetName.argtypes = (ctypes.py_object, ctypes.c_char_p)


class Owner:
    """Something to keep alive."""


def managed(made: object) -> Managed:
    return Managed.from_address(_API.PyCapsule_GetPointer(made, NAME))


@pytest.mark.parametrize(
    "dtype, code, bits", [("f32", 2, 32), ("bf16", 4, 16), ("bool", 1, 32), ("i8", 0, 8)]
)
def test_fields_are_the_arrays(dtype, code, bits):
    made = capsule(0x7F0000001000, (2, 3, 5), dtype, 1, Owner())
    tensor = managed(made).tensor
    assert tensor.data == 0x7F0000001000
    assert (tensor.device.type, tensor.device.id, tensor.ndim) == (dlpack.CUDA, 1, 3)
    assert [tensor.shape[n] for n in range(3)] == [2, 3, 5]
    assert not tensor.strides
    assert (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) == (code, bits, 1)


def test_a_capsule_that_nobody_took_lets_its_owner_go():
    owner = Owner()
    seen = weakref.ref(owner)
    made = capsule(0, (), "f32", 0, owner)
    del owner
    gc.collect()
    assert seen() is not None
    del made
    gc.collect()
    assert seen() is None


def test_a_capsule_that_was_taken_lives_until_its_deleter_runs():
    owner = Owner()
    seen = weakref.ref(owner)
    made = capsule(0, (4,), "f32", 0, owner)
    taken = managed(made)
    address = ctypes.addressof(taken)
    _API.PyCapsule_SetName(made, USED)
    del owner, made, taken
    gc.collect()
    assert seen() is not None
    Managed.from_address(address).deleter(address)
    gc.collect()
    assert seen() is None
