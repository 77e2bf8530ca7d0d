"""The calls that pycuda gets, in order, against a stand-in for the library."""

from __future__ import annotations

import numpy as np
import pytest

from poot.backends.cuda import pycuda_provider
from poot.backends.cuda.provider import Call
from poot.backends.cuda.pycuda_provider import PycudaDriver, PycudaProvider
from poot.errors import (
    BackendError,
    BackendUnavailable,
    CaptureUnavailable,
    DeviceLost,
    LaunchError,
    OutOfDeviceMemory,
)
from tests.support.fake_pycuda import FakePycuda, Stream


class OldNames:
    """The attributes of a toolkit from before the reserved bytes had a name."""

    def __getattr__(self, name: str) -> str:
        if name.startswith("RESERVED"):
            raise AttributeError(name)
        return name


@pytest.fixture
def drv(monkeypatch: pytest.MonkeyPatch) -> FakePycuda:
    for held in (FakePycuda.calls, FakePycuda.launched, FakePycuda.fails):
        held.clear()
    fake = FakePycuda()
    monkeypatch.setattr(pycuda_provider, "drv", fake)
    monkeypatch.setattr(pycuda_provider, "NO_PYCUDA", "")
    return fake


def opened(drv: FakePycuda, stream: object | None = None) -> PycudaDriver:
    driver = PycudaProvider().open(0, stream)
    drv.calls.clear()
    return driver


def call(driver: PycudaDriver, name: str = "gemv") -> Call:
    return Call(name, driver.load(b".version\0", name, 0), (3, 2, 1), 64, 9, b"\1" * 16, (0, 8))


def test_a_device_is_its_facts(drv):
    (row,) = PycudaProvider().facts()
    assert (row.description, row.limits.arch) == ("a card, CUDA 12.4, pycuda", "sm_80")


def test_a_driver_that_is_not_there_is_a_reason(drv, monkeypatch):
    drv.fails["init"] = "no CUDA-capable device is detected"
    with pytest.raises(BackendUnavailable, match=r"no NVIDIA driver: .*no CUDA-capable device"):
        PycudaProvider().facts()
    monkeypatch.setattr(pycuda_provider, "NO_PYCUDA", "pip install 'poot[pycuda]'")
    with pytest.raises(BackendUnavailable, match="pip install"):
        PycudaProvider().facts()


def test_every_call_stands_in_the_context(drv):
    driver = opened(drv)
    driver.copy(1, 2, 3)
    driver.zero(1, 8)
    driver.copy_in(1, np.zeros(4, np.uint8))
    driver.copy_out(np.zeros(4, np.uint8), 1)
    assert drv.calls[1::3] == ["copy", "memset", "copy in", "copy out"]
    assert drv.calls[0::3] == ["push"] * 4
    assert drv.calls[2::3] == ["pop"] * 4


def test_only_pycudas_own_streams_are_adopted(drv):
    driver = opened(drv, Stream())
    driver.synchronize()
    assert drv.calls == ["synchronize"]
    assert driver.stream == 33
    with pytest.raises(BackendError, match=r"pycuda adopts its own streams alone.*poot\[cuda\]"):
        PycudaProvider().open(0, 0x5555)


def test_results_are_told_apart_by_the_drivers_words(drv):
    driver = opened(drv)
    drv.fails["mem_alloc"] = "out of memory"
    with pytest.raises(OutOfDeviceMemory, match="64 bytes"):
        driver.allocate(64)
    drv.fails["launch"] = "invalid argument"
    with pytest.raises(LaunchError, match=r"kernel gemv: .*invalid argument"):
        driver.launch((call(driver),), is_checked=False)
    drv.fails["synchronize"] = "an illegal memory access was encountered"
    with pytest.raises(DeviceLost, match="waiting for the stream: an access outside"):
        driver.synchronize()


def test_a_module_that_is_refused_comes_with_the_assemblers_words(drv):
    driver = opened(drv)
    drv.fails["module"] = "a PTX JIT compilation failed"
    with pytest.raises(LaunchError, match=r"kernel gemv: .*JIT compilation failed line 3: no such"):
        driver.load(b"x\0", "gemv", 0)


