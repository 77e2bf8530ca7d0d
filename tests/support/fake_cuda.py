"""A CUDA driver without a GPU: memory in numpy, launches through the kernel IR's simulator, and a
record of what was asked in which order."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np

from poot.backends.cuda.device import CudaDevice
from poot.backends.cuda.provider import Call, Facts, Handle, Pinned, Resources, refuse
from poot.backends.cuda.slot_ring import NAME as TAKE_SLOTS
from poot.backends.launches import CLUSTER, MAPS, RESIDENT
from poot.codegen.attributes import TensorView
from poot.codegen.kir.nodes import Blob, Kernel
from poot.codegen.kir.sim import simulate
from poot.codegen.kir.sim.values import NUMPY
from poot.errors import CaptureUnavailable, DeviceLost, LaunchError
from poot.limits import profile

START = 0x7F0000000000
HOST = 0x100000000


@dataclass(slots=True)
class FakeDriver:
    """Answers as `poot.backends.cuda.provider.Driver`. `fails` maps what is asked to the driver
    result that it gets; `total` is the device's memory in bytes. With `is_behind` graphs run when
    somebody waits."""

    kernels: dict[str, Kernel] = field(default_factory=dict)
    has_graphs: bool = True
    total: int = 1 << 24
    fails: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    memory_at: dict[int, np.ndarray] = field(default_factory=dict)
    host_nbytes: int = 0
    host_at: dict[int, np.ndarray] = field(default_factory=dict)
    is_behind: bool = False
    waiting: list[tuple[Call, ...]] = field(default_factory=list)
    next: int = START
    stream: int = 7
    can: frozenset[str] = frozenset({CLUSTER, MAPS, RESIDENT})
    is_open: bool = True
    lost: str = ""

    def _ask(self, what: str, detail: str = "", *, is_launch: bool = False) -> None:
        self.asked.append(f"{what} {detail}".strip())
        if what in self.fails:
            try:
                refuse(self.fails[what], "as the test asks", detail or what, is_launch=is_launch)
            except DeviceLost as e:
                self.lost = self.lost or e.message
                raise

    def _bytes(self, pointer: int, nbytes: int) -> np.ndarray:
        for start, data in self.memory_at.items():
            if start <= pointer and pointer + nbytes <= start + data.size:
                return data[pointer - start : pointer - start + nbytes]
        raise AssertionError(f"no memory at {pointer:#x} for {nbytes} bytes")

    def memory(self) -> tuple[int, int]:
        used = sum(data.size for data in self.memory_at.values())
        return self.total - used, self.total

    def allocate(self, nbytes: int) -> int:
        self._ask("allocate", str(nbytes))
        if nbytes > self.memory()[0]:
            refuse("OUT_OF_MEMORY", "out of memory", f"{nbytes} bytes")
        self.memory_at[self.next] = np.full(nbytes, 0xA5, np.uint8)
        self.next += -(-nbytes // 512) * 512 + 512
        return max(self.memory_at)

    def free(self, pointer: int) -> None:
        if self.is_alive:
            self._ask("free")
            del self.memory_at[pointer]

    @property
    def is_alive(self) -> bool:
        return self.is_open and not self.lost

    def held(self) -> AbstractContextManager[object]:
        return nullcontext()

    def pinned(self, nbytes: int) -> Pinned:
        address = HOST + self.host_nbytes
        self.host_nbytes += -(-nbytes // 4096) * 4096
        self.host_at[address] = np.full(nbytes, 0x5A, np.uint8)
        return Pinned(self.host_at[address], address)

    def send(self, pointer: int, source: Pinned, first: int, nbytes: int) -> None:
        self.copy_in(pointer, source.array[first : first + nbytes])

    def fetch(self, target: Pinned, pointer: int, nbytes: int) -> None:
        self.copy_out(target.array[:nbytes], pointer)

    def zero(self, pointer: int, nbytes: int) -> None:
        self._bytes(pointer, nbytes)[:] = 0

    def copy_in(self, pointer: int, source: np.ndarray) -> None:
        self._ask("copy in", str(source.nbytes))
        self._bytes(pointer, source.nbytes)[:] = source

    def copy_out(self, target: np.ndarray, pointer: int) -> None:
        self.catch_up()
        self._ask("copy out", str(target.nbytes))
        target[:] = self._bytes(pointer, target.nbytes)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self._ask("copy", str(nbytes))
        self._bytes(target, nbytes)[:] = self._bytes(source, nbytes)

    def synchronize(self) -> None:
        self._ask("synchronize")
        self.catch_up()

    def follow(self, stream: int) -> None:
        self._ask("follow", str(stream))

    def wait_for(self, stream: int) -> None:
        self._ask("wait for", str(stream))

    def load(self, image: bytes, name: str, dynamic_nbytes: int) -> Handle:
        assert image.startswith(b".version")
        assert image.endswith(b"\0")
        if self.fails.get("load") == name:
            raise LaunchError(f"kernel {name}: the driver took no such module")
        self.asked.append(f"load {name} {dynamic_nbytes}")
        return name

    def unload(self, function: Handle) -> None:
        self.asked.append(f"unload {function}")

    def resources(self, function: Handle, threads: int, dynamic_nbytes: int) -> Resources:
        return Resources(32, dynamic_nbytes, 0, 2)

    def tensor_map(self, pointer: int, view: TensorView, blob: Blob) -> bytes:
        self.asked.append(f"map {blob.name} {view.dims}")
        return pointer.to_bytes(8, "little") * 16

    def bind(self, calls: Sequence[Call]) -> tuple[Call, ...]:
        return tuple(calls)

    def _take_slots(self, call: Call) -> None:
        """What the first node of a graph with a ring does (`slot_ring.take_text`)."""
        ring_at, count_at, slots_at, mask, stride = struct.unpack("<3Q2I", call.arguments)
        ring = self.host_at[ring_at]
        count = self._bytes(count_at, 4).view(np.uint32)
        entry = ring[64 + (int(count[0]) & mask) * stride :]
        first, words = (int(x) for x in entry[:8].view(np.uint32))
        if words:
            self._bytes(slots_at + first, 4 * words)[:] = entry[16 : 16 + 4 * words]
        count += np.uint32(1)
        ring[:4].view(np.uint32)[:] = count

    def _run(self, call: Call) -> None:
        self._ask("launch", call.name, is_launch=True)
        if call.name == TAKE_SLOTS:
            self._take_slots(call)
            return
        kernel = self.kernels.get(call.name)
        if kernel is None:
            return
        arrays: dict[str, np.ndarray] = {}
        for n, p in enumerate(kernel.params):
            at = int(np.frombuffer(call.arguments[8 * n : 8 * n + 8], np.uint64)[0])
            dtype = NUMPY["u32" if p.dtype == "bool" else p.dtype]
            arrays[p.name] = self._bytes(at, p.elems * dtype.itemsize).view(dtype)
        words = call.arguments[8 * len(kernel.params) :]
        imms = [
            np.frombuffer(words[4 * n : 4 * n + 4], NUMPY[i.dtype])[0].item()
            for n, i in enumerate(kernel.imms)
        ]
        simulate(kernel, arrays, call.grid, imms=imms)

    def launch(self, bound: Handle, is_checked: bool) -> None:
        assert isinstance(bound, tuple)
        for call in bound:
            self._run(call)
            if is_checked:
                self._ask("synchronize")

    def launch_on(self, bound: Handle, stream: int) -> None:
        self._ask("on stream", str(stream))
        self.launch(bound, False)

    def timed(self, bound: Handle) -> list[float]:
        self.launch(bound, False)
        assert isinstance(bound, tuple)
        return [1.5] * len(bound)

    def record(self, bound: Handle) -> Handle:
        if not self.has_graphs:
            raise CaptureUnavailable("no graphs here: pip install 'poot[cuda]'")
        self._ask("record")
        return ("graph", bound)

    def replay(self, graph: Handle) -> None:
        assert isinstance(graph, tuple)
        self._ask("replay")
        self.waiting.append(graph[1])
        if not self.is_behind:
            self.catch_up()

    def catch_up(self) -> None:
        """Runs the graphs that were launched and haven't run."""
        graphs, self.waiting = self.waiting, []
        for calls in graphs:
            for call in calls:
                self._run(call)

    def release(self, graph: Handle) -> None:
        self.asked.append("release")

    def close(self) -> None:
        self._ask("close")
        self.is_open = False


def fake_device(driver: FakeDriver | None = None, *, is_checked: bool = False) -> CudaDevice:
    """A CUDA device over a fake driver, with an H200's limits."""
    facts = Facts("a device made up", profile("h200"))
    return CudaDevice(driver or FakeDriver(), facts, is_checked)
