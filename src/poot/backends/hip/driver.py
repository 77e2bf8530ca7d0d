"""The calls of HIP's runtime that poot makes, each returned tuple checked.

`rocm.bindings` has no types, so that `HipApi` is its face. A call returns a tuple that begins with
the status; one other than success is an error of poot's with what was being done. Handles are the
bindings' own objects, addresses are ints.
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import cast

import numpy as np

from poot.backends.hip.loader import MISSING, hip
from poot.backends.hip.properties import Facts, Properties, facts_of
from poot.errors import BackendError, BackendUnavailable, DeviceLost, OutOfDeviceMemory

# Statuses after which the device's context answers nothing any more.
_LOST = (
    "hipErrorIllegalAddress",
    "hipErrorLaunchFailure",
    "hipErrorLaunchTimeOut",
    "hipErrorECCNotCorrectable",
    "hipErrorAssert",
    "hipErrorIllegalState",
    "hipErrorContextIsDestroyed",
    "hipErrorDeinitialized",
)
_INSTALL = "install ROCm 6 or newer and an AMD GPU's driver"
_NON_BLOCKING = 1  # hipStreamNonBlocking


def _results(what: str, answer: object) -> tuple[object, ...]:
    """What a call returned besides success. Raises DeviceLost, OutOfDeviceMemory, BackendError."""
    parts = cast("tuple[object, ...]", answer if isinstance(answer, tuple) else (answer,))
    status = parts[0]
    if status == hip.hipError_t.hipSuccess:
        return parts[1:]
    name = str(getattr(status, "name", status))
    if name in _LOST:
        raise DeviceLost(
            f"{what}: {name}; the device's context is lost: open the device again in a new process"
        )
    if name in ("hipErrorOutOfMemory", "hipErrorMemoryAllocation"):
        raise OutOfDeviceMemory(f"{what}: {name}")
    raise BackendError(f"{what}: {name}")


def _start() -> int:
    """Starts the runtime; how many devices it has. Raises BackendUnavailable."""
    if MISSING:
        raise BackendUnavailable(MISSING)
    try:
        _results("hipInit", hip.hipInit(0))
        (count,) = _results("hipGetDeviceCount", hip.hipGetDeviceCount())
    except RuntimeError as e:
        raise BackendUnavailable(f"the HIP runtime is not there ({e}): {_INSTALL}") from e
    except BackendError as e:
        raise BackendUnavailable(f"the HIP runtime finds no GPU ({e.message}): {_INSTALL}") from e
    if not count:
        raise BackendUnavailable(f"the HIP runtime finds no GPU: {_INSTALL}")
    return cast("int", count)  # the bindings' type of a count


@contextmanager
def _unavailable() -> Generator[None]:
    """Of what finds and opens a device: any refusal is BackendUnavailable."""
    try:
        yield
    except BackendUnavailable:
        raise
    except (BackendError, RuntimeError) as e:
        said = e.message if isinstance(e, BackendError) else str(e)
        raise BackendUnavailable(f"the HIP runtime opens no GPU ({said}): {_INSTALL}") from e


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _properties(index: int) -> Properties:
    (p,) = _results("hipGetDeviceProperties", hip.hipGetDeviceProperties(index))

    def number(name: str) -> int:
        return int(getattr(p, name))

    grid = [int(n) for n in getattr(p, "maxGridSize", ())]
    return Properties(
        name=_text(getattr(p, "name", "AMD GPU")),
        arch=_text(getattr(p, "gcnArchName", "")),
        wave=number("warpSize"),
        threads=number("maxThreadsPerBlock"),
        grid=(grid[0], grid[1], grid[2]),
        compute_units=number("multiProcessorCount"),
        workgroup_nbytes=number("sharedMemPerBlock"),
        memory_nbytes=number("totalGlobalMem"),
    )


def device_facts() -> list[Facts]:
    """Every device of the runtime. Raises BackendUnavailable with what to install."""
    count = _start()
    with _unavailable():
        (version,) = _results("hipRuntimeGetVersion", hip.hipRuntimeGetVersion())
        number = cast("int", version)  # major * 10^7 + minor * 10^5 + patch
        words = f"{number // 10_000_000}.{number // 100_000 % 100}"
        return [facts_of(index, _properties(index), words) for index in range(count)]


def connect(index: int) -> HipApi:
    """The runtime's calls on a device. Raises BackendUnavailable."""
    _start()
    with _unavailable():
        return HipApi(index)


