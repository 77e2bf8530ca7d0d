"""A CUDA device as `backends.base.Device`: buffers, kernels, launch lists that become graphs."""

from __future__ import annotations

import math
import os
import struct
import threading
import weakref
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType

import numpy as np

from poot.backends.base import Buffer, BufferRef, Code, Launch
from poot.backends.cuda.array import CudaView
from poot.backends.cuda.buffers import (
    STAGED_NBYTES,
    Closing,
    CudaBuffer,
    Loaded,
    Memory,
    Staging,
    close_quietly,
)
from poot.backends.cuda.executable import CudaExecutable, Parts
from poot.backends.cuda.provider import Call, Driver, Facts, Handle, Resources
from poot.backends.cuda.slot_ring import NAME as TAKE_SLOTS
from poot.backends.cuda.slot_ring import take_text
from poot.backends.cuda.taken import foreign
from poot.backends.launches import check_launch, padded
from poot.backends.owned import (
    need_adoptable,
    need_code,
    need_open,
    need_own,
    need_words,
    refuse_too_much,
)
from poot.codegen.emitters import emit
from poot.codegen.kir.nodes import Kernel
from poot.codegen.ptx.memory import dynamic_nbytes
from poot.errors import (
    BackendError,
    BindError,
    DeviceLost,
    GridLimit,
    LaunchError,
    OutOfDeviceMemory,
)
from poot.ir.graph import TensorType
from poot.limits import DeviceLimits

_U8 = np.dtype(np.uint8)
# Arrays of other libraries that copies were enqueued from, before one waits for them.
_MOST_READ = 64


class Guard:
    """Adds to a lost device's error which launches it may have been."""

    def __init__(self, device: CudaDevice, names: tuple[str, ...]) -> None:
        self._device, self._names = device, names

    def __enter__(self) -> None:
        self._device.need_open()
        if self._names:
            self._device.pending = self._names

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, DeviceLost):
            raise DeviceLost(error.message + self._device.during()) from error


class Together:
    """The device's lock and, inside it, the driver's context: in this order in every call, so that
    of two threads neither waits for the other."""

    __slots__ = ("_held", "_lock")

    def __init__(self, lock: threading.RLock, held: AbstractContextManager[object]) -> None:
        self._lock, self._held = lock, held

    def __enter__(self) -> None:
        self._lock.acquire()
        try:
            self._held.__enter__()
        except BaseException:
            self._lock.release()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._held.__exit__(kind, error, trace)
        finally:
            self._lock.release()