def test_more_workgroup_memory_is_asked_of_the_function(drv):
    driver = opened(drv)
    driver.load(b"x\0", "gemv", 100_000)
    assert "MAX_DYNAMIC_SHARED_SIZE_BYTES 100000" in drv.calls


def test_a_launch_hands_over_its_packed_arguments(drv):
    driver = opened(drv)
    driver.launch(driver.bind([call(driver)]), is_checked=True)
    ((grid, block, raw, shared, stream),) = drv.launched
    assert (grid, block, raw, shared) == ((3, 2, 1), (64, 1, 1), b"\1" * 16, 9)
    assert stream.handle == 33
    assert "synchronize" in drv.calls
    assert driver.timed(driver.bind([call(driver)] * 2)) == [500.0, 500.0]
    assert driver.resources(call(driver).function, 64, 9).registers == 40


def test_resident_groups_are_counted_where_pycuda_names_what_that_takes(drv, monkeypatch):
    driver = opened(drv)
    assert driver.can == {"resident"}
    assert driver.resources(call(driver).function, 256, 80 << 10).resident == 2
    (row,) = PycudaProvider().facts()
    assert row.limits.counts_residents
    assert not row.limits.has_tensor_maps
    monkeypatch.setattr(FakePycuda, "device_attribute", OldNames())
    driver = opened(drv)
    assert driver.can == frozenset()
    assert driver.resources(call(driver).function, 256, 0).resident == 0
    (row,) = PycudaProvider().facts()
    assert not row.limits.counts_residents


def test_nothing_is_captured_and_the_extra_is_named(drv):
    driver = opened(drv)
    assert not driver.has_graphs
    with pytest.raises(CaptureUnavailable, match=r"pip install 'poot\[cuda\]'"):
        driver.record(())


def test_memory_goes_at_the_close_and_a_lost_context_is_let_go(drv):
    driver = opened(drv)
    pointer = driver.allocate(64)
    driver.allocate(64)
    driver.free(pointer)
    driver.close()
    driver.close()
    assert drv.calls.count("free") == 1
    lost = opened(drv)
    lost.allocate(64)
    drv.fails["synchronize"] = "unspecified launch failure"
    with pytest.raises(DeviceLost):
        lost.synchronize()
    drv.calls.clear()
    lost.close()
    assert drv.calls == ["push", "pop", "detach"]


def test_a_module_goes_in_the_context_whoever_drops_it(drv):
    """In a thread without the context pycuda warns in a destructor, which as an error hung."""
    driver = opened(drv)
    kernels = [driver.load(b"x", name, 0) for name in ("one", "two")]
    drv.calls.clear()
    driver.unload(kernels[0])
    assert drv.calls == ["push", "unload", "pop"]
    driver.unload(kernels[0])
    drv.calls.clear()
    driver.close()
    assert drv.calls == ["push", "synchronize", "unload", "pop"]
    driver.unload(kernels[1])
    assert drv.calls == ["push", "synchronize", "unload", "pop"]


def test_another_librarys_stream_is_waited_for_by_the_host(drv):
    driver = opened(drv)
    drv.calls.clear()
    driver.wait_for(9)
    assert drv.calls == ["push", "synchronize all", "pop"]
    with pytest.raises(BackendError, match=r"its own streams alone.*poot\[cuda\]"):
        driver.launch_on(driver.bind([]), 9)


@pytest.mark.parametrize("where", ["synchronize", "mem_alloc"])
def test_a_loss_is_remembered_whoever_finds_it(drv, where):
    driver = opened(drv)
    drv.fails[where] = "an illegal memory access was encountered"
    find = {"synchronize": driver.synchronize, "mem_alloc": lambda: driver.allocate(64)}[where]
    with pytest.raises(DeviceLost):
        find()
    assert "outside of every allocation" in driver.lost
    assert not driver.is_alive


def test_a_loss_that_comes_out_at_the_close_is_remembered_and_all_is_closed(drv):
    driver = opened(drv)
    drv.fails["synchronize"] = "an illegal memory access was encountered"
    driver.close()
    assert "outside of every allocation" in driver.lost
    assert drv.calls[-1] == "detach"
    drv.calls.clear()
    driver.close()
    assert drv.calls == []
