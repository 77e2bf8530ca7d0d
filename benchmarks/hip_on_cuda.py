"""poot's HIP texts and HIP launcher on an NVIDIA GPU: the texts by nvcc, the calls through a
stand-in for ROCm's runtime that goes on to the CUDA driver. Waves are of 32; nothing of wave 64 or
of AMD's matrix units is shown.

    PYTHONPATH=src:. python benchmarks/hip_on_cuda.py --out results.json

Runs the fixed list of steps, the attention forms, the primitives, and a session's capture, each
against the oracle; exits with 1 if anything differs. `--fibers` rehearses it by fibers. `--compile`
only compiles the fixed list: that needs nvcc and no GPU.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.record import save
from poot.backends.hip.device import HipDevice
from poot.codegen.emitters import emit
from poot.codegen.gen.lower import lower
from poot.errors import PootError
from poot.ir.text import parse
from poot.limits import profile
from tests.suites.test_attention_forms import check as check_form
from tests.suites.test_primitives import FAMILIES, family, wrong
from tests.suites.test_requests import given
from tests.support import everywhere
from tests.support.attention_forms import ALONE, DECODES, MIXED, form_text
from tests.support.hip.launcher_checks import (
    check_a_list_is_launched_then_captured_and_replayed,
    check_a_session_replays_its_capture,
    check_each_launch_has_its_time,
    check_immediates_arrive_with_their_types,
    fresh,
)
from tests.support.hip.nvcc import SHARED_NBYTES, Cubins
from tests.support.hip.stand_in import StandIn, by_fibers, load
from tests.support.launch import assert_close, wanted
from tests.support.on_device import run_on
from tests.support.requests import CASES

TARGET = "hip"
CHECKS = (
    check_a_list_is_launched_then_captured_and_replayed,
    check_each_launch_has_its_time,
    check_immediates_arrive_with_their_types,
    check_a_session_replays_its_capture,
)


def compile_list(cubins: Cubins) -> None:
    """Compiles every kernel of the fixed list. Raises what nvcc said."""
    limits = replace(profile("rdna3"), workgroup_nbytes=SHARED_NBYTES)
    calls = [c for case in CASES.values() for c in lower(case.request(limits), limits).calls]
    start = time.perf_counter()
    cubins.ahead(emit(c.kernel, limits).text for c in calls)
    print(f"nvcc made {cubins.count} cubins in {time.perf_counter() - start:.0f} s")


def requests(device: HipDevice, cubins: Cubins) -> list[str]:
    """The fixed list of steps; the names of those that differ."""
    calls = [c for case in CASES.values() for c in lower(case.request(device.limits),
                                                         device.limits).calls]  # fmt: skip
    cubins.ahead(emit(c.kernel, device.limits).text for c in calls)
    bad: list[str] = []
    for name, case in CASES.items():
        request = case.request(device.limits)
        ins = given(case, request)
        try:
            for got, want in zip(run_on(device, request, ins), wanted(request, ins), strict=True):
                assert_close(got, want, case.within)
        except (AssertionError, PootError) as e:
            bad.append(f"{name}: {str(e)[:400]}")
    return bad


def attention(cubins: Cubins) -> list[str]:
    """Every form of the attention suite; those that differ."""
    forms = (*ALONE, *MIXED, *DECODES)
    for form in forms:
        program = everywhere.compile_on(TARGET, parse(form_text(form)[0]))
        cubins.ahead(code.text for code in program.codes)
    bad: list[str] = []
    for form in forms:
        try:
            check_form(TARGET, form)
        except (AssertionError, PootError) as e:
            bad.append(f"{form}: {str(e)[:400]}")
    return bad


def primitives(cubins: Cubins) -> list[str]:
    """Every family of the primitives suite; the cases that differ."""
    bad: list[str] = []
    for name in FAMILIES:
        graph, feed, made, wants = family(name)
        try:
            program = everywhere.compile_on(TARGET, graph)
            cubins.ahead(code.text for code in program.codes)
            bad += wrong(made, everywhere.run_program(program, feed), wants)
        except PootError as e:
            bad.append(f"{name}: {e}")
    return bad


def launcher(stand_in: StandIn) -> list[str]:
    """Launches, capture and replay; the checks that fail."""
    bad: list[str] = []
    for check in CHECKS:
        try:
            check(stand_in)
        except (AssertionError, PootError):
            bad.append(f"{check.__name__}: {traceback.format_exc()[-800:]}")
    return bad


def replay_us(device: HipDevice, runs: int = 200) -> dict[str, float]:
    """Median microseconds of a list of 16 small launches, one by one and as a captured graph."""
    case = CASES["softmax-f32"]
    request = case.request(device.limits)
    times: dict[str, float] = {}
    original = device.prepare

    def prepare(loaded: object, launches: object, buffers: object) -> object:
        ready = original(loaded, list(launches) * 16, buffers)
        probe = next(iter(buffers.values()))
        for name in ("launched", "replayed"):
            samples: list[float] = []
            for _ in range(runs):
                start = time.perf_counter()
                ready.run()
                device.copy_out(probe, 0, 4)
                samples.append((time.perf_counter() - start) * 1e6)
            times[name] = float(np.median(samples))
            ready.record()
        return ready

    device.prepare = prepare
    try:
        run_on(device, request, given(case, request))
    finally:
        device.prepare = original
    return times


def gpu_name() -> str:
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "no NVIDIA GPU"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("hip_on_cuda.json"))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--fibers", action="store_true", help="by fibers, without a GPU")
    parser.add_argument("--compile", action="store_true", help="compile the fixed list alone")
    chosen = parser.parse_args(argv)
    cubins = Cubins(0 if chosen.fibers else chosen.workers)
    if chosen.compile:
        compile_list(cubins)
        return 0
    if chosen.fibers:
        stand_in = load(32, by_fibers, shared_nbytes=SHARED_NBYTES)
    else:
        stand_in = load(32, cubins.compile, is_cuda=True, shared_nbytes=SHARED_NBYTES)
    device = fresh()
    everywhere.OPEN[TARGET] = lambda: device
    parts: dict[str, Callable[[], list[str]]] = {
        "launcher": lambda: launcher(stand_in),
        "requests": lambda: requests(device, cubins),
        "attention": lambda: attention(cubins),
        "primitives": lambda: primitives(cubins),
    }
    said: dict[str, object] = {
        "gpu": "fibers" if chosen.fibers else gpu_name(),
        "date": time.strftime("%Y-%m-%d"),
        "command": "python benchmarks/hip_on_cuda.py",
    }
    failures = 0
    for name, part in parts.items():
        start = time.perf_counter()
        bad = part()
        failures += len(bad)
        said[name] = {"failures": bad, "seconds": round(time.perf_counter() - start, 1)}
        save(chosen.out, said)  # what there is, if time runs out
        print(f"{name}: {'ok' if not bad else f'{len(bad)} differ'}", flush=True)
        for row in bad[:10]:
            print(f"  {row}", flush=True)
    said["list_of_16_us"] = replay_us(device)
    said["kernels"] = cubins.count
    print(f"kernels: {cubins.count}; us of 16 launches: {said['list_of_16_us']}")
    save(chosen.out, said)
    return 1 if failures else 0


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as cache
    ):  # code objects of other makers may lie in the user's
        os.environ["POOT_CACHE_DIR"] = cache
        sys.exit(main(sys.argv[1:]))
