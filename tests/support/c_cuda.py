"""The C runtime's CUDA device without a GPU: its driver is a stand-in library whose functions are
Python's, and launches run the PTX on numpy. Run as a program, since a process that has loaded a
libcuda.so.1 looks as if it had a device.

    python -m tests.support.c_cuda FOLDER
"""

from __future__ import annotations

import ctypes as c
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import poot
from poot.errors import PootError
from tests.support import bundles
from tests.support.c_runtime import VALIDATION, Device, Failed, Program, Session, compiler, leaves
from tests.support.ptx_device import Entry, PtxDriver, ptx_device
from tests.support.ptx_machine import Run

SOURCE = Path(__file__).parent / "c/stand_in_cuda.c"
P, N, U, S, Q = c.c_void_p, c.c_int, c.c_uint, c.c_size_t, c.c_uint64
# CUdevice_attribute -> an H200's.
ATTRIBUTES = {1: 1024, 5: (1 << 31) - 1, 6: 65535, 7: 65535, 16: 132, 75: 9, 76: 0, 97: 232448}


class Config(c.Structure):
    _fields_ = (
        ("grid", U * 3), ("block", U * 3), ("shared", U), ("stream", P), ("attributes", P),
        ("count", U),
    )  # fmt: skip


class StandIn:
    """The driver: handles are numbers, memory is the machine's."""

    def __init__(self, library: c.CDLL) -> None:
        self.machine = PtxDriver()
        self.held: dict[int, Any] = {}
        self.live: set[int] = set()
        self.capturing: list[Any] | None = None
        self.log: list[str] = []
        self.fails: dict[str, int] = {}
        self._kept: list[Any] = []
        for name, kinds in KINDS.items():
            run = getattr(self, name)
            call = c.CFUNCTYPE(N, *kinds)(self._told(name, run))
            self._kept.append(call)
            P.in_dll(library, f"set_{name}").value = c.cast(call, P).value

    def _told(self, name: str, run: Callable[..., int | None]) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.log.append(name)
            if name in self.fails:
                return self.fails[name]
            return run(*arguments) or 0

        return call

    def _give(self, where: int, value: Any) -> None:
        """A new handle for a value."""
        number = 0x1000 + 16 * len(self.held)
        self.held[number] = value
        self.live.add(number)
        P.from_address(where).value = number

    def cuInit(self, flags: int) -> None: ...
    def cuDeviceGet(self, out: int, index: int) -> int:
        N.from_address(out).value = index
        return 0 if index == 0 else 101

    def cuDeviceGetName(self, out: int, room: int, device: int) -> None:
        c.memmove(out, b"PTX on numpy\0", 13)

    def cuDeviceTotalMem_v2(self, out: int, device: int) -> None:
        S.from_address(out).value = self.machine.memory()[1]

    def cuDeviceGetAttribute(self, out: int, which: int, device: int) -> None:
        N.from_address(out).value = ATTRIBUTES[which]

    def cuDevicePrimaryCtxRetain(self, out: int, device: int) -> None:
        self._give(out, "context")

    def cuDevicePrimaryCtxRelease_v2(self, device: int) -> None:
        self.live -= {n for n in self.live if self.held[n] == "context"}

    def cuCtxPushCurrent_v2(self, context: int) -> None:
        assert self.held[context] == "context"

    def cuCtxPopCurrent_v2(self, out: int) -> None: ...
    def cuStreamCreate(self, out: int, flags: int) -> None:
        self._give(out, "stream")

    def cuStreamDestroy_v2(self, stream: int) -> None:
        self.live.remove(stream)

    def cuStreamSynchronize(self, stream: int) -> None:
        assert self.capturing is None, "nothing may wait for a stream that is captured"

    def cuMemAlloc_v2(self, out: int, nbytes: int) -> None:
        Q.from_address(out).value = self.machine.allocate(nbytes)

    def cuMemFree_v2(self, pointer: int) -> None:
        self.machine.free(pointer)

    def cuMemsetD8Async(self, pointer: int, value: int, nbytes: int, stream: int) -> None:
        self.machine.machine.bytes_at(pointer, nbytes)[:] = value

    def cuMemcpyHtoDAsync_v2(self, pointer: int, source: int, nbytes: int, stream: int) -> None:
        self.machine.machine.bytes_at(pointer, nbytes)[:] = list(c.string_at(source, nbytes))

    def cuMemcpyDtoHAsync_v2(self, target: int, pointer: int, nbytes: int, stream: int) -> None:
        c.memmove(target, self.machine.machine.bytes_at(pointer, nbytes).tobytes(), nbytes)

    def cuModuleLoadData(self, out: int, text: int) -> None:
        image = c.string_at(text) + b"\0"
        name = image.split(b".entry ")[1].split(b"(")[0].decode()
        self._give(out, self.machine.load(image, name, 0))

    def cuModuleUnload(self, module: int) -> None:
        self.live.remove(module)

    def cuModuleGetFunction(self, out: int, module: int, name: bytes) -> int:
        entry = self.held[module]
        P.from_address(out).value = module
        return 0 if entry.module.name == name.decode() else 500

    def cuFuncSetAttribute(self, function: int, which: int, value: int) -> None:
        assert which in (8, 13)

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(
        self, out: int, function: int, lanes: int, shared: int
    ) -> None:
        N.from_address(out).value = 1

    def cuLaunchKernelEx(self, config: int, function: int, params: int, extra: int) -> None:
        asked, entry = Config.from_address(config), self.held[function]
        assert isinstance(entry, Entry)
        assert self.capturing is not None
        assert self.held[asked.stream] == "stream"
        assert list(asked.block)[1:] == [1, 1]
        given: dict[str, int] = {}
        for n, (name, nbytes) in enumerate(entry.module.params):
            at = P.from_address(params + 8 * n).value
            assert at is not None
            given[name] = int.from_bytes(c.string_at(at, nbytes), "little")
        self.capturing.append((entry, tuple(asked.grid), asked.shared, given))

    def cuStreamBeginCapture_v2(self, stream: int, mode: int) -> None:
        self.capturing = []

    def cuStreamEndCapture(self, stream: int, out: int) -> None:
        self._give(out, self.capturing)
        self.capturing = None

    def cuGraphInstantiateWithFlags(self, out: int, graph: int, flags: int) -> None:
        self._give(out, self.held[graph])

    def cuGraphLaunch(self, graph: int, stream: int) -> None:
        for entry, grid, dynamic, given in self.held[graph]:
            shared = entry.module.shared_nbytes
            nbytes = dynamic if shared is None else shared
            Run(entry.module, grid, self.machine.machine, given, nbytes).go(entry.code)

    def cuGraphDestroy(self, graph: int) -> None:
        self.live.remove(graph)

    def cuGraphExecDestroy(self, graph: int) -> None:
        self.live.remove(graph)

    def cuGetErrorName(self, code: int, out: int) -> None:
        self._kept.append(c.create_string_buffer(f"CUDA_ERROR_{code}".encode()))
        P.from_address(out).value = c.addressof(self._kept[-1])

    def cuTensorMapEncodeTiled(self, *arguments: Any) -> int:
        return 801


