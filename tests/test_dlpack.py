"""The capsule: its fields, and who keeps what alive for how long."""

from __future__ import annotations

import ctypes
import gc
import weakref

import numpy as np
import pytest

import poot
from poot import dlpack
from poot.dlpack import CPU, CUDA, NAME, USED, Managed, capsule, capsule_of, device_of, take
from poot.errors import BindError

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
    made = capsule(0x7F0000001000, (2, 3, 5), dtype, (CUDA, 1), Owner())
    tensor = managed(made).tensor
    assert tensor.data == 0x7F0000001000
    assert (tensor.device.type, tensor.device.id, tensor.ndim) == (dlpack.CUDA, 1, 3)
    assert [tensor.shape[n] for n in range(3)] == [2, 3, 5]
    assert [tensor.strides[n] for n in range(3)] == [15, 5, 1]
    assert (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) == (code, bits, 1)


def test_a_capsule_that_nobody_took_lets_its_owner_go():
    owner = Owner()
    seen = weakref.ref(owner)
    made = capsule(0, (), "f32", (CPU, 0), owner)
    del owner
    gc.collect()
    assert seen() is not None
    del made
    gc.collect()
    assert seen() is None


def test_a_capsule_that_was_taken_lives_until_its_deleter_runs():
    owner = Owner()
    seen = weakref.ref(owner)
    made = capsule(0, (4,), "f32", (CPU, 0), owner)
    taken = managed(made)
    address = ctypes.addressof(taken)
    _API.PyCapsule_SetName(made, USED)
    del owner, made, taken
    gc.collect()
    assert seen() is not None
    Managed.from_address(address).deleter(address)
    gc.collect()
    assert seen() is None


def given(
    shape: tuple[int, ...] = (2, 3), dtype: str = "f32", strides: tuple[int, ...] | None = None,
    code: tuple[int, int] | None = None, offset: int = 0,
) -> tuple[object, weakref.ref[Owner]]:  # fmt: skip
    """A capsule as another library makes it, and what says whether it is still held."""
    owner = Owner()
    made = capsule(0x1000, shape, dtype, (CUDA, 1), owner)
    tensor = managed(made).tensor
    tensor.byte_offset = offset
    if code is not None:
        tensor.dtype.code, tensor.dtype.bits = code
    if strides is not None:
        held = (ctypes.c_int64 * len(strides))(*strides)
        owner.strides = held  # pyright: ignore[reportAttributeAccessIssue] - kept with it
        tensor.strides = ctypes.cast(held, ctypes.POINTER(ctypes.c_int64))
    return made, weakref.ref(owner)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i32", "u32", "i8", "u8"])
def test_a_taken_array_is_what_was_given(dtype):
    made, _ = given(dtype=dtype, offset=8)
    found = take(made, "x")
    assert (found.pointer, found.device) == (0x1008, (CUDA, 1))
    assert str(found.type) == f"{dtype}[2,3]"


def test_a_taken_array_is_given_back_with_its_last_user():
    made, owner = given()
    found = take(made, "x")
    del made
    gc.collect()
    assert owner() is not None
    del found
    gc.collect()
    assert owner() is None


def test_a_capsule_is_taken_once():
    made, _ = given()
    _first = take(made, "x")
    with pytest.raises(BindError, match="x gave no DLPack capsule that can be taken"):
        take(made, "x")
    with pytest.raises(BindError, match="gave no DLPack capsule"):
        take(object(), "x")


@pytest.mark.parametrize(
    "shape, strides", [((2, 3), (3, 1)), ((2, 1, 3), (3, 77, 1)), ((0, 3), (5, 5)), ((), ())]
)
def test_strides_of_c_order_are_none(shape, strides):
    assert take(given(shape, strides=strides)[0], "x").type.shape == shape


def test_what_lies_apart_or_has_no_dtype_is_left_to_its_maker():
    rows = (
        ({"strides": (1, 2)}, "contiguous"),
        ({"code": (2, 64)}, "x is float64"),
        ({"code": (6, 8)}, "x is bool8"),
        ({"code": (9, 8)}, "of code 9"),
    )
    for options, word in rows:
        made, owner = given(**options)  # pyright: ignore[reportArgumentType] - by name
        with pytest.raises(BindError, match=word):
            take(made, "x")
        del made
        gc.collect()
        assert owner() is None  # nobody took it, so its own destructor deleted it


def test_a_consumer_that_refuses_raises_its_own_error_and_the_owner_goes():
    """numpy has no bf16: the capsule goes in the middle of its exception."""

    class Array:
        def __dlpack__(self, **options: object) -> object:
            return capsule(0x1000, (2,), "bf16", (CPU, 0), owner.pop())

        def __dlpack_device__(self) -> tuple[int, int]:
            return CPU, 0

    owner = [Owner()]
    seen = weakref.ref(owner[0])
    with pytest.raises(RuntimeError, match="Unsupported dtype"):
        np.from_dlpack(Array())
    gc.collect()
    assert seen() is None


def test_an_array_without_elements_or_axes_is_handed_on_too():
    for shape in ((), (0, 3)):
        assert take(capsule(0, shape, "i32", (CUDA, 0), None), "x").type.shape == shape


class Liar:
    """An array whose DLPack gives what it is told to; an error is raised."""

    def __init__(self, capsule: object, device: object = (CPU, 0)):
        self.capsule, self.device = capsule, device

    def __dlpack_device__(self):
        return told(self.device)

    def __dlpack__(self, **_: object):
        return told(self.capsule)


def told(what):
    if isinstance(what, Exception):
        raise what
    return what


LIES = (5, None, "x", RuntimeError("no"), KeyError("k"), ZeroDivisionError("z"))


@pytest.mark.parametrize("lie", LIES, ids=repr)
def test_what_gives_no_capsule_is_refused_by_name(lie):
    session = poot.compile(poot.trace(lambda x: x, (poot.slot((2,), "f32"),)), "oracle").bind()
    for array in (Liar(lie), Liar(lie, lie), Liar(lie, (CPU, "x")), Liar(lie, (77, 0))):
        with pytest.raises(BindError, match=r"^x (names no device by|gave no|can't be read over) "):
            session.step(x=array)
    with pytest.raises(BindError, match="DLPack"):
        take(capsule_of(Liar(lie), "x"), "x")
    with pytest.raises(BindError, match="x names no device by DLPack"):
        device_of(Liar(0, lie), "x")


def test_an_array_that_raises_when_it_is_read_is_refused_by_name():
    class Raises:
        def __array__(self, *_: object, **__: object):
            raise ZeroDivisionError("z")

    session = poot.compile(poot.trace(lambda x: x, (poot.slot((2,), "f32"),)), "oracle").bind()
    with pytest.raises(BindError, match=r"x needs an array of .*: z"):
        session.step(x=Raises())
