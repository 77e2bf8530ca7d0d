"""The driver through `pycuda`: a source build against a CUDA toolkit; no graphs."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

import numpy as np

from poot.backends.cuda.loader import NO_PYCUDA, drv
from poot.backends.cuda.occupancy import NAMES, Multiprocessor, resident_groups
from poot.backends.cuda.provider import (
    ATTRIBUTES,
    LOST,
    NOT_AGAIN,
    Call,
    Facts,
    Handle,
    Pinned,
    Resources,
    facts_of,
    refuse,
)
from poot.backends.launches import RESIDENT
from poot.codegen.attributes import TensorView
from poot.codegen.kir.nodes import Blob
from poot.errors import (
    BackendError,
    BackendUnavailable,
    CaptureUnavailable,
    DeviceLost,
    LaunchError,
)

# What the driver says for the results that poot tells apart (cuGetErrorString).
_WORDS = {
    "out of memory": "OUT_OF_MEMORY",
    "illegal memory access": "ILLEGAL_ADDRESS",
    "misaligned address": "MISALIGNED_ADDRESS",
    "unspecified launch failure": "LAUNCH_FAILED",
    "launch timed out": "LAUNCH_TIMEOUT",
    "illegal instruction": "ILLEGAL_INSTRUCTION",
    "operation not supported on global/shared address space": "INVALID_ADDRESS_SPACE",
    "invalid program counter": "INVALID_PC",
    "hardware stack error": "HARDWARE_STACK_ERROR",
    "device-side assert": "ASSERT",
    "uncorrectable ECC": "ECC_UNCORRECTABLE",
    "context is destroyed": "CONTEXT_IS_DESTROYED",
}
NO_GRAPHS = (
    "pycuda has no graphs, so nothing can be captured with it alone: pip install 'poot[cuda]' for "
    "cuda-bindings"
)


_NON_BLOCKING = 1  # not ordered with the default stream


def _code(text: str) -> str:
    return next((code for words, code in _WORDS.items() if words in text), "an error")


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel by its number in the driver, which holds its module: pycuda unloads a module where
    its last reference goes, and in a thread without the context it only warns."""

    name: str
    number: int