KINDS: dict[str, tuple[Any, ...]] = {
    "cuInit": (U,), "cuDeviceGet": (P, N), "cuDeviceGetName": (P, N, N),
    "cuDeviceTotalMem_v2": (P, N), "cuDeviceGetAttribute": (P, N, N),
    "cuDevicePrimaryCtxRetain": (P, N), "cuDevicePrimaryCtxRelease_v2": (N,),
    "cuCtxPushCurrent_v2": (P,), "cuCtxPopCurrent_v2": (P,), "cuStreamCreate": (P, U),
    "cuStreamDestroy_v2": (P,), "cuStreamSynchronize": (P,), "cuMemAlloc_v2": (P, S),
    "cuMemFree_v2": (Q,), "cuMemsetD8Async": (Q, c.c_ubyte, S, P),
    "cuMemcpyHtoDAsync_v2": (Q, P, S, P), "cuMemcpyDtoHAsync_v2": (P, Q, S, P),
    "cuModuleLoadData": (P, P), "cuModuleUnload": (P,),
    "cuModuleGetFunction": (P, P, c.c_char_p), "cuFuncSetAttribute": (P, N, N),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (P, P, N, S),
    "cuLaunchKernelEx": (P, P, P, P), "cuStreamBeginCapture_v2": (P, N),
    "cuStreamEndCapture": (P, P), "cuGraphInstantiateWithFlags": (P, P, Q),
    "cuGraphLaunch": (P, P), "cuGraphDestroy": (P,), "cuGraphExecDestroy": (P,),
    "cuGetErrorName": (N, P), "cuTensorMapEncodeTiled": (P, N, U, P, P, P, P, P, N, N, N, N),
}  # fmt: skip


def load_stand_in(folder: Path) -> StandIn:
    """Builds and loads it: what asks for libcuda.so.1 from now on gets this one."""
    out = folder / "libcuda.so.1"
    subprocess.run(
        [compiler(), "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", out, SOURCE], check=True
    )
    return StandIn(c.CDLL(str(out), c.RTLD_GLOBAL))


def main(folder: Path) -> None:
    driver = load_stand_in(folder)
    program = poot.compile(bundles.graph(), "h200")
    program.save(folder / "x.poot", bundles.weights())
    python = poot.load(folder / "x.poot", ptx_device()).bind(folder / "x.safetensors")
    device, made = Device("cuda"), Program((folder / "x.poot").read_bytes())
    session = Session(made, device, folder / "x.safetensors")
    for n in range(3):
        got = session.step(**bundles.slots(n))
        for one, two in zip(leaves(python.step(**bundles.slots(n))), got, strict=True):
            assert one.tobytes() == two.tobytes()
    assert driver.log.count("cuGraphInstantiateWithFlags") == 1, "later steps replay"
    for name, value in python.state.items():
        assert session.state(name, value).tobytes() == value.tobytes()
    wrong = {**bundles.slots(3), "at": 99}
    with pytest.raises(PootError) as other:
        python.step(**wrong)
    with pytest.raises(Failed) as failed:
        session.step(**wrong)
    assert (failed.value.status, failed.value.message) == (VALIDATION, other.value.message)
    session.close()
    device.close()
    print(f"{len(driver.live)} handles and {len(driver.machine.sizes)} buffers held")
    for name, code in (("cuGraphLaunch", 719), ("cuModuleLoadData", 218), ("cuMemAlloc_v2", 2)):
        device = Device("cuda")
        if name != "cuGraphLaunch":
            driver.fails = {name: code}
        try:
            session = Session(made, device, folder / "x.safetensors")
            driver.fails = {name: code}
            session.step(**bundles.slots(4))
        except Failed as e:
            print(e)
        driver.fails = {}
        device.close()
    made.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
