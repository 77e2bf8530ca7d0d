"""A CUDA device whose driver runs the PTX it is given on numpy (`ptx_machine`)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from poot.backends.cuda.device import CudaDevice
from poot.backends.cuda.provider import Call, Facts, Handle, Pinned, refuse
from poot.errors import LaunchError
from poot.limits import profile
from tests.support.fake_cuda import FakeDriver
from tests.support.ptx_actions import compiled
from tests.support.ptx_machine import START, Action, Memory, Run
from tests.support.ptx_text import Instruction, Module, read_ptx

MEMORY_NBYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel as read from its text."""

    module: Module
    code: list[tuple[Instruction, Action]]


@dataclass(slots=True)
class PtxDriver(FakeDriver):
    """The fake driver with real code: memory is the machine's, launches run the text."""

    machine: Memory = field(default_factory=lambda: Memory(MEMORY_NBYTES))
    sizes: dict[int, int] = field(default_factory=dict)
    top: int = MEMORY_NBYTES  # page-locked memory is in the machine's too, from its end on down

    def _bytes(self, pointer: int, nbytes: int) -> np.ndarray:
        return self.machine.bytes_at(pointer, nbytes)

    def memory(self) -> tuple[int, int]:
        return self.top - self.machine.next, MEMORY_NBYTES

    def pinned(self, nbytes: int) -> Pinned:
        self.top -= -(-nbytes // 256) * 256
        assert self.top >= self.machine.next, "the machine is out of memory"
        self.machine.live[self.top : self.top + nbytes] = True
        return Pinned(self.machine.bytes_at(START + self.top, nbytes), START + self.top)

    def allocate(self, nbytes: int) -> int:
        if nbytes > self.memory()[0]:
            refuse("OUT_OF_MEMORY", "out of memory", f"{nbytes} bytes")
        pointer = self.machine.allocate(nbytes)
        self.machine.bytes_at(pointer, nbytes)[:] = 0xA5
        self.sizes[pointer] = nbytes
        return pointer

    def free(self, pointer: int) -> None:
        if not self.is_alive:
            return
        self._ask("free")
        self.machine.bytes_at(pointer, nbytes := self.sizes.pop(pointer))
        at = pointer - START
        self.machine.live[at : at + nbytes] = False
        if not self.sizes:
            self.machine.next = 0

    def load(self, image: bytes, name: str, dynamic_nbytes: int) -> Handle:
        if not image.endswith(b"}\n\0"):
            raise LaunchError(f"kernel {name}: the driver took no such module: it has no end")
        module = read_ptx(image.rstrip(b"\0").decode())
        assert module.name == name
        return Entry(module, compiled(module))

    def _run(self, call: Call) -> None:
        self.asked.append(f"launch {call.name}")
        entry = call.function
        assert isinstance(entry, Entry)
        params: dict[str, int] = {}
        for (name, nbytes), at in zip(entry.module.params, call.offsets, strict=True):
            params[name] = int.from_bytes(call.arguments[at : at + nbytes], "little")
        shared = entry.module.shared_nbytes
        nbytes = call.dynamic_nbytes if shared is None else shared
        Run(entry.module, call.grid, self.machine, params, nbytes).go(entry.code)

    def unload(self, function: Handle) -> None:
        return None


def ptx_device() -> CudaDevice:
    """A device of an H200's limits that runs its own code's text. It says that it has no tensor
    maps, for the machine has none, so that nothing is planned on warpgroups that copy by them."""
    limits = replace(profile("h200"), has_tensor_maps=False)
    return CudaDevice(PtxDriver(), Facts("PTX on numpy", limits))
