"""What every device refuses before its driver is called: the rules alone, then each backend."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np
import pytest

from poot.backends import owned, vulkan, wgpu
from poot.backends.base import BufferRef, Device, Launch
from poot.backends.cpu.device import CpuDevice
from poot.backends.owned import (
    launch_names,
    need_adoptable,
    need_code,
    need_live,
    need_open,
    need_own,
    need_sizes,
    need_words,
    refuse_too_much,
)
from poot.codegen.kir.build import KernelBuilder
from poot.codegen.kir.nodes import Kernel
from poot.errors import BackendError, BackendUnavailable, BindingLimit, LaunchError
from poot.errors import OutOfDeviceMemory as Full
from poot.limits import profile
from tests.support.fake_cuda import fake_device
from tests.support.ptx_device import ptx_device

LIMITS = profile("webgpu-baseline")


@dataclass
class Held:
    nbytes: int
    label: str = "states"
    is_freed: bool = False


def test_a_closed_device_says_so():
    need_open(True, LIMITS)
    with pytest.raises(BackendError, match="webgpu-baseline was closed; open the device again"):
        need_open(False, LIMITS)


def test_a_device_is_of_the_process_that_opened_it():
    need_open(True, LIMITS, os.getpid())
    with pytest.raises(BackendError, match=f"by process 1, and this is process {os.getpid()}"):
        need_open(True, LIMITS, 1)


@pytest.mark.parametrize("given", [None, 3, object(), Held(4, is_freed=True)])
def test_only_a_live_buffer_of_its_own_is_taken(given: object):
    assert need_own(held := Held(4), Held, LIMITS) is held
    with pytest.raises(BackendError, match="needs a live buffer of webgpu-baseline"):
        need_own(given, Held, LIMITS)


@pytest.mark.parametrize("offset, nbytes", [(2, 4), (0, 3), (-4, 4), (16, 4), (0, 20), (4, -4)])
def test_a_copy_is_of_whole_words_inside(offset: int, nbytes: int):
    assert need_words(Held(10), Held, LIMITS, 8, 8).nbytes == 10  # to the end of its quantum
    with pytest.raises(BackendError, match="whole words inside states of 10 bytes"):
        need_words(Held(10), Held, LIMITS, offset, nbytes)


def test_launches_over_a_freed_buffer_are_refused_by_their_names():
    names = launch_names(["a", "b", "c", "d", "e"])
    need_live([Held(4)], names)
    with pytest.raises(LaunchError, match="buffer arena of launches of a, b, c and 2 more has"):
        need_live([Held(4), Held(4, "arena", True)], names)


def test_more_than_the_memory_and_more_than_a_buffer_are_told_apart():
    small = replace(LIMITS, memory_nbytes=1 << 20, buffer_nbytes=1 << 16)
    refuse_too_much(1 << 16, "kv", small)
    with pytest.raises(BindingLimit, match=r"kv asks 65537 bytes in one buffer: .* allows 65536"):
        refuse_too_much((1 << 16) + 1, "kv", small)
    with pytest.raises(Full, match=r"kv asks 2097152 bytes: .* has 1048576, 7 free"):
        refuse_too_much(2 << 20, "kv", small, lambda: "7 free")


def filler(subgroup: int | None = None) -> Kernel:
    k = KernelBuilder("fill", threads=4)
    k.param("y", "f32", 4, "w")
    k.store("y", k.lane(), 1.0)
    return replace(k.kernel(), subgroup=subgroup)


BACKENDS = {
    "cpu": CpuDevice,
    "vulkan": lambda: vulkan.open_device(0),
    "wgpu": lambda: wgpu.open_device(0),
    "cuda": fake_device,
    "ptx": ptx_device,
}


@pytest.fixture(params=BACKENDS)
def device(request: pytest.FixtureRequest) -> Device:
    try:
        return BACKENDS[request.param]()
    except BackendUnavailable as e:
        pytest.skip(e.message)


def test_code_is_of_the_devices_target_and_width(device: Device):
    code = device.emit(filler())
    need_code(code, code.target, device.limits)
    with pytest.raises(LaunchError, match=f"kernel fill is for other: .* takes {code.target}"):
        device.load([replace(code, target="other")])
    wide = replace(code, kernel=filler(subgroup=7))
    if isinstance(device, CpuDevice):  # its subgroups are a part of a vector: the code's own matter
        device.load([wide])
        return
    with pytest.raises(LaunchError, match="kernel fill is written for subgroups of 7"):
        device.load([wide])


def test_a_fork_is_told_so_before_it_waits_for_ever(
    device: Device, monkeypatch: pytest.MonkeyPatch
):
    held = device.allocate(64, "held")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(owned.os, "getpid", lambda: 1)
        if isinstance(device, CpuDevice):  # memory and threads of the process: a fork makes its own
            assert device.copy_out(held, 0, 64).size == 64
            return
        with pytest.raises(BackendError, match="a fork: start processes by the spawn method"):
            device.copy_out(held, 0, 64)


def test_each_device_refuses_anothers_buffer_and_a_freed_one(device: Device):
    buffer = device.allocate(16, "states")
    device.free(buffer)
    device.free(buffer)
    word = np.zeros(4, np.uint8)
    for bad in (buffer, Held(16)):
        for do in (
            lambda bad=bad: device.copy_in(bad, 0, word),
            lambda bad=bad: device.copy_out(bad, 0, 4),
            lambda bad=bad: device.prepare(device.load([]), [], {"arena": bad}),
        ):
            with pytest.raises(BackendError, match="needs a live buffer of "):
                do()
    device.close()


def test_each_closed_device_refuses_every_call(device: Device):
    code = device.emit(filler())
    loaded = device.load([code])
    buffer = device.allocate(16, "states")
    ref = BufferRef("states", 0, 16)
    ready = device.prepare(loaded, [Launch(0, (1, 1, 1), (ref,))], {"states": buffer})
    device.close()
    device.close()
    calls = (
        device.need_open,
        lambda: device.allocate(16, "states"),
        lambda: device.copy_in(buffer, 0, np.zeros(4, np.uint8)),
        lambda: device.copy_out(buffer, 0, 4),
        lambda: device.copy(buffer, 0, buffer, 0, 4),
        lambda: device.load([code]),
        lambda: device.prepare(loaded, [], {}),
        ready.run,
        ready.timed,
    )
    for call in calls:
        with pytest.raises(BackendError, match="was closed; open the device again"):
            call()
    device.free(buffer)


def test_what_is_adopted_is_whole_words_at_an_address():
    assert need_adoptable(64, 8, "x") == 64
    for address, nbytes in ((0, 8), (62, 8), (64, 0), (64, 6), (True, 8), ("64", 8)):
        with pytest.raises(BackendError, match=r"x needs an address and a size in whole words"):
            need_adoptable(address, nbytes, "x")
    need_sizes(8, "x")
    for nbytes in (0, 6, -4):
        with pytest.raises(BackendError, match="x needs whole words to be adopted"):
            need_sizes(nbytes, "x")
