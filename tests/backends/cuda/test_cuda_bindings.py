"""The calls that cuda-bindings gets, in order, against a stand-in for the library."""

from __future__ import annotations

import ctypes
import gc
from dataclasses import replace

import numpy as np
import pytest

from poot.backends.cuda import cuda_bindings
from poot.backends.cuda.cuda_bindings import BindingsDriver, BindingsProvider
from poot.backends.cuda.device import CudaDevice
from poot.backends.cuda.provider import Call, Facts
from poot.codegen.attributes import Attributes
from poot.errors import (
    BackendError,
    BackendUnavailable,
    DeviceLost,
    LaunchError,
    OutOfDeviceMemory,
)
from poot.limits import profile
from tests.support.counting import count_up
from tests.support.fake_bindings import FakeBindings, Result, stand_in


@pytest.fixture
def cu(monkeypatch: pytest.MonkeyPatch) -> FakeBindings:
    return stand_in(monkeypatch)


def opened(cu: FakeBindings, stream: object | None = None) -> BindingsDriver:
    driver = BindingsProvider().open(0, stream)
    cu.calls.clear()
    return driver


def call(driver: BindingsDriver, name: str = "gemv") -> Call:
    function = driver.load(b".version\0", name, 0)
    return Call(name, function, (3, 2, 1), 64, 0, bytes(range(16)), (0, 8, 12))


def test_a_device_is_its_facts(cu):
    (row,) = BindingsProvider().facts()
    assert row.description == "a card, CUDA 13.0, cuda-bindings"
    assert row.limits.arch == "sm_90a"


def test_a_driver_that_is_not_there_is_a_reason(cu, monkeypatch):
    cu.fails["cuInit"] = Result.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(BackendUnavailable, match="doesn't start: INVALID_VALUE, the driver's"):
        BindingsProvider().facts()
    monkeypatch.setattr(cuda_bindings, "NO_BINDINGS", "pip install 'poot[cuda]'")
    with pytest.raises(BackendUnavailable, match="pip install"):
        BindingsProvider().facts()


def test_the_primary_context_is_retained_and_released(cu):
    driver = BindingsProvider().open(0, None)
    assert "cuDevicePrimaryCtxRetain" in cu.names()
    assert "cuStreamCreate" in cu.names()
    driver.close()
    driver.close()
    assert cu.names().count("cuDevicePrimaryCtxRelease") == 1
    assert cu.names().count("cuStreamDestroy") == 1


def test_a_callers_stream_brings_its_context_and_is_left_alone(cu):
    driver = BindingsProvider().open(0, 0x5555)
    assert "cuDevicePrimaryCtxRetain" not in cu.names()
    assert ("cuStreamGetCtx", (0x5555,)) in cu.calls
    assert driver.stream == 0x5555
    driver.close()
    assert not {"cuStreamDestroy", "cuDevicePrimaryCtxRelease"} & set(cu.names())


def test_the_default_stream_runs_in_the_current_context(cu):
    cu.gives["cuCtxGetCurrent"] = (42,)
    driver = opened(cu, 1)
    driver.synchronize()
    assert cu.calls[0] == ("cuCtxPushCurrent", (42,))


def test_every_call_stands_in_the_context(cu):
    driver = opened(cu)
    driver.copy(1, 2, 3)
    driver.zero(1, 8)
    driver.copy_in(1, np.zeros(4, np.uint8))
    driver.copy_out(np.zeros(4, np.uint8), 1)
    names = cu.names()
    assert names[0::3] == ["cuCtxPushCurrent"] * 4
    assert names[2::3] == ["cuCtxPopCurrent"] * 4
    assert names[1::3] == [
        "cuMemcpyDtoDAsync", "cuMemsetD8Async", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync",
    ]  # fmt: skip


def test_memory_that_is_not_there_is_typed(cu):
    driver = opened(cu)
    cu.fails["cuMemAlloc"] = Result.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(OutOfDeviceMemory, match="64 bytes"):
        driver.allocate(64)
    assert driver.memory() == (100, 200)


def test_a_module_that_is_refused_comes_with_the_assemblers_words(cu):
    driver = opened(cu)
    cu.fails["cuModuleLoadDataEx"] = Result.CUDA_ERROR_INVALID_PTX
    with pytest.raises(LaunchError, match=r"kernel gemv: .* no such module: INVALID_PTX"):
        driver.load(b"x\0", "gemv", 0)


def test_more_workgroup_memory_is_asked_of_the_function(cu):
    driver = opened(cu)
    driver.load(b"x\0", "gemv", 100_000)
    (asked,) = [args for name, args in cu.calls if name == "cuFuncSetAttribute"]
    assert asked[1:] == ("most", 100_000)