class CudaDevice:
    """One opening of a device: a context, a stream. Methods may be called from any thread.

    `is_checked` waits after each direct launch, so that a failing kernel is named. `close`, or
    the last reference, frees what this opening allocated."""

    def __init__(
        self, driver: Driver, facts: Facts, is_checked: bool = False, index: int = 0
    ) -> None:
        self.driver = driver
        self.index = index
        self.is_checked = is_checked
        self.pending: tuple[str, ...] = ()
        self.frees = 0  # how often a buffer was freed by hand
        self._facts = facts
        self._lock = threading.RLock()
        self._buffers: weakref.WeakSet[CudaBuffer] = weakref.WeakSet()
        self._memories: weakref.WeakSet[Memory] = weakref.WeakSet()
        self._is_open = True
        self._pid = os.getpid()
        self._taker: Handle = None
        self._plain = Guard(self, ())
        self._read: list[object] = []
        self._ending = weakref.finalize(self, close_quietly, driver)
        try:
            self._staging = Staging(driver)
        except BackendError:
            self._ending()
            raise

    @property
    def limits(self) -> DeviceLimits:
        return self._facts.limits

    @property
    def description(self) -> str:
        return self._facts.description

    @property
    def stream(self) -> int:
        """The handle of the stream that everything runs on."""
        return self.driver.stream

    def guarded(self, names: tuple[str, ...] = ()) -> Guard:
        return Guard(self, names) if names else self._plain

    def together(self) -> AbstractContextManager[object]:
        """A context for several calls in a row, cheaper than each by itself."""
        return Together(self._lock, self.driver.held())

    @property
    def lost(self) -> str:
        """What the driver said where the device is lost; empty while it isn't."""
        return self.driver.lost

    def during(self) -> str:
        """For the message of a loss: the launches that it may have been."""
        names = self.pending
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return f"; the launches since were of {', '.join(names[:3])}{more}" if names else ""

    def need_open(self) -> None:
        """Raises DeviceLost, or BackendError where this opening was closed."""
        if self.lost:
            raise DeviceLost(f"{self.limits.name} was lost before: {self.lost}")
        need_open(self._is_open, self.limits, self._pid)

    def _own(self, buffer: Buffer) -> CudaBuffer:
        return need_own(buffer, CudaBuffer, self.limits)

    # Memory

    def allocate(self, nbytes: int, label: str) -> CudaBuffer:
        """Zero-filled. Raises OutOfDeviceMemory (asked, free) or BindingLimit."""
        limits = self.limits
        with self._lock, self.guarded():
            refuse_too_much(nbytes, label, limits, lambda: f"{self.driver.memory()[0]} of it free")
            try:
                pointer = self.driver.allocate(padded(nbytes))
            except OutOfDeviceMemory as e:
                free, total = self.driver.memory()
                raise OutOfDeviceMemory(
                    f"{label} asks {nbytes} bytes: {limits.name} has {free} of {total} free"
                ) from e
            memory = Memory(self.driver, pointer)
            buffer = CudaBuffer(memory, pointer, nbytes, label)
            self._memories.add(memory)
            self._buffers.add(buffer)
            self.driver.zero(pointer, padded(nbytes))
            return buffer

    def adopt(self, handle: object, nbytes: int, label: str, owner: object = None) -> CudaBuffer:
        """Memory of the context at an address, which the caller orders with this device's stream.
        Raises BackendError."""
        self.need_open()
        return CudaBuffer(owner, need_adoptable(handle, nbytes, label), nbytes, label)

    def take(self, value: object, what: str) -> tuple[CudaBuffer, TensorType] | None:
        """Another library's array of this card's memory, where it lies: this stream waits for what
        its maker enqueued. None for what is no such array. Raises BindError."""
        self.need_open()
        found = foreign(value, self.index, self.stream, what)
        if found is None:
            return None
        if found.stream is not None:
            with self._lock, self.guarded():
                self.driver.wait_for(found.stream)
        nbytes = found.type.nbytes
        if nbytes % 4 or found.pointer % 4:
            raise BindError(
                f"{what} needs whole words to be taken where it lies: it has {nbytes} bytes at "
                f"{found.pointer:#x}; hand it over as numpy"
            )
        return CudaBuffer(found.hold, found.pointer, nbytes, what), found.type

    def free(self, buffer: Buffer) -> None:
        """Ends the buffer. Raises DeviceLost where the driver says now that the device is lost."""
        if isinstance(buffer, CudaBuffer):
            with self._lock, self._told():
                self.frees += 1
                buffer.free()

    @contextmanager
    def _told(self) -> Generator[None]:
        """Raises the loss of the device that came out inside."""
        before = self.lost
        yield
        if self.lost and not before:
            raise DeviceLost(self.lost + self.during())

    def copy_in(self, buffer: Buffer, offset: int, data: np.ndarray) -> None:
        raw = data
        if data.dtype != _U8 or data.ndim != 1 or not data.flags.c_contiguous:
            raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        nbytes = raw.size
        own = self._range(buffer, offset, nbytes)
        if not nbytes:
            return
        with self._lock, self.guarded():
            if nbytes <= STAGED_NBYTES:
                at = self._staging.place(raw.data)
                self.driver.send(own.pointer + offset, self._staging.ring, at, nbytes)
            else:
                self.driver.copy_in(own.pointer + offset, raw)

    def copy_out(self, buffer: Buffer, offset: int, nbytes: int) -> np.ndarray:
        own = self._range(buffer, offset, nbytes)
        out = np.empty(nbytes, np.uint8)
        if nbytes:
            with self._lock, self.guarded():
                staged = nbytes <= STAGED_NBYTES
                if staged:
                    self.driver.fetch(self._staging.out, own.pointer + offset, nbytes)
                else:
                    self.driver.copy_out(out, own.pointer + offset)
                self.driver.synchronize()
                self._read.clear()
                if staged:
                    out[:] = self._staging.out.array[:nbytes]
        return out

    def copy(
        self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, nbytes: int
    ) -> None:
        one = self._range(source, source_offset, nbytes)
        other = self._range(target, target_offset, nbytes)
        if nbytes:
            with self._lock, self.guarded():
                start, end = one.pointer + source_offset, other.pointer + target_offset
                self.driver.copy(end, start, nbytes)
                self._hold_for_now(one.memory)

    def _hold_for_now(self, memory: object) -> None:
        """Keeps what an enqueued copy reads and somebody else could free, until the stream was
        waited for; the caller holds the lock."""
        if memory is None or isinstance(memory, Memory):
            return
        self._read.append(memory)
        if len(self._read) >= _MOST_READ:
            self.driver.synchronize()
            self._read.clear()

    def _range(self, buffer: Buffer, offset: int, nbytes: int) -> CudaBuffer:
        self.need_open()
        return need_words(buffer, CudaBuffer, self.limits, offset, nbytes)

    def view(self, buffer: Buffer, offset: int, type: TensorType) -> CudaView:
        """The bytes as an array with DLPack and `__cuda_array_interface__`."""
        return CudaView(self, self._own(buffer), offset, type)

    def follow(self, stream: int) -> None:
        """What the other stream does next waits for what is enqueued here."""
        with self._lock, self.guarded():
            self.driver.follow(stream)

    def synchronize(self) -> None:
        """Returns when everything enqueued is done."""
        with self._lock, self.guarded():
            self.driver.synchronize()
            self._read.clear()

    # Kernels

    def emit(self, kernel: Kernel) -> Code:
        return emit(kernel, self.limits)

    def load(self, codes: Sequence[Code]) -> Loaded:
        """Modules. Raises LaunchError naming the kernel the driver refused, with its words."""
        made: list[Handle] = []
        with self._lock, self.guarded():
            try:
                for code in codes:
                    need_code(code, "ptx", self.limits)
                    extra = dynamic_nbytes(code.kernel)
                    made.append(self.driver.load(code.binary, code.kernel.name, extra))
            except BackendError:
                for function in made:
                    self.driver.unload(function)
                raise
        return Loaded(self.driver, tuple(c.kernel for c in codes), made)

    def taker(self) -> Handle:
        """The kernel that brings slots along with a graph, loaded with the first that asks."""
        if self._taker is None:
            image = take_text(self.limits.arch).encode() + b"\0"
            with self._lock, self.guarded():
                self._taker = self.driver.load(image, TAKE_SLOTS, 0)
        return self._taker

    def resources(self, loaded: object) -> list[Resources]:
        """Registers, workgroup and spilled bytes, and groups resident of each loaded kernel."""
        assert isinstance(loaded, Loaded), "what this backend's load returned"
        pairs = zip(loaded.kernels, loaded.functions, strict=True)
        with self._lock, self.guarded():
            return [self.driver.resources(f, k.threads, dynamic_nbytes(k)) for k, f in pairs]

    def prepare(
        self, loaded: object, launches: Sequence[Launch], buffers: dict[str, Buffer]
    ) -> CudaExecutable:
        """Lays the list's arguments out. Raises LaunchError, GridLimit or BindingLimit, naming the
        kernel. A launch without groups is left out."""
        self.need_open()
        assert isinstance(loaded, Loaded), "what this backend's load returned"
        own = {name: self._own(buffer) for name, buffer in buffers.items()}
        sizes = {name: buffer.nbytes for name, buffer in own.items()}
        calls: list[Call] = []
        for launch in launches:
            kernel = loaded.kernels[launch.kernel]
            check_launch(launch, kernel, sizes, self.limits, self.driver.can)
            if launch.attributes.is_resident:
                self._check_resident(loaded, launch)
            if all(launch.grid):
                calls.append(self._call(loaded, launch, own))
        used = {ref.space for launch in launches for ref in launch.buffers}
        names = tuple(dict.fromkeys(call.name for call in calls))
        parts = Parts(loaded, {name: own[name] for name in sorted(used)}, names)
        return CudaExecutable(self, calls, parts)

    def _check_resident(self, loaded: Loaded, launch: Launch) -> None:
        """Raises GridLimit where not all groups of the launch are resident at once."""
        kernel, function = loaded.kernels[launch.kernel], loaded.functions[launch.kernel]
        with self._lock, self.guarded():
            row = self.driver.resources(function, kernel.threads, dynamic_nbytes(kernel))
        asked, most = math.prod(launch.grid), row.resident * self.limits.compute_units
        if asked > most:
            raise GridLimit(
                f"kernel {kernel.name} asks {asked} groups that are resident all at once: "
                f"{self.limits.name} holds {row.resident} on each of its "
                f"{self.limits.compute_units} multiprocessors"
            )

    def _call(self, loaded: Loaded, launch: Launch, own: dict[str, CudaBuffer]) -> Call:
        kernel = loaded.kernels[launch.kernel]
        with self._lock, self.guarded():
            maps = [
                self.driver.tensor_map(_at(ref, own), view, blob)
                for blob, (ref, view) in zip(kernel.blobs, launch.maps, strict=True)
            ]
        pointers = [_at(ref, own) for ref in launch.buffers]
        arguments, offsets = pack_arguments(kernel, launch.imms, pointers, maps)
        return Call(
            kernel.name,
            loaded.functions[launch.kernel],
            launch.grid,
            kernel.threads,
            dynamic_nbytes(kernel),
            arguments,
            offsets,
            launch.attributes,
        )

    def close(self) -> None:
        """Frees this opening's buffers and gives the context back; where arrays of other libraries
        lie in its memory, with the last of them. Raises DeviceLost where it comes out now that the
        device is lost: all is closed then too."""
        with self._lock:
            if not self._is_open:
                return
            self._is_open = False
            self.frees += 1
            self._ending.detach()
            with self._told():
                for buffer in list(self._buffers):
                    buffer.free()
                lent = list(self._memories)
                if not lent:
                    self.driver.close()
            closing = Closing(self.driver) if lent else None
            for memory in lent:
                memory.after = closing


def _at(ref: BufferRef, own: dict[str, CudaBuffer]) -> int:
    return own[ref.space].pointer + ref.offset


def pack_arguments(
    kernel: Kernel,
    imms: Sequence[int | float],
    pointers: Sequence[int],
    maps: Sequence[bytes] = (),
) -> tuple[bytes, tuple[int, ...]]:
    """The parameters' bytes as the entry declares them, and where each starts; `maps` are the
    blobs' bytes. Raises LaunchError on an immediate that its dtype can't hold.
    """
    raw = struct.pack(f"<{len(pointers)}Q", *pointers)
    letters = {"i32": "i", "u32": "I", "f32": "f"}
    try:
        raw += struct.pack("<" + "".join(letters[i.dtype] for i in kernel.imms), *imms)
    except struct.error as e:
        raise LaunchError(f"kernel {kernel.name} immediates {tuple(imms)}: {e}") from e
    first = 8 * len(pointers)
    offsets = [8 * n for n in range(len(pointers))] + [first + 4 * n for n in range(len(imms))]
    for blob, held in zip(kernel.blobs, maps, strict=True):
        raw += b"\0" * (-len(raw) % blob.align)
        offsets.append(len(raw))
        raw += held
    return raw, tuple(offsets)