class PycudaDriver:
    """One context and stream. An adopted stream's context has to be current where poot is called,
    as pycuda itself asks.
    """

    def __init__(self, index: int, stream: object | None) -> None:
        self._lock = threading.RLock()
        self.lost = ""
        self._pid = os.getpid()
        self._is_open = False  # until there is a context and a stream to close
        self._depth = 0
        self._allocations: dict[int, object] = {}
        self._kernels: dict[int, tuple[object, object]] = {}  # module and function, by number
        self._loads = itertools.count()
        self._host: list[object] = []
        self._context: Any = None
        self._stream: Any = stream
        self._unit = _multiprocessor(index)
        if stream is None:
            device: Any = drv.Device(index)
            self._context = _retain(device, f"the primary context of device {index}")
            with self._using(f"device {index}"):
                self._stream = drv.Stream(_NON_BLOCKING)
        elif not isinstance(stream, drv.Stream):
            raise BackendError(
                "pycuda adopts its own streams alone: for another library's, pip install "
                "'poot[cuda]' for cuda-bindings"
            )
        self._is_open = True

    @contextmanager
    def _using(self, what: str, is_launch: bool = False) -> Generator[None]:
        """The context on top of this thread's stack, once for calls inside calls; pycuda's errors
        as poot's."""
        with self._lock:
            try:
                context = None if self._depth else self._context
                if context is not None:
                    context.push()
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1
                    if context is not None:
                        drv.Context.pop()
            except drv.Error as e:
                try:
                    refuse(_code(str(e)), str(e), what, is_launch=is_launch)
                except DeviceLost as lost:
                    self.lost = self.lost or lost.message
                    raise

    @property
    def has_graphs(self) -> bool:
        return False

    @property
    def can(self) -> frozenset[str]:
        """Groups that are all resident, which are counted here. pycuda launches without attributes:
        launches that may overlap run in order."""
        return frozenset() if self._unit is None else frozenset({RESIDENT})

    @property
    def is_alive(self) -> bool:
        return self._is_open and not self.lost and os.getpid() == self._pid

    @property
    def stream(self) -> int:
        return int(self._stream.handle)

    # Memory

    def memory(self) -> tuple[int, int]:
        with self._using("memory in use"):
            free, total = drv.mem_get_info()
            return int(free), int(total)

    def allocate(self, nbytes: int) -> int:
        with self._using(f"{nbytes} bytes"):
            allocation: Any = drv.mem_alloc(nbytes)
            pointer = int(allocation)
            self._allocations[pointer] = allocation
            return pointer

    def free(self, pointer: int) -> None:
        """Frees; memory of a lost or closed context is gone already."""
        allocation: Any = self._allocations.pop(pointer, None) if self.is_alive else None
        if allocation is not None:
            with self._using("freeing memory"):
                allocation.free()

    def held(self) -> AbstractContextManager[object]:
        return self._using("a step")

    def pinned(self, nbytes: int) -> Pinned:
        with self._using(f"{nbytes} bytes of host memory"):
            made: np.ndarray = drv.pagelocked_empty(nbytes, np.uint8)
        self._host.append(made)
        address = made.ctypes.data
        view = (ctypes.c_uint8 * nbytes).from_address(address)
        return Pinned(np.ctypeslib.as_array(view), address)

    def zero(self, pointer: int, nbytes: int) -> None:
        with self._using("zeroing memory"):
            drv.memset_d8_async(pointer, 0, nbytes, self._stream)

    def copy_in(self, pointer: int, source: np.ndarray) -> None:
        with self._using("a copy in"):
            drv.memcpy_htod_async(pointer, source, self._stream)

    def copy_out(self, target: np.ndarray, pointer: int) -> None:
        with self._using("a copy out"):
            drv.memcpy_dtoh_async(target, pointer, self._stream)

    def send(self, pointer: int, source: Pinned, first: int, nbytes: int) -> None:
        self.copy_in(pointer, source.array[first : first + nbytes])

    def fetch(self, target: Pinned, pointer: int, nbytes: int) -> None:
        self.copy_out(target.array[:nbytes], pointer)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        with self._using("a copy"):
            drv.memcpy_dtod_async(target, source, nbytes, self._stream)

    def synchronize(self) -> None:
        with self._using("waiting for the stream"):
            self._stream.synchronize()

    def follow(self, stream: int) -> None:
        """pycuda can't make another library's stream wait, so the host does."""
        self.synchronize()

    def wait_for(self, stream: int) -> None:
        """As `follow`: the host waits, for all of the context."""
        with self._using("waiting for another stream"):
            drv.Context.synchronize()

    # Kernels

    def load(self, image: bytes, name: str, dynamic_nbytes: int) -> Function:
        said: list[str] = []

        def heard(success: bool, info: str, errors: str) -> None:
            said.append(str(errors))

        with self._using(f"kernel {name}", True):
            try:
                module: Any = drv.module_from_buffer(image, [], heard)
            except drv.Error as e:
                if _code(str(e)) in LOST:
                    raise
                words = " ".join((str(e), *said)).strip()
                text = f"kernel {name}: the driver took no such module: {words}"
                raise LaunchError(text) from e
            handle: Any = module.get_function(name)
            if dynamic_nbytes:
                most = drv.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
                handle.set_attribute(most, dynamic_nbytes)
        number = next(self._loads)
        self._kernels[number] = module, handle
        return Function(name, number)

    def unload(self, function: Handle) -> None:
        assert isinstance(function, Function)
        if self.is_alive:
            with self._using(f"kernel {function.name}"):
                self._kernels.pop(function.number, None)

    def resources(self, function: Handle, threads: int, dynamic_nbytes: int) -> Resources:
        """As the driver says, but for the groups resident: these are counted here (`occupancy`),
        and 0 where the build of pycuda doesn't know what that takes."""
        assert isinstance(function, Function)
        handle: Any = self._kernels[function.number][1]
        kinds: Any = drv.function_attribute
        which = (kinds.NUM_REGS, kinds.SHARED_SIZE_BYTES, kinds.LOCAL_SIZE_BYTES)
        with self._using(f"kernel {function.name}"):
            registers, shared, local = (int(handle.get_attribute(w)) for w in which)
        nbytes, unit = shared + dynamic_nbytes, self._unit
        groups = 0 if unit is None else resident_groups(unit, threads, registers, nbytes)
        return Resources(registers, nbytes, local, groups)

    def tensor_map(self, pointer: int, view: TensorView, blob: Blob) -> bytes:
        raise LaunchError(f"{blob.name}: pycuda makes no tensor maps: pip install 'poot[cuda]'")

    def bind(self, calls: Sequence[Call]) -> tuple[Call, ...]:
        return tuple(calls)

    def _launch(self, call: Call) -> None:
        assert isinstance(call.function, Function)
        handle: Any = self._kernels[call.function.number][1]
        block = (call.threads, 1, 1)
        handle._launch_kernel(call.grid, block, call.arguments, call.dynamic_nbytes, self._stream)

    def launch(self, bound: Handle, is_checked: bool) -> None:
        for call in _calls(bound):
            with self._using(f"kernel {call.name}", True):
                self._launch(call)
                if is_checked:
                    self._stream.synchronize()

    def launch_on(self, bound: Handle, stream: int) -> None:
        raise BackendError(
            "pycuda enqueues on its own streams alone: for another library's, pip install "
            "'poot[cuda]' for cuda-bindings"
        )

    def timed(self, bound: Handle) -> list[float]:
        calls = _calls(bound)
        with self._using("timed launches", True):
            events: list[Any] = [drv.Event() for _ in range(len(calls) + 1)]
            events[0].record(self._stream)
            for call, event in zip(calls, events[1:], strict=True):
                self._launch(call)
                event.record(self._stream)
            self._stream.synchronize()
            pairs = pairwise(events)
            return [1000.0 * float(b.time_since(a)) for a, b in pairs]

    def record(self, bound: Handle) -> Handle:
        raise CaptureUnavailable(NO_GRAPHS)

    def replay(self, graph: Handle) -> None:
        raise CaptureUnavailable(NO_GRAPHS)

    def release(self, graph: Handle) -> None:
        raise CaptureUnavailable(NO_GRAPHS)

    def close(self) -> None:
        """Frees in the context what pycuda would free anywhere, and lets the primary context go
        with its last reference; a lost one at once, so that the device can be opened again.
        """
        if not self._is_open or os.getpid() != self._pid:
            return
        with suppress(BackendError if self.lost else DeviceLost), self._using("closing"):
            if not self.lost:
                with suppress(DeviceLost):  # `lost` says so
                    self.synchronize()
            self._kernels.clear()
            self._allocations.clear()
            self._host.clear()
            self._stream = None
        self._is_open = False
        if self.lost and self._context is not None:
            self._context.detach()

    def __del__(self) -> None:
        with suppress(BackendError):
            self.close()


