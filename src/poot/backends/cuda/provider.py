"""What poot asks of a CUDA driver: the protocol that both providers answer, and driver errors as
typed ones.

Pointers and stream handles are ints. Everything of a `Driver` runs in its own context and on its
own stream, in order, and may be called from any thread, one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NoReturn, Protocol

import numpy as np

from poot.codegen.attributes import PLAIN, Attributes, TensorView
from poot.codegen.kir.nodes import Blob
from poot.errors import BackendError, DeviceLost, LaunchError, OutOfDeviceMemory
from poot.limits import DeviceLimits

Handle = object

# Results after which a context answers nothing else (CUDA Driver API, CUresult).
LOST = {
    "ILLEGAL_ADDRESS": "an access outside of every allocation",
    "MISALIGNED_ADDRESS": "an access at an address that is no multiple of its size",
    "LAUNCH_FAILED": "a kernel failed",
    "LAUNCH_TIMEOUT": "a kernel ran longer than the driver allows",
    "ILLEGAL_INSTRUCTION": "an instruction that the device doesn't have",
    "INVALID_ADDRESS_SPACE": "an access to another kind of memory than the instruction says",
    "INVALID_PC": "a jump outside of the code",
    "HARDWARE_STACK_ERROR": "the device's call stack is broken",
    "ASSERT": "an assertion in a kernel failed",
    "ECC_UNCORRECTABLE": "memory held bits that can't be mended",
    "CONTEXT_IS_DESTROYED": "its owner destroyed the context",
    "MPS_CLIENT_TERMINATED": "the process that shares the device was ended",
}
USABLE = (
    "what is still usable: host arrays, traced and compiled programs, devices of other kinds. "
    "Every session and array of this context is gone. Go on in a new process: drivers give this "
    "one no context of the card again"
)
NOT_AGAIN = (
    "the driver gives this process no context after the one that was lost: end the process and "
    "start it again"
)


@dataclass(frozen=True, slots=True)
class Facts:
    """One device: for people, and as limits."""

    description: str
    limits: DeviceLimits


@dataclass(frozen=True, slots=True)
class Call:
    """One launch, ready for the driver. `arguments` are the parameters' bytes, each at the offset
    in `offsets`; `dynamic_nbytes` is the workgroup memory that the launch asks for.
    """

    name: str
    function: Handle
    grid: tuple[int, int, int]
    threads: int
    dynamic_nbytes: int
    arguments: bytes
    offsets: tuple[int, ...]
    attributes: Attributes = PLAIN


@dataclass(frozen=True, slots=True)
class Resources:
    """What a loaded kernel takes: registers a lane, workgroup and spilled (local) bytes, groups
    resident on a multiprocessor.
    """

    registers: int
    shared_nbytes: int
    local_nbytes: int
    resident: int


@dataclass(frozen=True, slots=True, eq=False)
class Pinned:
    """Page-locked host bytes with their address, freed with the array."""

    array: np.ndarray
    address: int


class Driver(Protocol):
    """One context of one device with one stream. Raises BackendErrors."""

    @property
    def has_graphs(self) -> bool: ...
    @property
    def can(self) -> frozenset[str]:
        """What launches may ask for, as `backends.launches.check_launch` names it."""
        ...

    @property
    def lost(self) -> str:
        """The message of the first call that found the context lost, whoever made it; empty while
        none has."""
        ...

    @property
    def is_alive(self) -> bool:
        """Whether it is neither closed nor lost, and this is the process that opened it."""
        ...

    @property
    def stream(self) -> int:
        """The stream's handle."""
        ...

    def memory(self) -> tuple[int, int]:
        """Bytes free and in all."""
        ...

    def allocate(self, nbytes: int) -> int: ...
    def free(self, pointer: int) -> None: ...
    def pinned(self, nbytes: int) -> Pinned: ...
    def held(self) -> AbstractContextManager[object]:
        """The driver's context current in this thread, for several calls: each of them alone makes
        it so too."""
        ...

    def zero(self, pointer: int, nbytes: int) -> None: ...
    def copy_in(self, pointer: int, source: np.ndarray) -> None:
        """Enqueues a copy of contiguous bytes; from pageable memory they are read before this
        returns.
        """
        ...

    def copy_out(self, target: np.ndarray, pointer: int) -> None: ...
    def send(self, pointer: int, source: Pinned, first: int, nbytes: int) -> None:
        """Enqueues a copy of the pinned bytes from `first` on; they are read later."""
        ...

    def fetch(self, target: Pinned, pointer: int, nbytes: int) -> None:
        """Enqueues a copy to the first pinned bytes."""
        ...

    def copy(self, target: int, source: int, nbytes: int) -> None: ...
    def synchronize(self) -> None: ...
    def follow(self, stream: int) -> None:
        """What another stream does next waits for what is enqueued here."""
        ...

    def wait_for(self, stream: int) -> None:
        """What this stream does next waits for what is enqueued on another."""
        ...

    def load(self, image: bytes, name: str, dynamic_nbytes: int) -> Handle:
        """The entry point of a module. Raises LaunchError with the assembler's words."""
        ...

    def unload(self, function: Handle) -> None: ...
    def resources(self, function: Handle, threads: int, dynamic_nbytes: int) -> Resources: ...
    def tensor_map(self, pointer: int, view: TensorView, blob: Blob) -> bytes:
        """The bytes of a tensor map of the kernel's blob over the tensor at that address. Raises
        LaunchError."""
        ...

    def bind(self, calls: Sequence[Call]) -> Handle:
        """A launch list with its arguments laid out, to launch any number of times."""
        ...

    def launch(self, bound: Handle, is_checked: bool) -> None:
        """Enqueues the list; `is_checked` waits after each launch, so that a failure has its
        kernel's name.
        """
        ...

    def launch_on(self, bound: Handle, stream: int) -> None:
        """Enqueues the list on another stream of the context. Raises BackendError where the
        provider takes no handles."""
        ...

    def timed(self, bound: Handle) -> list[float]:
        """Runs the list once; microseconds of each launch."""
        ...

    def record(self, bound: Handle) -> Handle:
        """The list as an executable graph. Raises CaptureUnavailable."""
        ...

    def replay(self, graph: Handle) -> None: ...
    def release(self, graph: Handle) -> None: ...
    def close(self) -> None:
        """Gives back all that it made, what is still held among it; nothing where it isn't alive
        but a lost primary context."""
        ...