class HipApi:
    """The runtime's calls on one device, in order on one stream. Not locked: the caller does that,
    and calls `enter` first, since the current device is a thread's own."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.enter()
        (self._stream,) = _results(
            "hipStreamCreateWithFlags", hip.hipStreamCreateWithFlags(_NON_BLOCKING)
        )

    def enter(self) -> None:
        _results("hipSetDevice", hip.hipSetDevice(self.index))

    def drop_stream(self) -> None:
        _results("hipStreamDestroy", hip.hipStreamDestroy(self._stream))

    # Memory

    def allocate(self, nbytes: int) -> int:
        (pointer,) = _results("hipMalloc", hip.hipMalloc(nbytes))
        return int(cast("int", pointer))  # what has an address turns into it

    def free(self, address: int) -> None:
        _results("hipFree", hip.hipFree(address))

    def free_nbytes(self) -> int:
        free, _ = _results("hipMemGetInfo", hip.hipMemGetInfo())
        return cast("int", free)  # the bindings' type of a count

    def zero(self, address: int, nbytes: int) -> None:
        _results("hipMemsetAsync", hip.hipMemsetAsync(address, 0, nbytes, self._stream))

    def copy_in(self, address: int, data: np.ndarray) -> None:
        """From host memory that may go when this returns."""
        kind = hip.hipMemcpyKind.hipMemcpyHostToDevice
        self._copy(address, data, data.nbytes, kind)
        self.wait("copy_in")

    def copy_out(self, data: np.ndarray, address: int) -> None:
        kind = hip.hipMemcpyKind.hipMemcpyDeviceToHost
        self._copy(data, address, data.nbytes, kind)
        self.wait("copy_out")

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self._copy(target, source, nbytes, hip.hipMemcpyKind.hipMemcpyDeviceToDevice)

    def _copy(self, to: object, source: object, nbytes: int, kind: object) -> None:
        _results("hipMemcpyAsync", hip.hipMemcpyAsync(to, source, nbytes, kind, self._stream))

    def wait(self, what: str) -> None:
        """Until everything on the stream is done. `what` was being done, for the message."""
        _results(what, hip.hipStreamSynchronize(self._stream))

    # Kernels

    def load(self, image: bytes) -> object:
        (module,) = _results("hipModuleLoadData", hip.hipModuleLoadData(image))
        return module

    def unload(self, module: object) -> None:
        _results("hipModuleUnload", hip.hipModuleUnload(module))

    def function(self, module: object, name: str) -> object:
        (made,) = _results(f"hipModuleGetFunction {name}", hip.hipModuleGetFunction(
            module, name.encode()))  # fmt: skip
        return made

    def launch(
        self,
        function: object,
        grid: tuple[int, int, int],
        lanes: int,
        args: Sequence[ctypes.c_void_p | ctypes.c_int32 | ctypes.c_uint32 | ctypes.c_float],
        what: str,
    ) -> None:
        """Puts a launch on the stream, or into the graph that is being captured."""
        _results(what, hip.hipModuleLaunchKernel(
            function, *grid, lanes, 1, 1, sharedMemBytes=0, stream=self._stream,
            kernelParams=None, extra=tuple(args)))  # fmt: skip

    # Replay

    def begin_capture(self) -> None:
        mode = hip.hipStreamCaptureMode.hipStreamCaptureModeThreadLocal
        _results("hipStreamBeginCapture", hip.hipStreamBeginCapture(self._stream, mode))

    def end_capture(self) -> object:
        """The captured launches as a graph."""
        (graph,) = _results("hipStreamEndCapture", hip.hipStreamEndCapture(self._stream))
        return graph

    def instantiate(self, graph: object) -> object:
        (made,) = _results(
            "hipGraphInstantiateWithFlags", hip.hipGraphInstantiateWithFlags(graph, 0)
        )
        return made

    def replay(self, ready: object, what: str) -> None:
        _results(what, hip.hipGraphLaunch(ready, self._stream))

    def drop_graph(self, graph: object) -> None:
        _results("hipGraphDestroy", hip.hipGraphDestroy(graph))

    def drop_replay(self, ready: object) -> None:
        _results("hipGraphExecDestroy", hip.hipGraphExecDestroy(ready))

    # Time

    def event(self) -> object:
        (made,) = _results("hipEventCreate", hip.hipEventCreate())
        return made

    def mark(self, event: object) -> None:
        _results("hipEventRecord", hip.hipEventRecord(event, self._stream))

    def between(self, start: object, stop: object) -> float:
        """Microseconds from one mark to another, both of them past."""
        (ms,) = _results("hipEventElapsedTime", hip.hipEventElapsedTime(start, stop))
        return cast("float", ms) * 1e3  # the bindings' type of a time

    def drop_event(self, event: object) -> None:
        _results("hipEventDestroy", hip.hipEventDestroy(event))
