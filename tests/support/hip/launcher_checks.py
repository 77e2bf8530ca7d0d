"""What poot's HIP launcher is held to, over the stand-ins for ROCm. Run as a program, in a process
of its own: `python -m tests.support.hip.launcher_checks WAVE` prints what each check said.

A check is a function `check_...(s)`; `s` has the stand-ins, and each check opens its own device.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import poot
from poot.backends import hip, registry
from poot.backends.base import BufferRef, Code, Launch
from poot.backends.hip.driver import HipApi
from poot.codegen.emitters import emit
from poot.codegen.kir.build import KernelBuilder
from poot.errors import (
    BackendError,
    BackendUnavailable,
    DeviceLost,
    LaunchError,
    OutOfDeviceMemory,
    PootError,
)
from poot.ir.text import parse
from poot.limits import profile
from poot.oracle import run
from tests.backends import test_base
from tests.suites.test_attention_forms import check as check_form
from tests.suites.test_primitives import FAMILIES, family, wrong
from tests.support import everywhere, gpu
from tests.support.attention_forms import ALONE, MIXED
from tests.support.hip import ending_checks
from tests.support.hip.launched import BYTES, fresh, prepared
from tests.support.hip.stand_in import StandIn, load

TARGET = "hip"
# Numbers of hipError_t, and the error of poot's that each becomes.
STATUSES: dict[int, type[PootError]] = {
    1: BackendError, 2: OutOfDeviceMemory, 700: DeviceLost, 719: DeviceLost, 98: BackendError,
}  # fmt: skip


def check_a_list_is_launched_then_captured_and_replayed(s: StandIn) -> None:
    device = fresh()
    arena, ready = prepared(device)
    s.log()
    ready.run()
    assert not ready.is_replay
    assert s.log() == ["hipModuleLaunchKernel"] * 2
    assert ready.record()
    assert ready.record()
    assert ready.is_replay
    assert s.log() == [
        "hipStreamBeginCapture", "hipModuleLaunchKernel captured", "hipModuleLaunchKernel captured",
        "hipStreamEndCapture", "hipGraphInstantiateWithFlags", "hipGraphDestroy",
    ]  # fmt: skip
    for _ in range(3):
        ready.run()
    assert s.log() == ["hipGraphLaunch"] * 3
    got = device.copy_out(arena, BYTES, BYTES).view(np.float32)
    assert (got == 24.0).all(), got


def check_each_launch_has_its_time(s: StandIn) -> None:
    device = fresh()
    arena, ready = prepared(device, 3)
    s.log()
    times = ready.timed()
    calls = s.log()
    assert len(times) == 3
    assert all(0 < t < 1e6 for t in times), times
    assert calls.count("hipModuleLaunchKernel") == 3
    assert calls.count("hipEventCreate") == calls.count("hipEventDestroy") == 4
    assert (device.copy_out(arena, BYTES, BYTES).view(np.float32) == 9.0).all()


def check_what_every_device_promises(s: StandIn) -> None:
    device = fresh()
    opened, gpu._opened = gpu._opened, lambda target: device
    try:
        for name, test in sorted(vars(test_base).items()):
            if (
                name.startswith("test_")
                and "has_its_time" not in name
                and "over_the_limit" not in name
            ):
                test(TARGET)
    finally:
        gpu._opened = opened


def check_a_status_is_an_error_of_its_kind(s: StandIn) -> None:
    device = fresh()
    arena, ready = prepared(device)
    assert ready.record()
    # Each reads the names anew: after a loss they are another device's.
    acts: dict[str, Callable[[], object]] = {
        "hipMalloc": lambda: device.allocate(64, "more"),
        "hipMemcpyAsync": lambda: device.copy_out(arena, 0, 4),
        "hipStreamSynchronize": lambda: device.copy_out(arena, 0, 4),
        "hipGraphLaunch": lambda: ready.run(),
        "hipModuleLaunchKernel": lambda: ready.timed(),
        "hipEventRecord": lambda: ready.timed(),
        "hipMemsetAsync": lambda: device.allocate(64, "more"),
        "hipSetDevice": lambda: device.allocate(64, "more"),
    }
    for call, act in acts.items():
        for status, error in STATUSES.items():
            s.fail(call, status)
            with pytest.raises(error) as caught:
                act()
            assert type(caught.value) is error, (call, status, caught.value)
            words = "kernel axpy|launches of axpy|hip[A-Z]|more asks 64 bytes|copy_out"
            assert re.search(words, caught.value.message), caught.value.message
            if error is DeviceLost:
                device = fresh()
                arena, ready = prepared(device)
                assert ready.record()
    assert (device.copy_out(arena, 0, 4).view(np.float32) == 1.0).all()


def check_a_refused_capture_leaves_the_stream_usable(s: StandIn) -> None:
    device = fresh()
    for call in ("hipModuleLaunchKernel", "hipGraphInstantiateWithFlags", "hipStreamBeginCapture"):
        _, ready = prepared(device)
        s.fail(call, 1)
        with pytest.raises(BackendError):
            ready.record()
        assert not ready.is_replay
    arena, ready = prepared(device)
    assert ready.record()
    ready.run()
    assert (device.copy_out(arena, BYTES, BYTES).view(np.float32) == 6.0).all()


def check_a_module_that_the_runtime_refuses_names_its_kernel(s: StandIn) -> None:
    device = fresh()
    for call in ("hipModuleLoadData", "hipModuleGetFunction"):
        s.fail(call, 209)
        s.log()
        with pytest.raises(LaunchError, match=r"kernel axpy: .*hipErrorNoBinaryForGpu"):
            device.load([test_base.axpy(device)])
    assert "hipModuleUnload" in s.log()


def check_a_text_that_the_compiler_refuses_names_its_kernel(s: StandIn) -> None:
    device = fresh()
    good = test_base.axpy(device, "broken")
    bad = replace(good, binary=good.binary.replace(b"threadIdx", b"threadIdy"))
    with pytest.raises(LaunchError, match=r"(?s)kernel broken: .*--offload-arch=gfx.*threadIdy"):
        device.load([bad])
    other = Code(good.name, "ptx", good.binary, good.text, good.key, good.kernel)
    with pytest.raises(LaunchError, match="kernel broken is for ptx"):
        device.load([other])


def check_the_compiler_gets_options_and_architecture(s: StandIn) -> None:
    seen: list[tuple[str, ...]] = []
    spy = load(s.wave, lambda text, name, options: seen.append(options) or _none())
    assert spy.runtime is not None
    with pytest.raises(LaunchError):
        fresh().load([test_base.axpy(fresh())])
    arch = {32: "gfx1100", 64: "gfx942"}[s.wave]
    assert seen[0][0] == f"--offload-arch={arch}:sramecc+:xnack-"
    assert "-fwrapv" in seen[0]
    assert "-ffp-contract=off" in seen[0]
    load(s.wave)


def _none() -> bytes:
    raise AssertionError("a compiler that makes nothing")


def check_code_is_compiled_once_for_a_text(s: StandIn) -> None:
    with tempfile.TemporaryDirectory() as folder:
        first, second = fresh(folder), fresh(folder)
        start = s.compiles()
        code = test_base.axpy(first, "kept")
        first.load([code])
        second.load([code])
        assert s.compiles() == start + 1
        for entry in Path(folder).rglob("*"):
            if entry.is_file():
                entry.write_bytes(entry.read_bytes()[:-1])
        fresh(folder).load([code])
        assert s.compiles() == start + 2, "a spoiled entry is compiled anew"
        fresh(folder).load([test_base.axpy(first, "other")])
        assert s.compiles() == start + 3


def check_an_empty_grid_is_not_launched(s: StandIn) -> None:
    device = fresh()
    arena = device.allocate(2 * BYTES, "arena")
    loaded = device.load([test_base.axpy(device)])
    rows = [test_base.launch(1.0, *test_base.refs(), grid=0)]
    ready = device.prepare(loaded, rows, {"arena": arena})
    s.log()
    ready.run()
    assert ready.record()
    ready.run()
    (took,) = ready.timed()
    assert took < 1e5
    assert not any("Launch" in row for row in s.log())


def check_what_is_dropped_is_given_back(s: StandIn) -> None:
    gc.collect()
    device = fresh()
    device.allocate(4, "drains what others dropped")
    before = s.used()
    arena, ready = prepared(device)
    assert ready.record()
    ready.run()
    assert s.used() > before
    s.log()
    del arena, ready
    gc.collect()
    device.free(device.allocate(4, "one more"))
    calls = s.log()
    for call in ("hipGraphExecDestroy", "hipModuleUnload", "hipFree"):
        assert call in calls, calls
    assert s.used() <= before
    device.close()
    with pytest.raises(BackendError, match="was closed"):
        device.allocate(4, "late")


def check_the_runtime_takes_no_code_of_another_maker(s: StandIn) -> None:
    api = HipApi(0)
    with pytest.raises(BackendError, match="hipModuleLoadData: hipErrorNoBinaryForGpu"):
        api.load(b"\0" * 256)


def check_the_registry_finds_it(s: StandIn) -> None:
    row = next(r for r in registry.devices() if r.name == "hip:0")
    assert row.limits is not None
    assert row.limits.subgroup == s.wave
    assert registry.auto_target() == "hip:0"
    assert registry.open_device("hip").description == row.description
    with pytest.raises(BackendUnavailable, match="no hip:7: HIP finds 1"):
        registry.open_device("hip:7")
    with pytest.raises(BackendUnavailable, match="no limits of spirv"):
        registry.open_device("hip:0/webgpu-baseline")
    narrow = replace(profile({32: "rdna3", 64: "mi300x"}[s.wave]), memory_nbytes=1 << 30,
                     buffer_nbytes=1 << 30, binding_nbytes=1 << 30)  # fmt: skip
    assert hip.open_device(0, limits=narrow).limits == narrow


def check_a_runtime_without_a_device_is_unavailable(s: StandIn) -> None:
    for call, status in (("hipInit", 100), ("hipInit", 101), ("hipGetDeviceCount", 100)):
        s.fail(call, status)
        with pytest.raises(BackendUnavailable, match=r"finds no GPU .*hipError.*install ROCm"):
            hip.found()


def check_immediates_arrive_with_their_types(s: StandIn) -> None:
    device = fresh()
    k = KernelBuilder("imms", 1)
    y = k.param("y", "f32", 3, "w")
    a, b, c = k.imm("a"), k.imm("b", "f32"), k.imm("c", "u32")
    for at, value in enumerate((k.cast(a, "f32"), b, k.cast(c, "f32"))):
        k.store(y, at, value)
    arena = device.allocate(12, "arena")
    row = Launch(0, (1, 1, 1), (BufferRef("arena", 0, 12),), (-7, 2.5, 3000000000))
    loaded = device.load([emit(k.kernel(), device.limits)])
    device.prepare(loaded, [row], {"arena": arena}).run()
    got = device.copy_out(arena, 0, 12).view(np.float32)
    np.testing.assert_array_equal(got, np.array([-7, 2.5, 3e9], np.float32))


def check_a_kernel_that_goes_astray_is_a_lost_device(s: StandIn) -> None:
    device = fresh()
    code = test_base.axpy(device, "astray")
    bad = replace(code, binary=code.binary.replace(b"y[", b"y[(1 << 28) + "))
    arena = device.allocate(2 * BYTES, "arena")
    rows = [test_base.launch(3.0, *test_base.refs())]
    ready = device.prepare(device.load([bad]), rows, {"arena": arena})
    with pytest.raises(DeviceLost, match="kernel astray: hipErrorLaunchFailure"):
        ready.run()
    device = fresh()
    arena = device.allocate(2 * BYTES, "arena")
    ready = device.prepare(device.load([bad]), rows, {"arena": arena})
    assert ready.record()
    with pytest.raises(DeviceLost, match="launches of astray: hipErrorLaunchFailure"):
        ready.run()


def check_attention_and_primitives_are_the_oracles(s: StandIn) -> None:
    everywhere.OPEN[TARGET] = fresh
    for form in (*ALONE[:: 2 if s.wave == 64 else 5], *MIXED[::3]):
        check_form(TARGET, form)
    for name in sorted(FAMILIES)[:: 3 if s.wave == 64 else 5]:
        graph, feed, made, wants = family(name)
        assert wrong(made, everywhere.run_everywhere(graph, feed, TARGET), wants) == []


def check_a_session_replays_its_capture(s: StandIn) -> None:
    text = """state v0: f32[4,8] "kv" -> v3
              slot v1: f32[1,8] "x"
              slot v2: i32[] "at" range=(0, 4)
              v3: f32[4,8] = dynamic_update_slice(v0, v1, v2) axis=0
              v4: f32[8] = reduce(v3) axis=(0,) keepdim=False kind=sum
              out v4"""
    graph = parse(text)
    session = poot.compile(graph, "hip:0", cache=False).bind()
    replay = session.capture()
    assert replay.is_replay
    total, kept = np.zeros((4, 8), np.float32), {"kv": np.zeros((4, 8), np.float32)}
    for step in range(6):
        x = np.full((1, 8), step + 1.0, np.float32)
        at = np.int32(step % 4)
        s.log()
        got = replay(x=x, at=at)
        calls = s.log()
        assert "hipGraphLaunch" in calls
        assert not any(row.startswith("hipModuleLaunch") for row in calls)
        want = run(graph, {"x": x, "at": at, **kept})
        kept = dict(want.states)
        total[step % 4] = step + 1.0
        np.testing.assert_array_equal(np.asarray(got[0]), want.outputs[0])
        np.testing.assert_array_equal(session.state["kv"], total)


CHECKS: dict[str, Callable[[StandIn], None]] = {
    name.removeprefix("check_"): made
    for name, made in sorted({**globals(), **vars(ending_checks)}.items())
    if name.startswith("check_") and name not in ("check_form",)
}


def main(wave: int) -> None:
    """Runs every check; one line of JSON: what each said, empty where it was well."""
    stand_in = load(wave)
    said: dict[str, str] = {}
    for name, check in CHECKS.items():
        try:
            check(stand_in)
            said[name] = ""
        except (
            AssertionError,
            PootError,
            pytest.fail.Exception,
            LookupError,
            TypeError,
            AttributeError,
        ):
            said[name] = traceback.format_exc()
            load(wave)
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("POOT_CACHE_DIR", cache)
        main(int(sys.argv[1]))
