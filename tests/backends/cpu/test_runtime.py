"""The launch-list runner, driven by its records alone."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from poot.backends.cpu.pool import Pool, aligned, pool
from poot.backends.cpu.runtime import RECORD, RECORD_NBYTES, runtime_text
from tests.support.sources import ROOT

Kernel = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
    ctypes.c_void_p,
)  # fmt: skip


def run(
    threads: int,
    launches: list[tuple[int, int, bool]],
    times: bool = False,
    kernel: Callable[..., None] | None = None,
) -> list[object]:
    """Runs (groups, take, waits) launches whose kernel is Python, and gives (launch, first, last)
    of each call in order."""
    seen: list[object] = []

    def record(buffers, imms, grid, first, last, shared):
        launch = ctypes.c_int64.from_address(buffers).value
        seen.append((launch, first, last))

    call = Kernel(kernel or record)
    address = ctypes.cast(call, ctypes.c_void_p).value
    records = aligned(RECORD_NBYTES * len(launches))
    held = []
    for n, (groups, take, waits) in enumerate(launches):
        row = records[n * RECORD_NBYTES : (n + 1) * RECORD_NBYTES]
        words, halves = row.view(np.int64), row.view(np.int32)
        own = np.array([n], np.int64)
        held.append(own)
        words[RECORD["fn"] // 8] = address
        words[RECORD["buffers"] // 8] = own.ctypes.data
        halves[RECORD["waits"] // 4] = waits
        words[RECORD["groups"] // 8], words[RECORD["take"] // 8] = groups, take
    clock = np.zeros(len(launches) + 1)
    made: Pool = pool(threads)
    made.call(records.ctypes.data, len(launches), clock.ctypes.data if times else 0)
    return [*seen, list(clock)] if times else seen


@pytest.mark.parametrize("threads", [1, 3])
def test_every_group_of_every_launch_runs_once(threads):
    for _ in range(20):
        seen = run(threads, [(10, 3, False), (1, 1, True), (0, 1, True), (7, 100, True)])
        for launch, groups in enumerate((10, 1, 0, 7)):
            parts = sorted((a, b) for n, a, b in seen if n == launch)
            covered = [g for a, b in parts for g in range(a, b)]
            assert covered == list(range(groups))


@pytest.mark.parametrize("threads", [2, 4])
def test_a_launch_that_waits_starts_after_all_before_it(threads):
    for _ in range(20):
        seen = run(threads, [(16, 1, False), (16, 1, True), (16, 1, True)])
        order = [n for n, _, _ in seen]
        assert order == sorted(order)


def test_times_never_run_backward():
    *_, clock = run(2, [(4, 1, False), (4, 1, True)], times=True)
    assert clock[0] > 0
    assert sorted(clock) == clock


def test_the_text_has_the_two_entry_points():
    assert "define void @poot_call(" in runtime_text()
    assert "define ptr @poot_worker(" in runtime_text()


PROFILE = """
import os
import numpy as np
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import poot
from poot import ops

def step(small, big):
    for _ in range(3):
        small = ops.exp(small)
        big = ops.exp(big)
    return small, big

specs = (poot.slot((1, 16), "f32"), poot.slot((256, 16384), "f32"))
session = poot.compile(poot.trace(step, specs), "cpu", passes=(), cache=False).bind()
x, y = np.zeros((1, 16), np.float32), np.zeros((256, 16384), np.float32)
runs = [session.profile(small=x, big=y).launches for _ in range(9)]
print(" ".join(str(min(us)) for us in zip(*([t for *_, t in r] for r in runs))))
"""


def test_a_time_is_its_own_launchs_even_where_the_caller_is_late():
    """One processor for two threads: whoever arrives last at a meeting runs the next launch before
    the other one is on the processor again. Launches take turns of 16 and 4 million elements."""
    environ = os.environ | {"PYTHONPATH": str(ROOT / "src"), "POOT_THREADS": "2"}
    command = [sys.executable, "-W", "ignore", "-c", PROFILE]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60, env=environ)
    assert done.returncode == 0, done.stderr.decode()
    times = [float(t) for t in done.stdout.split()]
    assert len(times) == 6
    assert min(times[1::2]) > 10 * max(times[0::2]), times


def test_callers_at_once_keep_no_more_threads_busy_than_the_pool_has():
    """A kernel that sleeps lets any other run: with a pool a caller, eight would be at it."""
    busy, most, turn = 0, 0, threading.Lock()

    def sleep(*_: object) -> None:
        nonlocal busy, most
        with turn:
            busy += 1
            most = max(most, busy)
        time.sleep(0.005)
        with turn:
            busy -= 1

    before = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
    callers = [threading.Thread(target=run, args=(2, [(4, 1, False)] * 3, False, sleep))
               for _ in range(4)]  # fmt: skip
    for c in callers:
        c.start()
    for c in callers:
        c.join(60)
    assert most == 2
    if before:
        assert len(os.listdir("/proc/self/task")) <= before + 1


ALONE = """
import ctypes, os, sys
import numpy as np
from poot.backends.cpu.pool import pool
from poot.backends.cpu.runtime import POOL
from tests.backends.cpu.test_runtime import run

made = pool(3)
made.stop(os.getpid())
words = made.block.view(np.int64)
words[POOL["threads"] // 8] = 3
seen = run(3, [(5, 2, False), (4, 1, True)])
assert [(n, a) for n, a, _ in seen] == [(0, 0), (0, 2), (0, 4), *((1, n) for n in range(4))], seen
*_, clock = run(3, [(5, 2, False), (0, 1, True), (4, 1, True)], times=True)
assert clock[0] > 0 and clock == sorted(clock), clock
"""


def test_nobody_waits_for_threads_that_never_come():
    """The workers have ended, and the pool counts three: all is done by the caller."""
    environ = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-W", "ignore", "-c", ALONE]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60, env=environ)
    assert done.returncode == 0, done.stderr.decode()


def test_a_worker_that_comes_late_finds_the_list_under_way_or_closed():
    """Lists of one group and of many in turn: a worker that was called for a list that is done
    takes none of its groups again, and none of the next one's twice."""
    for round in range(200):
        groups = (1, 40)[round % 2]
        seen = run(4, [(groups, 1, False), (3, 1, True)])
        assert sorted(seen) == [(0, g, g + 1) for g in range(groups)] + [
            (1, g, g + 1) for g in range(3)
        ]
