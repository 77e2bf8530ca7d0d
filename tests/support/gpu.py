"""Kernels on real devices: opening them, one launch with arrays in and out, spirv-val."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from poot.backends import cpu, cuda, vulkan, wgpu
from poot.backends.base import BufferRef, Code, Device, Launch
from poot.codegen.kir.nodes import ELEMENT_BYTES, Kernel
from poot.codegen.kir.sim.values import NUMPY
from poot.errors import BackendUnavailable
from poot.limits import profile
from tests.support.hip.fiber_device import FiberDevice
from tests.support.ptx_device import ptx_device

GPUS = ("vulkan", "wgpu", "webgpu-baseline")
FIBERS = ("hip-fibers-32", "hip-fibers-64")
# Every device that runs launches; "ptx" is the PTX emitter's text run on numpy.
DEVICES = (*GPUS, "cpu", "ptx", *FIBERS, pytest.param("cuda", marks=pytest.mark.cuda))
ALIGN = 256


@functools.cache
def _opened(target: str) -> Device | str:
    """A device of the process, or why there is none. Vulkan's has the validation layer on."""
    try:
        if target in FIBERS:
            return FiberDevice(int(target[-2:]))
        if target == "cpu":
            return cpu.open_device(0)
        if target == "ptx":
            return ptx_device()
        if target == "cuda":
            return cuda.open_device(0)
        if target == "vulkan":
            return vulkan.open_device(0, validation=True)
        limits = profile(target) if target == "webgpu-baseline" else None
        return wgpu.open_device(0, limits=limits)
    except BackendUnavailable as e:
        return e.message


def gpu(target: str) -> Device:
    """The device, or a skip that says what is missing."""
    device = _opened(target)
    if isinstance(device, str):
        pytest.skip(device)
    return device


def clean(device: Device) -> None:
    """Fails if the validation layer has complained since the last call."""
    messages = getattr(device, "messages", [])
    said = list(messages)
    messages.clear()
    assert said == []


def validate(binary: bytes) -> None:
    """spirv-val's verdict, for the environment that poot asks for."""
    tool = shutil.which("spirv-val")
    assert tool is not None, "spirv-val is not there: apt-get install spirv-tools"
    command = [tool, "--target-env", "vulkan1.1", "-"]
    done = subprocess.run(command, input=binary, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()


def memory_form(array: np.ndarray) -> np.ndarray:
    """An array as bytes on a device: bools are u32 words, and the end is padded to a word."""
    wide = array.astype(np.uint32) if array.dtype == np.bool_ else array
    raw = np.ascontiguousarray(wide).reshape(-1).view(np.uint8)
    return np.concatenate([raw, np.zeros(-raw.size % 4, np.uint8)])


def array_form(raw: np.ndarray, dtype: str, elems: int) -> np.ndarray:
    if dtype == "bool":
        return raw[: 4 * elems].view(np.uint32) != 0
    return raw[: elems * ELEMENT_BYTES[dtype]].view(NUMPY[dtype])


def launch_arrays(
    device: Device,
    kernel: Kernel,
    arrays: Mapping[str, np.ndarray],
    grid: tuple[int, int, int] = (1, 1, 1),
    imms: Sequence[int | float] = (),
) -> dict[str, np.ndarray]:
    """One launch: every parameter's array afterwards. One not given starts as zeros."""
    code = device.emit(kernel)
    if device.limits.target == "spirv":
        validate(code.binary)
    return launch_code(device, code, arrays, grid, imms)


def launch_code(
    device: Device,
    code: Code,
    arrays: Mapping[str, np.ndarray],
    grid: tuple[int, int, int] = (1, 1, 1),
    imms: Sequence[int | float] = (),
) -> dict[str, np.ndarray]:
    kernel = code.kernel
    refs: list[BufferRef] = []
    at = 0
    for p in kernel.params:
        nbytes = max(4, -(-p.elems * ELEMENT_BYTES[p.dtype] // 4) * 4)
        refs.append(BufferRef("arena", at, nbytes))
        at = -(-(at + nbytes) // ALIGN) * ALIGN
    buffer = device.allocate(max(at, 16), "arena")
    try:
        for p, ref in zip(kernel.params, refs, strict=True):
            if p.name in arrays and arrays[p.name].size:
                device.copy_in(buffer, ref.offset, memory_form(arrays[p.name]))
        launches = [Launch(0, grid, tuple(refs), tuple(imms))]
        device.prepare(device.load([code]), launches, {"arena": buffer}).run()
        out = {
            p.name: array_form(device.copy_out(buffer, r.offset, r.nbytes), p.dtype, p.elems)
            for p, r in zip(kernel.params, refs, strict=True)
        }
    finally:
        device.free(buffer)
    clean(device)
    return out
