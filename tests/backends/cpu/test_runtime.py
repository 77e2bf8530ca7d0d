"""The launch-list runner, driven by its records alone."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from poot.backends.cpu.pool import Pool, aligned, pool
from poot.backends.cpu.runtime import RECORD, RECORD_NBYTES, runtime_text

Kernel = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
    ctypes.c_void_p,
)  # fmt: skip


def run(threads: int, launches: list[tuple[int, int, bool]], times: bool = False) -> list[object]:
    """Runs (groups, take, waits) launches whose kernel is Python, and gives (launch, first, last)
    of each call in order."""
    seen: list[object] = []

    def record(buffers, imms, grid, first, last, shared):
        launch = ctypes.c_int64.from_address(buffers).value
        seen.append((launch, first, last))

    call = Kernel(record)
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
