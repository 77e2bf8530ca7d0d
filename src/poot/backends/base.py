"""What a backend answers. A launch is a frozen record; bundles and other runtimes replay the same
records."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from poot.codegen.attributes import PLAIN, Attributes, TensorView
from poot.codegen.code import Code
from poot.codegen.kir.nodes import Kernel
from poot.ir.graph import TensorType
from poot.limits import DeviceLimits


@dataclass(frozen=True, slots=True)
class BufferRef:
    """Bytes [offset, offset + nbytes) of the buffer named `space`; offset is a multiple of
    limits.offset_align."""

    space: str
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Launch:
    """One dispatch: the kernel by its index in the loaded list, grid in workgroups, one buffer a
    kernel parameter, immediates in order, a buffer with a tensor in it a blob."""

    kernel: int
    grid: tuple[int, int, int]
    buffers: tuple[BufferRef, ...]
    imms: tuple[int | float, ...] = ()
    attributes: Attributes = PLAIN
    maps: tuple[tuple[BufferRef, TensorView], ...] = ()


class Buffer(Protocol):
    """Device memory. Freed with its last reference, by `Device.free` or with its device, whichever
    is first."""

    @property
    def nbytes(self) -> int: ...


class Executable(Protocol):
    """A launch list made ready: bound to buffers, run any number of times."""

    def run(self) -> None:
        """Runs the list in order and waits until it is done, or enqueues it before the next
        copy_out."""
        ...

    def timed(self) -> list[float]:
        """Runs once and gives each launch's time in microseconds (nan where the backend can't
        tell)."""
        ...

    def record(self) -> bool:
        """Makes a recording that `run` replays from here on; False where the backend has none.
        Raises CaptureUnavailable where what is installed has none."""
        ...

    @property
    def is_replay(self) -> bool:
        """Whether `run` replays a recording, with no encoding work per launch."""
        ...


@runtime_checkable
class TakesSlots(Protocol):
    """An executable whose recording can bring bytes of one buffer along with a run: no copy has to
    be enqueued before it."""

    def record_with(self, space: str) -> int:
        """As `record`, for the buffer of that name. How many bytes a run can bring; 0 where there
        is no such recording."""
        ...

    def make_room(self) -> None:
        """Returns when the next run can bring its bytes: what fails here has run nothing."""
        ...

    def run_with(self, first: int, raw: memoryview | bytes) -> None:
        """Runs the list with `raw` for the bytes from `first` on, whole words."""
        ...


class Device(Protocol):
    """One device of one backend, with its queue. Methods raise BackendError's children, with kernel
    and byte counts."""

    @property
    def limits(self) -> DeviceLimits: ...

    @property
    def description(self) -> str:
        """For people: the device's name and driver."""
        ...

    def need_open(self) -> None:
        """Raises BackendError after `close`, DeviceLost where the device is gone."""
        ...

    def allocate(self, nbytes: int, label: str) -> Buffer:
        """Zero-filled memory. Raises OutOfDeviceMemory (asked, free) or BindingLimit."""
        ...

    def free(self, buffer: Buffer) -> None: ...

    def copy_in(self, buffer: Buffer, offset: int, data: np.ndarray) -> None:
        """Writes the array's bytes; offset and size are multiples of 4. In order with runs."""
        ...

    def copy_out(self, buffer: Buffer, offset: int, nbytes: int) -> np.ndarray:
        """uint8 copy of bytes, after everything before it is done."""
        ...

    def copy(
        self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, nbytes: int
    ) -> None:
        """Device-to-device copy, in order with runs."""
        ...

    def emit(self, kernel: Kernel) -> Code:
        """Spells the kernel for this device (pure; cached by the caller)."""
        ...

    def load(self, codes: Sequence[Code]) -> object:
        """Makes code ready to launch. Raises LaunchError naming the kernel the driver refused."""
        ...

    def prepare(
        self, loaded: object, launches: Sequence[Launch], buffers: dict[str, Buffer]
    ) -> Executable:
        """Records a launch list over named buffers."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class HostMemory(Protocol):
    """A buffer that lies in the host's memory."""

    def bytes(self) -> np.ndarray:
        """All of it, u8, not copied."""
        ...


@runtime_checkable
class Together(Protocol):
    """A device whose calls cost less where several stand in one context."""

    def together(self) -> AbstractContextManager[object]: ...


@runtime_checkable
class RunsOn(Protocol):
    """An executable that can be enqueued on another stream of its device."""

    def run_on(self, stream: int) -> None:
        """Enqueues the list on that stream, launch by launch, so that a capture of it takes them
        too."""
        ...


@runtime_checkable
class Adopts(Protocol):
    """A device that works in memory which somebody else allocated for it."""

    def adopt(self, handle: object, nbytes: int, label: str, owner: object = None) -> Buffer:
        """The memory as a buffer that frees nothing: `handle` is an address (cuda, cpu), a VkBuffer
        of the device's VkDevice, or a GPUBuffer of its wgpu device. `owner` is held on to as long
        as the buffer. Raises BackendError on what can't be such memory."""
        ...


@runtime_checkable
class TakesArrays(Protocol):
    """A device that takes other libraries' arrays which lie in its memory."""

    def take(self, value: object, what: str) -> tuple[Buffer, TensorType] | None:
        """The array where it lies, in order with what its maker enqueued before; None for what is
        no array or lies elsewhere. Raises BindError on an array that can't be taken as it is."""
        ...


class SharedView(Protocol):
    """Device memory as other libraries of its device take it."""

    @property
    def __cuda_array_interface__(self) -> dict[str, object]: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __dlpack__(
        self, *, stream: int | None = None, dl_device: tuple[int, int] | None = None
    ) -> object: ...


@runtime_checkable
class SharesMemory(Protocol):
    """A device whose memory other libraries can take where it is."""

    def view(self, buffer: Buffer, offset: int, type: TensorType) -> SharedView:
        """The bytes from offset on as such an array. It holds on to the buffer; who asks for it
        says how long it is valid."""
        ...


__all__ = [
    "Adopts",
    "Attributes",
    "Buffer",
    "BufferRef",
    "Code",
    "Device",
    "Executable",
    "HostMemory",
    "Launch",
    "RunsOn",
    "SharedView",
    "SharesMemory",
    "TakesArrays",
    "TakesSlots",
    "TensorView",
    "Together",
]