def test_arguments_are_where_the_launch_is_told(cu):
    driver = opened(cu)
    bound = driver.bind([call(driver)])
    table = (ctypes.c_void_p * 3).from_address(bound.pointers[0])
    values = [ctypes.c_uint8.from_address(at).value for at in table]
    assert values == [0, 8, 12]
    driver.launch(bound, is_checked=False)
    (launch,) = [args for name, args in cu.calls if name == "cuLaunchKernel"]
    assert launch[1:8] == (3, 2, 1, 64, 1, 1, 0)
    assert launch[9:] == (bound.pointers[0], 0)


def test_a_checked_launch_waits_for_each_kernel(cu):
    driver = opened(cu)
    bound = driver.bind([call(driver), call(driver, "norm")])
    cu.calls.clear()
    driver.launch(bound, is_checked=True)
    assert [n for n in cu.names() if "Ctx" not in n] == [
        "cuLaunchKernel",
        "cuStreamSynchronize",
    ] * 2
    cu.fails["cuStreamSynchronize"] = Result.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DeviceLost, match="kernel gemv: an access outside of every allocation"):
        driver.launch(bound, is_checked=True)


def test_a_graph_is_a_chain_of_kernel_nodes(cu):
    driver = opened(cu)
    bound = driver.bind([call(driver), call(driver, "norm"), call(driver)])
    cu.calls.clear()
    graph = driver.record(bound)
    nodes = [args for name, args in cu.calls if name == "cuGraphAddKernelNode"]
    assert [args[2] for args in nodes] == [0, 1, 1]
    assert nodes[1][3].kernelParams == bound.pointers[1]
    assert (nodes[0][3].gridDimX, nodes[0][3].blockDimX) == (3, 64)
    assert cu.names()[-4:] == [
        "cuGraphInstantiate",
        "cuGraphDestroy",
        "cuGraphUpload",
        "cuCtxPopCurrent",
    ]
    driver.replay(graph)
    assert ("cuGraphLaunch", (graph, driver._stream)) in cu.calls
    driver.release(graph)
    assert "cuGraphExecDestroy" in cu.names()


def test_times_are_between_events_in_microseconds(cu):
    driver = opened(cu)
    assert driver.timed(driver.bind([call(driver), call(driver)])) == [250.0, 250.0]
    assert cu.names().count("cuEventDestroy") == 3


def test_a_lost_context_frees_nothing_and_is_reset_at_the_close(cu):
    driver = opened(cu)
    pointer = driver.allocate(64)
    cu.fails["cuStreamSynchronize"] = Result.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DeviceLost):
        driver.synchronize()
    cu.calls.clear()
    driver.free(pointer)
    driver.close()
    assert cu.names() == ["cuDevicePrimaryCtxReset"]


def test_a_context_that_does_not_become_current_is_lost(cu):
    driver = opened(cu)
    cu.fails["cuCtxPushCurrent"] = Result.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DeviceLost, match="making the context current"):
        driver.synchronize()
    assert not driver.is_alive
    assert "making the context current" in driver.lost


@pytest.mark.parametrize("function", ["cuMemFree", "cuMemFreeHost", "cuStreamSynchronize"])
def test_a_loss_that_comes_out_at_the_close_is_remembered_and_all_is_closed(cu, function):
    driver = opened(cu)
    driver.allocate(64)
    host = driver.pinned(64)
    cu.fails[function] = Result.CUDA_ERROR_ILLEGAL_ADDRESS
    driver.close()
    assert "outside of every allocation" in driver.lost
    assert cu.names()[-1] == "cuDevicePrimaryCtxReset"
    assert host.address


GIVEN_BACK = {
    "cuMemAlloc": "cuMemFree",
    "cuMemAllocHost": "cuMemFreeHost",
    "cuModuleLoadDataEx": "cuModuleUnload",
    "cuGraphCreate": "cuGraphDestroy",
    "cuGraphInstantiate": "cuGraphExecDestroy",
    "cuEventCreate": "cuEventDestroy",
}


def left(cu: FakeBindings) -> dict[str, int]:
    """What was made and not given back."""
    names = cu.names()
    rows = {made: names.count(made) - names.count(back) for made, back in GIVEN_BACK.items()}
    return {made: count for made, count in rows.items() if count}


@pytest.mark.parametrize("stream", [None, 0x5555])
def test_a_close_gives_back_all_that_was_made(cu, stream):
    """A context of the caller's, or one that others hold, lives on after it."""
    driver = opened(cu, stream)
    bound = driver.bind([call(driver), call(driver, "norm")])
    kept = driver.allocate(64), driver.pinned(64), driver.record(bound)
    driver.free(driver.allocate(64))
    driver.timed(bound)
    driver.follow(9)
    assert left(cu) == {
        "cuMemAlloc": 1, "cuMemAllocHost": 1, "cuModuleLoadDataEx": 2, "cuGraphInstantiate": 1,
    }  # fmt: skip
    driver.close()
    assert left(cu) == {}
    after = len(cu.calls)
    driver.free(kept[0])
    driver.release(kept[2])
    del kept, bound
    assert len(cu.calls) == after  # nothing is given back twice


