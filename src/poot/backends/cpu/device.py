"""The CPU as a device: memory is numpy's, a launch list is one call of the pool."""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from poot.backends.base import Buffer, Launch
from poot.backends.cpu.machine import description, limits, mappings
from poot.backends.cpu.pool import aligned, pool
from poot.backends.cpu.runtime import RECORD, RECORD_NBYTES
from poot.backends.launches import check_launch, pack_immediates, padded, waits
from poot.backends.owned import (
    launch_names,
    need_adoptable,
    need_code,
    need_live,
    need_open,
    need_own,
    need_words,
    refuse_too_much,
)
from poot.codegen.code import Code
from poot.codegen.emitters import emit
from poot.codegen.kir.nodes import Kernel
from poot.codegen.llvm.binding import Loaded, load_objects
from poot.codegen.llvm.compile import object_file
from poot.codegen.llvm.emit import symbol
from poot.errors import BackendError, LaunchError, OutOfDeviceMemory
from poot.limits import DeviceLimits

# Ranges of memory that an object file takes once it is loaded (code, constants, the pages about
# them), and what is left to the rest of the process.
_RANGES, _SPARE = 4, 1024
MOST_LINKED = 64  # lists of object files that stay linked, whoever lets go
# A launch's groups are handed out in about this many parts a thread, so that none waits long.
_PARTS = 32


class HostBuffer:
    """Aligned bytes until it is freed. `nbytes` is what was asked; whole quanta lie behind it."""

    def __init__(self, nbytes: int, label: str, data: np.ndarray | None = None) -> None:
        self.nbytes = nbytes
        self.label = label
        self._data: np.ndarray | None = aligned(padded(nbytes)) if data is None else data

    @property
    def is_freed(self) -> bool:
        return self._data is None

    def free(self) -> None:
        self._data = None

    def bytes(self) -> np.ndarray:
        """All of it, u8. Raises BackendError where it has been freed."""
        if self._data is None:
            raise BackendError(f"{self.label} is no live buffer: it has been freed")
        return self._data


@dataclass(frozen=True, slots=True)
class Module:
    """Kernels in memory, by their index in the list that was loaded."""

    kernels: tuple[Kernel, ...]
    addresses: tuple[int, ...]
    loaded: Loaded


@dataclass(frozen=True, slots=True)
class Recorded:
    """A launch list as the records that the pool takes. Holds on to all they point at."""

    threads: int
    count: int
    records: np.ndarray
    names: str
    device: CpuDevice
    buffers: tuple[HostBuffer, ...]
    held: tuple[object, ...]

    def run(self) -> None:
        """Runs the list and returns when all of it is done. Raises LaunchError."""
        self._call(0)

    def timed(self) -> list[float]:
        """Runs with a meeting of the threads between launches; microseconds of each."""
        times = np.zeros(self.count + 1, np.float64)
        self._call(times.ctypes.data)
        return [float(t) for t in np.diff(times)]

    def _call(self, times: int) -> None:
        """What the records point at is held until the call is done, whoever frees it meanwhile."""
        self.device.need_open()
        need_live(self.buffers, self.names)
        held = [b.bytes() for b in self.buffers]
        pool(self.threads).call(self.records.ctypes.data, self.count, times)
        del held

    def record(self) -> bool:
        """The records are made once, in `prepare`."""
        return True

    @property
    def is_replay(self) -> bool:
        return True


