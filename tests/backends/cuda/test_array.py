"""Outputs left on the device: how long they live, and what other libraries see."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import poot
from poot import ops
from poot.backends.cuda import open_device
from poot.backends.cuda.array import CudaView
from poot.backends.cuda.device import CudaDevice
from poot.device_array import DeviceArray
from poot.errors import BackendError, BindError, DeviceLost, StaleArray
from poot.ir.graph import TensorType
from poot.session import Session
from tests.support.fake_cuda import fake_device
from tests.support.ptx_device import PtxDriver, ptx_device


def step(kv, x, pos):
    kv = ops.dynamic_update_slice(kv, x, pos, axis=0)
    return {"sum": kv.sum(axis=0), "big": kv.sum(axis=0) > 2.0}, kv


def session(device: object, **options: bool) -> Session:
    specs = (
        poot.state((4, 8)),
        poot.slot((1, 8), "f32"),
        poot.slot((), "i32", kind="pos", range=(0, 4)),
    )
    program = poot.compile(poot.trace(step, specs), device, cache=False)  # pyright: ignore[reportArgumentType] - a device
    return program.bind(device_outputs=True, **options)


def ones(value: float = 1.0) -> np.ndarray:
    return np.full((1, 8), value, np.float32)


def test_an_output_lives_until_the_next_step_and_a_copy_longer():
    bound = session(ptx_device())
    out = bound.step(x=ones(), pos=0)
    first, flags = out["sum"], out["big"]
    assert isinstance(first, DeviceArray)
    np.testing.assert_array_equal(first.numpy(), np.ones(8, np.float32))
    np.testing.assert_array_equal(np.asarray(flags), np.zeros(8, np.bool_))
    kept = first.copy()
    bound.step(x=ones(2.0), pos=1)
    for touch in (
        first.numpy,
        first.copy,
        first.__dlpack__,
        lambda: first.__cuda_array_interface__,
    ):
        with pytest.raises(BindError, match=r"was valid until .*keep one by out.copy"):
            touch()
    np.testing.assert_array_equal(kept.numpy(), np.ones(8, np.float32))


def test_an_output_goes_with_its_session():
    bound = session(ptx_device())
    out = bound.step(x=ones(), pos=0)["sum"]
    bound.close()
    with pytest.raises(BindError, match="or close"):
        out.numpy()


def test_a_fork_leaves_its_outputs_on_the_device_too():
    bound = session(ptx_device())
    bound.step(x=ones(), pos=0)
    other = bound.fork()
    mine, theirs = bound.step(x=ones(), pos=1)["sum"], other.step(x=ones(3.0), pos=1)["sum"]
    np.testing.assert_array_equal(mine.numpy(), np.full(8, 2, np.float32))
    np.testing.assert_array_equal(theirs.numpy(), np.full(8, 4, np.float32))


def test_other_targets_leave_outputs_where_they_are_too():
    for target in ("oracle", "cpu"):
        out = session(target).step(x=ones(), pos=0)["sum"]
        assert isinstance(out, DeviceArray)
        assert not hasattr(out, "__cuda_array_interface__")
        np.testing.assert_array_equal(out.numpy(), np.ones(8, np.float32))


def array(dtype: str = "f32", shape: tuple[int, ...] = (2, 3)) -> CudaView:
    device = fake_device()
    return CudaView(device, device.allocate(64, "x"), 16, TensorType(dtype, shape))


def test_the_interface_names_the_address_and_the_stream():
    found = array()
    seen = found.__cuda_array_interface__
    assert seen["data"] == (found._buffer.pointer + 16, False)
    assert (seen["shape"], seen["typestr"], seen["stream"]) == ((2, 3), "<f4", 7)
    assert array("bool").__cuda_array_interface__["typestr"] == "<u4"
    assert array("i32", (0,)).__cuda_array_interface__["data"] == (0, False)
    with pytest.raises(BackendError, match="take it over DLPack"):
        _ = array("bf16").__cuda_array_interface__


def test_a_consumers_stream_waits_unless_it_says_not_to():
    found = array()
    driver = found._device.driver  # pyright: ignore[reportAttributeAccessIssue] - the fake device's
    for stream, asked in ((None, ["follow 1"]), (5, ["follow 5"]), (-1, [])):
        driver.asked.clear()
        found.__dlpack__(stream=stream)
        assert driver.asked == asked
    with pytest.raises(BufferError, match=r"on cuda:0, not on \(1, 0\)"):
        found.__dlpack__(dl_device=(1, 0))


@pytest.mark.parametrize("stream", [0, -2, True, "x", 1.0])
def test_what_is_no_stream_is_refused(stream):
    with pytest.raises(BufferError, match="a stream is None, -1, 1, 2 or a handle"):
        array().__dlpack__(stream=stream)


def taken(ways: str) -> tuple[Session, CudaDevice, int, object]:
    """An output handed on in one of two ways: its session, device, address, and what holds it."""
    device = ptx_device()
    bound = session(device)
    out = bound.step(x=ones(3.0), pos=0)["sum"]
    address = out.__cuda_array_interface__["data"][0]
    held = out if ways == "interface" else bound.step(x=ones(3.0), pos=0)["sum"].__dlpack__()
    return bound, device, address, held


def allocated(device: CudaDevice) -> int:
    driver = device.driver
    assert isinstance(driver, PtxDriver)
    return len(driver.sizes)


@pytest.mark.parametrize("way", ["capsule", "interface"])
def test_memory_that_was_handed_on_outlives_the_session(way):
    bound, device, address, held = taken(way)
    before = allocated(device)
    bound.close()
    assert 1 <= allocated(device) < before
    words = device.driver._bytes(address, 32).view(np.float32)  # pyright: ignore[reportAttributeAccessIssue] - the stand-in's
    assert (words == 3.0).all()
    left = allocated(device)
    del held, bound
    gc.collect()
    assert allocated(device) < left


def test_a_session_whose_outputs_nobody_took_leaves_nothing():
    device = ptx_device()
    bound = session(device)
    out = bound.step(x=ones(3.0), pos=0)["sum"]
    out.numpy()
    bound.close()
    assert allocated(device) == 0
    for touch in (out.__dlpack__, out.__dlpack_device__, lambda: out.__cuda_array_interface__):
        with pytest.raises(StaleArray):
            touch()


def test_a_device_closes_with_the_last_array_in_its_memory():
    bound, device, _, held = taken("capsule")
    device.close()
    driver = device.driver
    assert driver.is_alive
    with pytest.raises(BackendError, match="was closed"):
        device.synchronize()
    with pytest.raises(BackendError, match="was closed"):
        bound.step(x=ones(), pos=0)
    del held
    gc.collect()
    assert not driver.is_alive


def test_a_loss_that_comes_out_at_a_sessions_close_is_raised_with_all_freed():
    device = ptx_device()
    bound = session(device)
    bound.step(x=ones(), pos=0)
    device.driver.fails["free"] = "ILLEGAL_ADDRESS"  # pyright: ignore[reportAttributeAccessIssue] - the stand-in's
    with pytest.raises(DeviceLost, match="outside of every allocation"):
        bound.close()
    bound.close()
    with pytest.raises(BindError, match="this session is closed"):
        bound.step(x=ones(), pos=0)
    with pytest.raises(DeviceLost, match="was lost before"):
        session(device)


@pytest.mark.cuda
@pytest.mark.parametrize("provider", ["cuda-bindings", "pycuda"])
def test_torch_keeps_what_it_took_after_the_close(provider):
    torch = pytest.importorskip("torch")
    device = open_device(0, provider=provider)
    bound = session(device)
    out = bound.step(x=ones(3.0), pos=0)["sum"]
    over, seen = torch.from_dlpack(out), torch.as_tensor(out, device="cuda")
    bound.close()
    device.close()
    again = session(open_device(0, provider=provider))
    again.step(x=ones(9.0), pos=0)
    assert float(over.sum()) == 24.0
    assert float(seen.sum()) == 24.0


@pytest.mark.cuda
@pytest.mark.parametrize("provider", ["cuda-bindings", "pycuda"])
def test_torch_reads_an_output_where_it_is(provider):
    torch = pytest.importorskip("torch")
    bound = session(open_device(0, provider=provider))
    out = bound.step(x=ones(3.0), pos=0)["sum"]
    taken = torch.from_dlpack(out)
    assert taken.device.type == "cuda"
    assert taken.data_ptr() == out.__cuda_array_interface__["data"][0]
    assert float(taken.sum()) == 24.0
    assert float(torch.as_tensor(out, device="cuda").sum()) == 24.0
    kept = torch.from_dlpack(out.copy())
    bound.step(x=ones(5.0), pos=1)
    torch.cuda.synchronize()
    assert float(kept.sum()) == 24.0


@pytest.mark.cuda
def test_a_program_runs_on_the_callers_stream():
    torch = pytest.importorskip("torch")
    stream = torch.cuda.Stream()
    bound = session(open_device(0, provider="cuda-bindings", stream=stream))
    bound.capture()
    with torch.cuda.stream(stream):
        out = torch.from_dlpack(bound.step(x=ones(2.0), pos=0)["sum"])
        doubled = out * 2
    stream.synchronize()
    assert float(doubled.sum()) == 32.0


def test_memory_that_was_freed_is_not_handed_on():
    found = array()
    found._buffer.free()  # pyright: ignore[reportAttributeAccessIssue] - a CudaBuffer
    for touch in (found.__dlpack__, lambda: found.__cuda_array_interface__):
        with pytest.raises(BindError, match="went with its session"):
            touch()
    assert "f32[2,3]" in repr(found)
