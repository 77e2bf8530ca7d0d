"""Outputs left on the device, as arrays."""

from __future__ import annotations

from contextlib import contextmanager
from typing import ClassVar

import numpy as np
import pytest
import torch

import poot
from poot import ops
from poot.device_array import Always, DeviceArray, Stored
from poot.errors import BindError, StaleArray
from poot.ir.dtypes import DTYPES
from poot.ir.graph import TensorType
from tests.support.everywhere import compile_on
from tests.support.sim_device import SimDevice


class Stale:
    @contextmanager
    def held(self):
        raise StaleArray("gone")
        yield


def on_cpu(dtype: str) -> DeviceArray:
    """Six numbers, twice themselves, on the CPU target."""
    graph = poot.trace(lambda x: ops.add(x, x), (poot.slot((2, 3), dtype),))
    session = compile_on("cpu", graph).bind()
    x = np.arange(6).reshape(2, 3).astype(graph.inputs[0].var.type.dtype.replace("i32", "int32")
                                          .replace("f32", "float32"))  # fmt: skip
    out = session.step(x=x, device_outputs=True)
    assert isinstance(out, DeviceArray)
    return out


@pytest.mark.parametrize("dtype", ["f32", "i32"])
def test_an_array_says_what_it_is_and_reads_as_numpy(dtype: str):
    out = on_cpu(dtype)
    assert (out.shape, out.type) == ((2, 3), TensorType(dtype, (2, 3)))
    assert out.dtype == out.numpy().dtype
    np.testing.assert_array_equal(out, 2 * np.arange(6).reshape(2, 3))
    assert np.asarray(out, np.float64).dtype == np.float64
    assert repr(out) == f"DeviceArray({dtype}[2,3])"


def test_host_memory_is_handed_over_without_a_copy():
    out = on_cpu("f32")
    given = np.from_dlpack(out)
    np.testing.assert_array_equal(given, out.numpy())
    tensor = torch.from_dlpack(out)
    tensor[0, 0] = 9.0
    assert out.numpy()[0, 0] == 9.0
    assert given[0, 0] == 9.0


def test_a_copy_lives_on_in_memory_of_its_own():
    out = on_cpu("f32")
    copy = out.copy()
    torch.from_dlpack(out)[0, 0] = 9.0
    assert copy.numpy()[0, 0] == 0.0
    assert not hasattr(copy, "__cuda_array_interface__")


def array_on(device: object, buffer: object, dtype: str = "f32") -> DeviceArray:
    return DeviceArray(Stored(TensorType(dtype, (2,)), device, buffer, 8), Always())


def test_memory_of_another_device_is_no_host_memory():
    device = SimDevice()
    out = array_on(device, device.allocate(16, "probe"))
    with pytest.raises(BindError, match=r"no host memory; take a copy of it by .numpy\(\)"):
        np.from_dlpack(out)
    assert out.numpy().tolist() == [0, 0]


class Shared:
    """What a device gives to other libraries."""

    __cuda_array_interface__: ClassVar[dict[str, object]] = {"version": 3}

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, *, stream=None, dl_device=None):
        return f"a capsule for stream {stream}"


class Sharing(SimDevice):
    def view(self, buffer, offset, type):
        return Shared()


def test_memory_that_a_device_shares_is_handed_over_as_the_device_does():
    device = Sharing()
    out = array_on(device, device.allocate(16, "probe"))
    assert out.__cuda_array_interface__ == {"version": 3}
    assert out.__dlpack_device__() == (2, 0)
    assert out.__dlpack__(stream=5) == "a capsule for stream 5"
    taken = device.allocated
    assert out.__dlpack__(copy=True) == "a capsule for stream None"
    assert device.allocated > taken  # in memory of its own


def test_the_host_can_not_see_an_array_without_a_copy():
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(on_cpu("f32"), copy=False)
    with pytest.raises(BufferError, match=r"not on \(2, 0\)"):
        on_cpu("f32").__dlpack__(dl_device=(2, 0))


@pytest.mark.parametrize("dtype, other", [("bf16", torch.bfloat16), ("f8e4m3", torch.uint8)])
def test_a_dtype_that_numpy_lacks_goes_to_those_who_have_it(dtype, other):
    graph = poot.trace(lambda x: (x.astype("f32") + 1.0).astype(dtype), (poot.slot((2,), dtype),))
    out = (
        compile_on("cpu", graph).bind().step(x=np.ones(2, DTYPES[dtype].numpy), device_outputs=True)
    )
    assert isinstance(out, DeviceArray)
    taken = torch.from_dlpack(out)
    assert taken.dtype == other
    np.testing.assert_array_equal(taken.view(torch.uint8).numpy(), out.tagged().bits.view(np.uint8))
    assert out.tagged().array().tolist() == [2, 2]
    with pytest.raises(RuntimeError if dtype == "bf16" else AssertionError):
        assert np.from_dlpack(out).dtype == out.dtype
    with pytest.raises(BindError, match="needs no tag"):
        on_cpu("f32").tagged()


def test_every_touch_of_a_stale_array_says_so():
    device = Sharing()
    out = DeviceArray(Stored(TensorType("f32", (2,)), device, device.allocate(16, "p")), Stale())
    for touch in (
        out.numpy,
        out.copy,
        out.__dlpack__,
        lambda: np.asarray(out),
        lambda: out.__cuda_array_interface__,
    ):
        with pytest.raises(StaleArray):
            touch()
    assert out.shape == (2,)  # its type is known for ever


def test_bools_come_back_as_bools():
    device = SimDevice()
    buffer = device.allocate(16, "probe")
    device.copy_in(buffer, 8, np.array([1, 0], np.uint32))
    assert array_on(device, buffer, "bool").numpy().tolist() == [True, False]


def test_an_array_without_elements_reads_as_one():
    device = SimDevice()
    stored = Stored(TensorType("f32", (0, 3)), device, device.allocate(16, "probe"))
    assert DeviceArray(stored, Always()).numpy().shape == (0, 3)
    assert DeviceArray(stored, Always()).copy().numpy().shape == (0, 3)