class CpuDevice:
    """This machine's processor. Everything is done when a call returns.

    `under` is narrower limits than the machine's own, such as half its vector width."""

    def __init__(self, under: DeviceLimits | None = None) -> None:
        self._limits = under or limits()
        self._is_open = True
        self._description = description()

    @property
    def limits(self) -> DeviceLimits:
        return self._limits

    @property
    def description(self) -> str:
        return self._description

    def need_open(self) -> None:
        """Raises BackendError where this opening was closed."""
        need_open(self._is_open, self._limits)

    def _part(self, buffer: Buffer, offset: int, nbytes: int) -> np.ndarray:
        """Whole words of a buffer. Raises BackendError."""
        self.need_open()
        held = need_words(buffer, HostBuffer, self._limits, offset, nbytes)
        return held.bytes()[offset : offset + nbytes]

    def allocate(self, nbytes: int, label: str) -> HostBuffer:
        """Zero-filled memory. Raises OutOfDeviceMemory."""
        self.need_open()
        refuse_too_much(nbytes, label, self._limits)
        try:
            return HostBuffer(nbytes, label)
        except MemoryError as e:
            raise OutOfDeviceMemory(f"{label} asks {nbytes} bytes: {e}") from e

    def adopt(self, handle: object, nbytes: int, label: str, owner: object = None) -> HostBuffer:
        """The process's memory at an address. Raises BackendError."""
        self.need_open()
        address = need_adoptable(handle, nbytes, label)
        memory = (ctypes.c_uint8 * nbytes).from_address(address)
        weakref.finalize(memory, _held_until_now, owner)
        return HostBuffer(nbytes, label, np.ctypeslib.as_array(memory))

    def free(self, buffer: Buffer) -> None:
        if isinstance(buffer, HostBuffer):
            buffer.free()

    def copy_in(self, buffer: Buffer, offset: int, data: np.ndarray) -> None:
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self._part(buffer, offset, flat.size)[:] = flat

    def copy_out(self, buffer: Buffer, offset: int, nbytes: int) -> np.ndarray:
        return self._part(buffer, offset, nbytes).copy()

    def copy(
        self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, nbytes: int
    ) -> None:
        moved = self._part(source, source_offset, nbytes)
        self._part(target, target_offset, nbytes)[:] = moved

    def emit(self, kernel: Kernel) -> Code:
        return emit(kernel, self._limits)

    def load(self, codes: Sequence[Code]) -> Module:
        """Links the object files. Raises LaunchError naming the kernels that LLVM refused, or
        OutOfDeviceMemory where the process may map no more memory."""
        self.need_open()
        for code in codes:
            need_code(code, "llvm", self._limits, any_subgroup=True)
        names = [symbol(c.key) for c in codes]
        unique = {n: _object(c) for n, c in zip(names, codes, strict=True)}
        _need_mappings(len(unique), mappings())
        try:
            loaded = _linked(tuple(unique.values()), tuple(unique))
        except RuntimeError as e:
            kernels = ", ".join(c.name for c in codes)
            raise LaunchError(f"the object files of {kernels} can't be loaded: {e}") from e
        addresses = tuple(loaded.addresses[n] for n in names)
        if not all(addresses):
            raise LaunchError(f"no code was found for {codes[addresses.index(0)].name}")
        return Module(tuple(c.kernel for c in codes), addresses, loaded)

    def prepare(
        self, loaded: object, launches: Sequence[Launch], buffers: dict[str, Buffer]
    ) -> Recorded:
        """Records for the pool. Raises LaunchError, GridLimit or BindingLimit."""
        self.need_open()
        assert isinstance(loaded, Module), loaded
        own = {name: need_own(b, HostBuffer, self._limits) for name, b in buffers.items()}
        sizes = {name: b.nbytes for name, b in own.items()}
        for launch in launches:
            check_launch(launch, loaded.kernels[launch.kernel], sizes, self._limits)
        must = waits(launches, loaded.kernels)
        records = aligned(RECORD_NBYTES * max(1, len(launches)))
        held: list[object] = [loaded]
        for n, launch in enumerate(launches):
            row = records[n * RECORD_NBYTES : (n + 1) * RECORD_NBYTES]
            held += _write_record(row, launch, loaded, own, must[n], self._limits.cores)
        names = launch_names(list(dict.fromkeys(loaded.kernels[x.kernel].name for x in launches)))
        used = {ref.space for x in launches for ref in x.buffers}
        live = tuple(own[name] for name in sorted(used))
        count, cores = len(launches), self._limits.cores
        return Recorded(cores, count, records, names, self, live, tuple(held))

    def close(self) -> None:
        """Buffers go with their last reference; the pool is the process's."""
        self._is_open = False


def _held_until_now(owner: object) -> None:
    """The end of an adopted buffer's memory: its owner was held by being asked for here."""


@functools.lru_cache(MOST_LINKED)
def _linked(objects: tuple[bytes, ...], names: tuple[str, ...]) -> Loaded:
    """Object files in memory, the latest shared by whoever loads the same: LLVM's linker keeps some
    kilobytes of each that it ever linked, so a program that is bound again links nothing."""
    return load_objects(objects, names)


def _need_mappings(objects: int, counted: tuple[int, int] | None) -> None:
    """LLVM ends the process where it can't map memory, so that is asked first. Raises
    OutOfDeviceMemory."""
    if counted is None:
        return
    held, most = counted
    if held + _RANGES * objects + _SPARE > most:
        raise OutOfDeviceMemory(
            f"{objects} kernels need {_RANGES * objects} mapped ranges of memory: the process has "
            f"{held} of {most} (vm.max_map_count), and {_SPARE} are left to others; let programs "
            "and sessions go, or raise the limit"
        )


def _object(code: Code) -> bytes:
    """The code's object file. Raises LaunchError."""
    found = object_file(code.binary)
    if found is None:
        raise LaunchError(f"kernel {code.name}: its object file is damaged")
    return found


def _write_record(
    row: np.ndarray,
    launch: Launch,
    module: Module,
    buffers: dict[str, HostBuffer],
    waits: bool,
    threads: int,
) -> list[object]:
    """Fills one record; what it points at has to be held on to."""
    kernel = module.kernels[launch.kernel]
    pointers = np.zeros(max(1, len(launch.buffers)), np.int64)
    for n, ref in enumerate(launch.buffers):
        pointers[n] = buffers[ref.space].bytes().ctypes.data + ref.offset
    imms = np.frombuffer(pack_immediates(kernel, launch.imms) or b"\0" * 4, np.uint8).copy()
    x, y, z = launch.grid
    groups = x * y * z
    words, halves = row.view(np.int64), row.view(np.int32)
    words[RECORD["fn"] // 8] = module.addresses[launch.kernel]
    words[RECORD["buffers"] // 8] = pointers.ctypes.data
    words[RECORD["imms"] // 8] = imms.ctypes.data
    halves[RECORD["grid"] // 4 : RECORD["grid"] // 4 + 3] = launch.grid
    halves[RECORD["waits"] // 4] = int(waits)
    words[RECORD["groups"] // 8] = groups
    words[RECORD["take"] // 8] = max(1, groups // (threads * _PARTS))
    return [pointers, imms]
