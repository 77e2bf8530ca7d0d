"""Other libraries' arrays given to slots, States and Weights, and memory adopted by its handle."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch

import poot
from poot import dlpack, ops
from poot.backends.cuda import open_device
from poot.backends.cuda.device import CudaDevice
from poot.device_array import DeviceArray
from poot.errors import BackendError, BindError, RangeError
from poot.foreign_array import adopt, on_device
from tests.support.everywhere import compile_on
from tests.support.ptx_device import ptx_device
from tests.support.sim_device import SimDevice


class Theirs:
    """Another library's array of a card's memory. `asked` is the stream that it made wait."""

    def __init__(self, device: CudaDevice, data: np.ndarray, dtype: str, index: int = 0) -> None:
        self.type = (data.shape, dtype)
        self.index = index
        self.asked: object = "nothing"
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self.pointer = device.driver.allocate(-(-raw.size // 16) * 16)
        device.driver.copy_in(self.pointer, raw)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self.index

    def __dlpack__(self, *, stream: int | None = None) -> object:
        self.asked = stream
        return dlpack.capsule(self.pointer, *self.type, (dlpack.CUDA, self.index), self)


def step(kv, x, w, at):
    kv = ops.dynamic_update_slice(kv, x, at, axis=0)
    return kv @ w, kv


def session(device: object) -> poot.Session:
    specs = (
        poot.state((4, 8)), poot.slot((1, 8), "f32"), poot.weight((8, 8)),
        poot.slot((), "i32", range=(0, 4)),
    )  # fmt: skip
    program = poot.compile(poot.trace(step, specs), device, cache=False)  # pyright: ignore[reportArgumentType] - a device
    w = 3 * np.eye(8, dtype=np.float32)
    is_real = not hasattr(getattr(device, "driver", None), "machine")
    return program.bind({"w": w if is_real else Theirs(device, w, "f32")})  # pyright: ignore[reportArgumentType] - as told


def test_slots_states_and_weights_are_taken_where_they_lie():
    device = ptx_device()
    bound = session(device)
    bound.state["kv"] = Theirs(device, np.ones((4, 8), np.float32), "f32")
    x = Theirs(device, np.full((1, 8), 2, np.float32), "f32")
    out = bound.step(x=x, at=Theirs(device, np.array(1, np.int32), "i32"))
    np.testing.assert_array_equal(out, 3 * bound.state["kv"])
    assert bound.state["kv"][:, 0].tolist() == [1, 2, 1, 1]
    assert x.asked == device.stream  # its maker made ours wait


def test_a_slot_with_a_range_is_checked_on_the_device():
    device = ptx_device()
    bound = session(device)
    x = Theirs(device, np.full((1, 8), 2, np.float32), "f32")
    with pytest.raises(RangeError, match="at"):
        bound.step(x=x, at=Theirs(device, np.array(4, np.int32), "i32"))
    assert not bound.state["kv"].any()


def test_what_is_copied_from_is_held_until_the_copy_is_done():
    device = ptx_device()
    bound = session(device)
    x = Theirs(device, np.full((1, 8), 2, np.float32), "f32")
    seen = weakref.ref(x)
    bound.step(x=x, at=0, device_outputs=True)
    del x
    gc.collect()
    assert seen() is not None
    bound.wait()
    gc.collect()
    assert seen() is None


def test_copies_that_nobody_waits_for_hold_so_many_at_the_most():
    device = ptx_device()
    bound = session(device)
    for n in range(200):
        x = Theirs(device, np.full((1, 8), n, np.float32), "f32")
        bound.step(x=x, at=0, device_outputs=True)
        assert len(device._read) < 64
    assert (bound.state["kv"][0] == 199).all()


def test_an_array_of_another_card_or_type_is_refused():
    device = ptx_device()
    bound = session(device)
    zeros = np.zeros((1, 8), np.float32)
    with pytest.raises(BindError, match="x lies on cuda:1, and this session on cuda:0: move it"):
        bound.step(x=Theirs(device, zeros, "f32", index=1), at=0)
    with pytest.raises(BindError, match=r"input 'x' needs f32\[1,8\]: got i32\[1,8\]"):
        bound.step(x=Theirs(device, zeros, "i32"), at=0)


def test_values_that_are_no_arrays_of_the_device_are_left_as_they_are():
    device = ptx_device()
    for value in (np.zeros(3), 3, [1, 2], torch.zeros(3), "text", None):
        assert on_device(device, value, "x") is value
    assert on_device(None, value := torch.zeros(3), "x") is value
    assert on_device(SimDevice(), value, "x") is value


def test_bf16_of_torch_is_taken_on_the_cpu():
    """numpy refuses it over DLPack."""
    graph = poot.trace(lambda x, w: x * w, (poot.slot((4,), "bf16"), poot.weight((4,), "bf16")))
    x = torch.arange(4).to(torch.bfloat16)
    bound = compile_on("cpu", graph).bind({"w": x}, device_outputs=True)
    out = bound.step(x=x)
    assert isinstance(out, DeviceArray)
    taken = torch.from_dlpack(out)
    assert taken.dtype == torch.bfloat16
    assert taken.tolist() == [0, 1, 4, 9]
    bound.close()
    gc.collect()
    assert taken.tolist() == [0, 1, 4, 9]  # it keeps the memory


def test_the_process_memory_is_adopted_by_its_address():
    data = np.arange(16, dtype=np.float32)
    seen = weakref.ref(data)
    graph = poot.trace(lambda x: x * 2.0, (poot.slot((16,), "f32"),))
    program = compile_on("cpu", graph)
    device = program.device
    assert device is not None
    array = adopt(device, data.ctypes.data, "f32", (16,), owner=data)
    data[3] = 50
    assert array.numpy()[3] == 50
    assert program.bind().step(x=array).tolist() == (2 * data).tolist()  # pyright: ignore[reportAttributeAccessIssue] - one output
    del data
    gc.collect()
    assert seen() is not None
    del array
    gc.collect()
    assert seen() is None


def test_a_cards_memory_is_adopted_by_its_address():
    device = ptx_device()
    pointer = device.driver.allocate(64)
    device.driver.copy_in(pointer, np.arange(16, dtype=np.float32).view(np.uint8))
    array = adopt(device, pointer, "f32", (16,))
    assert array.numpy().tolist() == list(range(16))
    assert array.__cuda_array_interface__["data"] == (pointer, False)


def test_what_can_not_be_adopted_is_refused():
    device = compile_on("cpu", poot.trace(lambda x: x + 1.0, (poot.slot((4,), "f32"),))).device
    assert device is not None
    for handle in (0, 6, 2**63, 2**70, "text", None):
        with pytest.raises(BackendError, match="needs an address and a size in whole words"):
            adopt(device, handle, "f32", (4,))
    with pytest.raises(BindError, match="no dtype 'f64'"):
        adopt(device, 64, "f64", (4,))
    with pytest.raises(BindError, match="no dtype \\['f32'\\]"):
        adopt(device, 64, ["f32"], (4,))  # pyright: ignore[reportArgumentType] - what users give
    for shape in (4, (-4,), (1.5,), {4: 1}, "44"):
        with pytest.raises(BindError, match="needs a shape of whole extents of 0 or more: got "):
            adopt(device, 64, "f32", shape)  # pyright: ignore[reportArgumentType] - what users give
    with pytest.raises(BindError, match=r"needs an open device, as .* got str 'cpu'"):
        adopt("cpu", 64, "f32", (4,))  # pyright: ignore[reportArgumentType] - what users give
    with pytest.raises(BackendError, match="adopts no memory"):
        adopt(SimDevice(), 64, "f32", (4,))


@pytest.mark.cuda
@pytest.mark.parametrize("provider", ["cuda-bindings", "pycuda"])
def test_tensors_of_torch_on_a_card_go_in_where_they_lie(provider):
    device = open_device(0, provider=provider)
    specs = (poot.state((4, 8)), poot.slot((1, 8), "f32"), poot.weight((8, 8)),
             poot.slot((), "i32", range=(0, 4)))  # fmt: skip
    bound = poot.compile(poot.trace(step, specs), device).bind({"w": 3 * torch.eye(8).cuda()})
    bound.state["kv"] = torch.ones(4, 8).cuda()
    for n in range(4):
        x = torch.full((1, 8), 1.0, device="cuda") * (n + 2)  # enqueued, not waited for
        out = bound.step(x=x, at=torch.tensor(n, dtype=torch.int32, device="cuda"))
        assert (np.asarray(out)[n] == 3 * (n + 2)).all()
    with pytest.raises(RangeError, match="at"):
        bound.step(x=x, at=torch.tensor(4, dtype=torch.int32, device="cuda"))


@pytest.mark.cuda
def test_the_interface_of_a_card_goes_in_too():
    class Interface:
        def __init__(self, tensor: torch.Tensor) -> None:
            self.tensor = tensor
            self.__cuda_array_interface__ = tensor.__cuda_array_interface__

    bound = session(open_device(0, provider="cuda-bindings"))
    x = Interface(torch.full((1, 8), 2.0, device="cuda"))
    torch.cuda.synchronize()
    assert (np.asarray(bound.step(x=x, at=0))[0] == 6).all()
