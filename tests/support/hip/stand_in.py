"""A HIP runtime and compiler that stand in for ROCm's, so that poot's own launcher runs without an
AMD GPU: HipDevice over libraries of the same names, whose kernels are run by fibers.

The bindings find the libraries by name, once a process: only a process of its own may call `load`.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rocm.bindings import hip

from poot.backends import hip as backend
from poot.backends.hip.device import HipDevice
from poot.limits import profile
from tests.support.hip import gxx
from tests.support.hip.fiber_device import WAVES

FLAGS = ("-O1", "-std=c++17")
_KERNEL = re.compile(r"^void (poot_\w+)\(", re.MULTILINE)
Compiler = Callable[[str, str, tuple[str, ...]], bytes]
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, *[ctypes.c_char_p] * 3)


def properties(wave: int, shared_nbytes: int | None = None) -> bytes:
    """The bytes of hipDeviceProp_t for the card with such waves, in the bindings' own layout."""
    view = hip.hipDeviceProp_t.allocate(1)
    raw = (ctypes.c_char * view.c_sizeof()).from_address(int(view))
    limits = profile(WAVES[wave])
    view.warpSize = wave
    view.maxThreadsPerBlock = limits.threads
    view.multiProcessorCount = limits.compute_units
    view.sharedMemPerBlock = shared_nbytes or limits.workgroup_nbytes
    view.totalGlobalMem = 8 << 30
    for axis, most in enumerate((2147483647, 65535, 65535)):
        _place(raw, lambda: list(view.maxGridSize)[axis], most.to_bytes(4, "little"))  # noqa: B023
    _place(raw, lambda: view.gcnArchName, f"{limits.arch}:sramecc+:xnack-".encode())
    _place(raw, lambda: view.name, b"Stand-in")
    return raw.raw


def _place(raw: ctypes.Array[ctypes.c_char], read: Callable[[], object], value: bytes) -> None:
    """Writes bytes where the view reads a field: the first place that changes what it reads."""
    before = read()
    for at in range(0, len(raw) - len(value), 4):
        old = raw[at : at + 4]
        raw[at : at + 4] = bytes(b ^ 0x41 for b in old)
        hit = read() != before
        raw[at : at + 4] = old
        if hit:
            raw[at : at + len(value)] = value
            return
    raise AssertionError(f"no place for {value!r}")


def by_fibers(text: str, name: str, options: tuple[str, ...]) -> bytes:
    """A library of the text's one kernel for the fiber runner. Raises what g++ said."""
    (kernel,) = _KERNEL.findall(text)
    parts = [
        f'#include "{gxx.INCLUDE}/fibers/hip/hip_runtime.h"',
        "#define __HIPCC_RTC__",
        f'#define POOT_SHARED "poot_shared_{kernel}"',
        '#line 1 "text.hip"',
        text,
        f"POOT_EXPORT({kernel}, {kernel})",
    ]
    if "__shared__" in text:
        parts.append(f"POOT_EXPORT_SHARED({kernel})")
    return gxx.build("\n".join(parts) + "\n", "-shared", "-fPIC").read_bytes()


@dataclass(frozen=True, slots=True)
class StandIn:
    """The two libraries, loaded."""

    wave: int
    runtime: ctypes.CDLL
    compiler: ctypes.CDLL

    def log(self) -> list[str]:
        """The calls since the last asking, in order."""
        lines = ctypes.string_at(self.runtime.poot_stand_in_log()).decode().splitlines()
        self.runtime.poot_stand_in_clear()
        return lines

    def fail(self, call: str, status: int) -> None:
        """The next call of that name returns this status and does nothing."""
        library = self.compiler if call.startswith("hiprtc") else self.runtime
        told = library.poot_rtc_fail if call.startswith("hiprtc") else library.poot_stand_in_fail
        told(call.encode(), status)

    def used(self) -> int:
        """Bytes of device memory that are allocated."""
        return self.runtime.poot_stand_in_used()

    def compiles(self) -> int:
        """How often a text was compiled."""
        return self.compiler.poot_rtc_compiles()


@functools.cache
def _called_back() -> list[object]:
    """What the libraries may still call, kept for the process's life."""
    return []


def _library(source: str, soname: str) -> ctypes.CDLL:
    text = (Path(__file__).parent / source).read_text()
    path = gxx.build(text, "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-ldl", flags=FLAGS)
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def load(
    wave: int,
    compiler: Compiler = by_fibers,
    *,
    is_cuda: bool = False,
    shared_nbytes: int | None = None,
) -> StandIn:
    """Loads the stand-ins under ROCm's own names, before the bindings look for them. With `is_cuda`
    every call goes on to an NVIDIA driver, and `compiler` makes cubins."""
    ctypes.CDLL(str(gxx.runner()), mode=ctypes.RTLD_GLOBAL)
    runtime = _library("stand_in.cpp", "libamdhip64.so")
    rtc = _library("stand_in_rtc.cpp", "libhiprtc.so")
    runtime.poot_stand_in_log.restype = ctypes.c_void_p
    runtime.poot_stand_in_used.restype = ctypes.c_size_t
    if is_cuda:
        runtime.poot_stand_in_use_cuda()
    raw = properties(wave, shared_nbytes)
    most = ctypes.c_size_t(8 << 30)
    runtime.poot_stand_in_properties(raw, ctypes.c_size_t(len(raw)), wave, most)

    def compile_one(at: int, text: bytes, name: bytes, options: bytes) -> bool:
        try:
            made = compiler(text.decode(), name.decode(), tuple(options.decode().splitlines()))
        except AssertionError as e:
            words = str(e).encode()
            rtc.poot_rtc_answer(ctypes.c_void_p(at), words, ctypes.c_size_t(len(words)), False)
            return False
        rtc.poot_rtc_answer(ctypes.c_void_p(at), made, ctypes.c_size_t(len(made)), True)
        return True

    callback = _CALLBACK(compile_one)
    rtc.poot_rtc_compiler(callback)
    _called_back().append(callback)
    return StandIn(wave, runtime, rtc)


def open_device() -> HipDevice:
    """poot's own HIP backend over what `load` loaded."""
    return backend.open_device(0)