@pytest.mark.parametrize(
    "function",
    [
        "cuModuleGetFunction", "cuFuncSetAttribute", "cuGraphAddKernelNode", "cuGraphInstantiate",
        "cuGraphUpload", "cuEventRecord", "cuStreamWaitEvent", "cuEventElapsedTime",
    ],
)  # fmt: skip
def test_what_fails_half_way_leaves_nothing(cu, function):
    driver = opened(cu)
    bound = driver.bind([call(driver), call(driver)])
    cu.calls.clear()
    cu.fails[function] = Result.CUDA_ERROR_INVALID_VALUE
    ways = {
        "cuModule": lambda: driver.load(b".version\0", "gemv", 1 << 16),
        "cuFunc": lambda: driver.load(b".version\0", "gemv", 1 << 16),
        "cuGraph": lambda: driver.record(bound),
        "cuStream": lambda: driver.follow(9),
        "cuEvent": lambda: driver.timed(bound),
    }
    (way,) = (do for name, do in ways.items() if function.startswith(name))
    with pytest.raises(BackendError, match="INVALID_VALUE"):
        way()
    assert {**left(cu), "cuGraphInstantiate": 0} == {"cuGraphInstantiate": 0}
    if function == "cuGraphUpload":
        assert "cuGraphExecDestroy" in cu.names()


def test_a_stream_that_is_not_made_leaves_no_context_retained(cu):
    cu.fails["cuStreamCreate"] = Result.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(OutOfDeviceMemory):
        BindingsProvider().open(0, None)
    assert cu.names()[-1] == "cuDevicePrimaryCtxRelease"


def test_a_device_that_is_dropped_gives_back_all_that_it_made(cu):
    device = CudaDevice(BindingsProvider().open(0, None), Facts("a card", profile("h200")))
    loaded = device.load([device.emit(count_up())])
    device.allocate(64, "x")
    del device, loaded
    gc.collect()
    assert left(cu) == {}
    assert cu.names().count("cuStreamDestroy") == 1
    assert cu.names().count("cuDevicePrimaryCtxRelease") == 1


def test_a_device_whose_staging_is_refused_leaves_nothing(cu):
    cu.fails["cuMemAllocHost"] = Result.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(OutOfDeviceMemory, match="bytes of host memory"):
        CudaDevice(BindingsProvider().open(0, None), Facts("a card", profile("h200")))
    assert cu.names().count("cuDevicePrimaryCtxRelease") == 1


def test_a_fork_gives_nothing_back(cu, monkeypatch):
    driver = opened(cu)
    pointer = driver.allocate(64)
    monkeypatch.setattr(cuda_bindings.os, "getpid", lambda: -1)
    cu.calls.clear()
    driver.free(pointer)
    driver.close()
    assert cu.calls == []


def test_another_stream_waits_by_an_event(cu):
    driver = opened(cu)
    driver.follow(9)
    names = [n for n in cu.names() if "Ctx" not in n]
    assert names == ["cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuEventDestroy"]


def test_this_stream_waits_for_another_by_an_event(cu):
    driver = opened(cu)
    driver.wait_for(9)
    rows = {name: args for name, args in cu.calls if "Ctx" not in name}
    assert list(rows) == ["cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuEventDestroy"]
    assert rows["cuEventRecord"][1] == 9
    assert rows["cuStreamWaitEvent"][0] == driver._stream


def test_a_list_is_launched_on_another_stream_whatever_its_attributes(cu):
    driver = opened(cu)
    plain = call(driver)
    early = replace(plain, attributes=Attributes(overlap=True))
    bound = driver.bind([plain, early])
    for stream in (9, 11):
        cu.calls.clear()
        driver.launch_on(bound, stream)
        rows = [(name, args) for name, args in cu.calls if "Launch" in name]
        assert [name for name, _ in rows] == ["cuLaunchKernel", "cuLaunchKernelEx"]
        assert rows[0][1][8] == stream
        assert rows[1][1][0].hStream == stream  # pyright: ignore[reportAttributeAccessIssue] - the fake's
    cu.calls.clear()
    driver.launch(bound, is_checked=False)
    (config,) = (args[0] for name, args in cu.calls if name == "cuLaunchKernelEx")
    assert config.hStream == driver._stream  # pyright: ignore[reportAttributeAccessIssue] - the fake's
