"""What poot's HIP launcher gives back, and what it says of a loss or a refusal: checks that
`launcher_checks` runs with its own."""

from __future__ import annotations

import gc
import itertools

import numpy as np
import pytest

from poot.backends import hip
from poot.errors import (
    BackendError,
    BackendUnavailable,
    DeviceLost,
    LaunchError,
    OutOfDeviceMemory,
)
from tests.backends import test_base
from tests.support.hip.launched import fresh, prepared
from tests.support.hip.stand_in import StandIn

PAIRS = (
    ("hipStreamCreateWithFlags", "hipStreamDestroy"),
    ("hipModuleLoadData", "hipModuleUnload"),
    ("hipGraphInstantiateWithFlags", "hipGraphExecDestroy"),
    ("hipMalloc", "hipFree"),
)


def check_an_opening_gives_all_back(s: StandIn) -> None:
    for is_closed in (True, False):
        gc.collect()
        used = s.used()
        s.log()
        device = fresh()
        arena, ready = prepared(device)
        assert ready.record()
        ready.run()
        device.copy_out(arena, 0, 4)
        if is_closed:
            device.close()
            device.close()
        del arena, ready, device
        gc.collect()
        calls = [row.split()[0] for row in s.log()]
        for make, give_back in PAIRS:
            assert calls.count(make) == calls.count(give_back) == 1, (is_closed, make, calls)
        assert s.used() == used


def check_a_lost_device_is_remembered(s: StandIn) -> None:
    device = fresh()
    arena, ready = prepared(device)
    s.fail("hipStreamSynchronize", 719)
    with pytest.raises(DeviceLost, match="copy_out"):
        device.copy_out(arena, 0, 4)
    for act in (
        device.need_open, ready.run, ready.record, ready.timed,
        lambda: device.allocate(4, "late"), lambda: device.copy_out(arena, 0, 4),
        lambda: device.load([test_base.axpy(device)]),
    ):  # fmt: skip
        with pytest.raises(DeviceLost, match="hip:0 was lost before: copy_out: hipErrorLaunch"):
            act()
    s.log()
    device.free(arena)
    device.close()
    assert s.log() == []
    for call in ("hipModuleLoadData", "hipModuleGetFunction"):
        device = fresh()
        s.fail(call, 719)
        with pytest.raises(DeviceLost, match="kernel axpy: hipModule"):
            device.load([test_base.axpy(device)])
        with pytest.raises(DeviceLost, match="was lost before"):
            device.need_open()
    device = fresh()
    arena = device.allocate(4, "arena")
    s.fail("hipFree", 719)
    with pytest.raises(DeviceLost, match="hipFree"):
        device.close()


def nth(s: StandIn, api: object, name: str, at: int, call: str, status: int) -> None:
    """The call number `at` of that method of the api finds `call` refused, once."""
    real, count = getattr(api, name), itertools.count(1)

    def told(*args: object) -> object:
        if next(count) == at:
            s.fail(call, status)
        return real(*args)

    setattr(api, name, told)


def check_a_refusal_midway_leaves_nothing_and_is_the_one_told(s: StandIn) -> None:
    device = fresh()
    api = device._line.api
    _, ready = prepared(device, 3)
    s.log()
    nth(s, api, "launch", 2, "hipModuleLaunchKernel", 1)
    with pytest.raises(BackendError, match="kernel axpy: hipErrorInvalidValue"):
        ready.record()
    assert "hipGraphDestroy" in s.log()
    s.fail("hipStreamEndCapture", 901)
    with pytest.raises(BackendError, match="hipStreamEndCapture"):
        ready.record()
    assert ready.record()
    s.log()
    nth(s, api, "event", 3, "hipEventCreate", 2)
    with pytest.raises(OutOfDeviceMemory):
        ready.timed()
    assert s.log().count("hipEventDestroy") == 2
    codes = [test_base.axpy(device), test_base.axpy(device, "second")]
    nth(s, api, "function", 2, "hipModuleGetFunction", 500)
    nth(s, api, "unload", 1, "hipModuleUnload", 1)
    with pytest.raises(LaunchError, match="kernel second: hipModuleGetFunction"):
        device.load(codes)
    assert s.log().count("hipModuleUnload") == 2


def check_a_drop_that_is_refused_is_no_error_of_the_next_call(s: StandIn) -> None:
    device = fresh()
    s.fail("hipFree", 1)
    device.free(device.allocate(4, "dropped"))
    assert device.allocate(8, "innocent").nbytes == 8


def check_what_another_opening_made_is_refused(s: StandIn) -> None:
    one, other = fresh(), fresh()
    arena, _ = prepared(one)
    loaded = other.load([test_base.axpy(other)])
    rows = [test_base.launch(3.0, *test_base.refs())]
    for act in (
        lambda: other.copy_in(arena, 0, np.ones(4, np.float32)),
        lambda: other.copy_out(arena, 0, 4),
        lambda: other.copy(arena, 0, other.allocate(4, "own"), 0, 4),
        lambda: other.prepare(loaded, rows, {"arena": arena}),
        lambda: one.prepare(loaded, rows, {"arena": arena}),
    ):
        with pytest.raises(BackendError, match=r"another opening of hip:0|this opening of hip:0"):
            act()


def check_a_device_that_does_not_open_is_unavailable(s: StandIn) -> None:
    for call in (
        "hipGetDeviceProperties", "hipRuntimeGetVersion", "hipStreamCreateWithFlags",
        "hipSetDevice",
    ):  # fmt: skip
        s.fail(call, 100)
        with pytest.raises(BackendUnavailable, match=rf"opens no GPU \({call}.*: hipErrorNoDevice"):
            hip.open_device(0)
    s.fail("hipGetDeviceProperties", 100)
    with pytest.raises(BackendUnavailable, match="opens no GPU"):
        hip.found()
