"""What is the CPU's own beside the promises of every device: its records, and a warm start."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from poot.api import compile as compile_program
from poot.backends.base import BufferRef, Launch
from poot.backends.cpu import device as cpu_device
from poot.backends.cpu.device import CpuDevice
from poot.codegen.kir.build import KernelBuilder
from poot.codegen.llvm import emit as llvm_emit
from poot.errors import LaunchError
from poot.ir.text import parse
from tests.support.cpu import cpu
from tests.support.sources import ROOT

PRODUCT = parse("""
    slot v0: f32[3,64] "x" kind=user
    weight v1: f32[64,40] "w"
    v2: f32[3,40] = matmul(v0, v1)
    out v2
""")


def test_a_warm_start_compiles_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("POOT_CACHE_DIR", str(tmp_path))
    first = compile_program(PRODUCT, target="cpu")
    monkeypatch.setattr(llvm_emit, "compile_text", lambda *a: pytest.fail("compiled"))
    again = compile_program(PRODUCT, target="cpu")
    assert [c.binary for c in again.codes] == [c.binary for c in first.codes]


def test_a_program_that_is_bound_again_links_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("POOT_CACHE_DIR", str(tmp_path))
    program = compile_program(PRODUCT, target="cpu")
    w = np.ones((64, 40), np.float32)
    program.bind({"w": w}).close()
    monkeypatch.setattr(cpu_device, "load_objects", lambda *a: pytest.fail("linked"))
    (got,) = program.bind({"w": w}).step(x=np.ones((3, 64), np.float32))
    assert (np.asarray(got) == 64).all()


def test_a_step_is_one_call_of_a_replayed_list(tmp_path, monkeypatch):
    monkeypatch.setenv("POOT_CACHE_DIR", str(tmp_path))
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((3, 64), (64, 40)))
    session = compile_program(PRODUCT, target="cpu").bind({"w": w})
    for _ in range(3):
        (got,) = session.step(x=x)
        np.testing.assert_allclose(np.asarray(got), x @ w, 1e-5, 1e-5)


def test_a_damaged_object_file_is_refused_by_kernel_name():
    k = KernelBuilder("noted", 16)
    k.store(k.param("y", "f32", 16, "w"), k.lane(), 1.0)
    code = cpu().emit(k.kernel())
    with pytest.raises(LaunchError, match="kernel noted: its object file is damaged"):
        cpu().load([replace(code, binary=code.binary[:50] + b"?" + code.binary[51:])])
    with pytest.raises(LaunchError, match="kernel noted is for spirv"):
        cpu().load([replace(code, target="spirv")])


def test_a_launch_of_no_groups_and_an_empty_list_run():
    device = CpuDevice()
    k = KernelBuilder("one", 16)
    k.store(k.param("y", "f32", 16, "w"), k.lane(), 1.0)
    loaded, y = device.load([device.emit(k.kernel())]), device.allocate(64, "y")
    none = Launch(0, (0, 1, 1), (BufferRef("y", 0, 64),))
    device.prepare(loaded, [none], {"y": y}).run()
    assert device.prepare(loaded, [], {"y": y}).timed() == []
    assert not device.copy_out(y, 0, 64).any()


CROWDED = """
import ctypes, mmap
from pathlib import Path
from poot.backends.cpu import open_device
from poot.codegen.kir.build import KernelBuilder
from poot.errors import OutOfDeviceMemory

k = KernelBuilder("last", 16)
k.store(k.param("y", "f32", 16, "w"), k.lane(), 1.0)
device = open_device()
code = device.emit(k.kernel())
device.load([code])
libc, page = ctypes.CDLL(None), mmap.PAGESIZE
libc.mmap.restype = ctypes.c_void_p
most = int(Path("/proc/sys/vm/max_map_count").read_text())
block = libc.mmap(None, ctypes.c_size_t(2 * most * page), 0, 0x4022, -1, ctypes.c_long(0))
at = block
while libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(page), 1) == 0:
    at += 2 * page
try:
    device.load([code])
except OutOfDeviceMemory as e:
    assert "vm.max_map_count" in e.message, e.message
else:
    raise SystemExit("loaded")
libc.munmap(ctypes.c_void_p(block), ctypes.c_size_t(2 * most * page))
device.load([code])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts mappings as Linux does")
def test_a_process_that_may_map_no_more_is_told_so_and_lives():
    environ = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-W", "ignore", "-c", CROWDED]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60, env=environ)
    assert done.returncode == 0, done.stderr.decode()[-2000:]


def test_python_goes_on_while_a_list_runs():
    device = CpuDevice()
    k = KernelBuilder("long", 16)
    y = k.param("y", "f32", 16, "rw")
    with k.for_(0, 500_000):
        k.store(y, k.lane(), k.load(y, k.lane()) * 0.5 + 1.0)
    loaded, buffer = device.load([device.emit(k.kernel())]), device.allocate(64, "y")
    launch = Launch(0, (60, 1, 1), (BufferRef("y", 0, 64),))
    ready = device.prepare(loaded, [launch], {"y": buffer})
    caller = threading.Thread(target=ready.run)
    caller.start()
    ticks = 0
    while caller.is_alive():
        time.sleep(0.001)
        ticks += 1
    assert ticks > 10