class Provider(Protocol):
    """A library that reaches the driver."""

    @property
    def name(self) -> str: ...
    def facts(self) -> list[Facts]:
        """Every device. Raises BackendUnavailable."""
        ...

    def open(self, index: int, stream: object | None) -> Driver:
        """The device's primary context with a stream of its own, or the caller's stream in its
        context: a pycuda or torch stream, a handle, or anything with `__cuda_stream__`.
        """
        ...


def refuse(code: str, words: str, what: str, *, is_launch: bool = False) -> NoReturn:
    """Raises the typed error of a driver result: `code` is its name without CUDA_ERROR_, `words`
    the driver's description, `what` what was asked.
    """
    if code == "OUT_OF_MEMORY":
        raise OutOfDeviceMemory(f"{what}: the driver has no memory for it")
    if code in LOST:
        raise DeviceLost(f"{what}: {LOST[code]} ({words}); the context is lost. {USABLE}")
    kind = LaunchError if is_launch else BackendError
    raise kind(f"{what}: the driver says {code}, {words}")


def stream_handle(stream: object) -> int:
    """The handle of a stream: an int, a torch stream (`cuda_stream`), a pycuda one (`handle`), or
    what `__cuda_stream__` says. Raises BackendError.
    """
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    answer = getattr(stream, "__cuda_stream__", None)
    if answer is not None:
        pair = answer() if callable(answer) else answer
        match pair:
            case (0, int(handle)):
                return handle
            case _:
                raise BackendError(f"__cuda_stream__ needs (0, handle): got {pair!r}")
    for name in ("cuda_stream", "handle", "ptr"):
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return handle
    raise BackendError(
        f"a stream needs to be a handle, a pycuda or torch stream, or have __cuda_stream__: got "
        f"{type(stream).__name__}"
    )


# Names of what a device is asked for (CUDA Driver API, CUdevice_attribute, less their prefix).
ATTRIBUTES = (
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", "MAX_THREADS_PER_BLOCK", "MAX_GRID_DIM_X",
    "MAX_GRID_DIM_Y", "MAX_GRID_DIM_Z", "MULTIPROCESSOR_COUNT", "COMPUTE_CAPABILITY_MAJOR",
    "COMPUTE_CAPABILITY_MINOR",
)  # fmt: skip


def facts_of(name: str, total: int, values: Sequence[int], version: int, provider: str) -> Facts:
    """A device's facts; `version` is the driver's, as 1000 * major + 10 * minor of CUDA."""
    cuda = f"{version // 1000}.{version % 1000 // 10}"
    return Facts(f"{name}, CUDA {cuda}, {provider}", limits_of(name, total, values))


def limits_of(name: str, total: int, values: Sequence[int]) -> DeviceLimits:
    """Limits from a device's name, bytes of memory and attributes, in the order of ATTRIBUTES.

    Architectures after sm_90 run sm_90's code, which the driver translates."""
    shared, threads, x, y, z, units, major, minor = values
    arch = f"sm_{major}{minor}" if major < 9 else "sm_90a" if (major, minor) == (9, 0) else "sm_90"
    return DeviceLimits(
        name,
        "ptx",
        workgroup_nbytes=shared,
        threads=threads,
        grid=(x, y, z),
        compute_units=units,
        subgroup=32,
        buffer_nbytes=total,
        binding_nbytes=total,
        storage_buffers=64,
        memory_nbytes=total,
        offset_align=256,
        has_f16_storage=True,
        has_i64=True,
        has_matrix_units=True,
        has_async_copy=True,
        arch=arch,
        counts_residents=True,
        has_tensor_maps=major >= 9,
    )
