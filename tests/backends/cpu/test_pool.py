"""The process's threads: shared, taken in turn, gone with the process, made anew in a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np

from poot.backends.base import BufferRef, Launch
from poot.backends.cpu.pool import aligned, compiled, pool
from poot.cache import DiskCache
from poot.codegen.kir.build import KernelBuilder
from tests.support.cpu import cpu
from tests.support.sources import ROOT

STEPS = """
import os, sys
import numpy as np
from poot.backends.base import BufferRef, Launch
from poot.backends.cpu import open_device
from poot.codegen.kir.build import KernelBuilder

k = KernelBuilder("add", 64)
y = k.param("y", "f32", 6400, "rw")
i = k.group_id(0) * 64 + k.lane()
k.store(y, i, k.load(y, i) + 1.0)
device = open_device()
buffer = device.allocate(25600, "y")
run = device.prepare(
    device.load([device.emit(k.kernel())]),
    [Launch(0, (100, 1, 1), (BufferRef("y", 0, 25600),))], {"y": buffer},
)
run.run()
child = os.fork() if "fork" in sys.argv else 0
run.run()
total = device.copy_out(buffer, 0, 25600).view(np.float32).sum()
assert total == 12800, total
if child:
    pid, status = os.waitpid(child, 0)
    assert status == 0, status
"""


def test_bytes_start_on_a_cache_line_and_are_zeros():
    for nbytes in (1, 63, 64, 1000):
        made = aligned(nbytes)
        assert made.size == nbytes
        assert made.ctypes.data % 64 == 0
        assert not made.any()


def test_a_process_has_one_pool_of_a_size():
    assert pool(2) is pool(2)
    assert pool(2) is not pool(3)


def steps(*words: str) -> None:
    """Runs STEPS in a process of its own."""
    environ = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-W", "ignore", "-c", STEPS, *words]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60, env=environ)
    assert done.returncode == 0, done.stderr.decode()


def test_a_process_ends_in_peace_whatever_the_workers_do():
    for _ in range(5):
        steps()


def test_a_forked_child_runs_what_its_parent_prepared():
    steps("fork")


def test_callers_take_turns():
    device = cpu()
    k = KernelBuilder("add", 16)
    y = k.param("y", "f32", 16, "rw")
    k.store(y, k.lane(), k.load(y, k.lane()) + 1.0)
    loaded = device.load([device.emit(k.kernel())])
    buffers = [device.allocate(64, f"y{n}") for n in range(4)]
    launch = Launch(0, (1, 1, 1), (BufferRef("y", 0, 64),))
    runs = [device.prepare(loaded, [launch] * 50, {"y": b}) for b in buffers]
    callers = [threading.Thread(target=lambda r=r: [r.run() for _ in range(20)]) for r in runs]
    for c in callers:
        c.start()
    for c in callers:
        c.join(60)
    for b in buffers:
        np.testing.assert_array_equal(device.copy_out(b, 0, 64).view(np.float32), 1000)


def test_a_damaged_cache_entry_is_compiled_again(tmp_path: Path):
    cache = DiskCache(tmp_path)
    text = "define i32 @three() {\n  ret i32 3\n}\n"
    first = compiled(text, "x86-64-v3", cache)
    (entry,) = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert compiled(text, "x86-64-v3", cache) == first
    entry.write_bytes(entry.read_bytes()[:-8])
    assert compiled(text, "x86-64-v3", cache) == first