def _multiprocessor(index: int) -> Multiprocessor | None:
    """What one has; None where pycuda was built against a toolkit that doesn't name all of it."""
    device: Any = drv.Device(index)
    kinds = [getattr(drv.device_attribute, name, None) for name in NAMES]
    if None in kinds:
        return None
    return Multiprocessor(*(int(device.get_attribute(kind)) for kind in kinds))


def _retain(device: object, what: str) -> object:
    """The primary context. Raises DeviceLost where an earlier loss leaves the process without."""
    try:
        made: object = drv.Device.retain_primary_context(device)
        return made
    except drv.Error as e:
        code = _code(str(e))
        if code in LOST:
            raise DeviceLost(f"{what}: {e}; {NOT_AGAIN}") from e
        refuse(code, str(e), what)


def _calls(bound: Handle) -> tuple[Call, ...]:
    assert isinstance(bound, tuple)
    return cast("tuple[Call, ...]", bound)  # what `bind` returned


class PycudaProvider:
    """Devices through `pycuda.driver`."""

    @property
    def name(self) -> str:
        return "pycuda"

    def facts(self) -> list[Facts]:
        _initialise()
        version = int(drv.get_driver_version())
        rows: list[Facts] = []
        for index in range(int(drv.Device.count())):
            device: Any = drv.Device(index)
            kinds: Any = drv.device_attribute
            values = [int(device.get_attribute(getattr(kinds, name))) for name in ATTRIBUTES]
            total = int(device.total_memory())
            made = facts_of(str(device.name()), total, values, version, "pycuda")
            counts = _multiprocessor(index) is not None
            limits = replace(made.limits, counts_residents=counts, has_tensor_maps=False)
            rows.append(replace(made, limits=limits))
        return rows

    def open(self, index: int, stream: object | None) -> PycudaDriver:
        _initialise()
        return PycudaDriver(index, stream)


def _initialise() -> None:
    """Starts the driver. Raises BackendUnavailable with what is missing."""
    if NO_PYCUDA:
        raise BackendUnavailable(NO_PYCUDA)
    try:
        drv.init()
    except drv.Error as e:
        raise BackendUnavailable(f"there is no NVIDIA driver: {e}") from e
