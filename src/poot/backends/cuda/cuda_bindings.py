"""The driver through NVIDIA's `cuda-bindings`: wheels, no toolkit; graphs."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, SupportsInt, cast

import numpy as np

from poot.backends.cuda.bindings_launches import (
    Answer,
    Bound,
    Function,
    add_early_edge,
    bind,
    cluster_value,
    encode_map,
    node_of,
    on_stream,
)
from poot.backends.cuda.loader import NO_BINDINGS, cu
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
    stream_handle,
)
from poot.backends.launches import CLUSTER, MAPS, RESIDENT
from poot.codegen.attributes import ONE, TensorView
from poot.codegen.kir.nodes import Blob
from poot.errors import BackendError, BackendUnavailable, DeviceLost, LaunchError

LOG_NBYTES = 16384
_NON_BLOCKING = 1
_TIMED_EVENT, _UNTIMED_EVENT = 0, 2
_MEMORY, _HOST_MEMORY, _MODULE, _GRAPH = "memory", "host memory", "a module", "a graph"


def _name(code: object) -> str:
    return getattr(code, "name", str(code)).removeprefix("CUDA_ERROR_")


def _words(code: object) -> str:
    found = cu.cuGetErrorString(code)
    text = found[1] if int(found[0]) == 0 else b"an error without words"
    return bytes(text).decode()


def _check(answer: Answer, what: str, is_launch: bool = False) -> Answer:
    """The values of a driver call, or its typed error."""
    code = answer[0]
    if int(code) != 0:
        refuse(_name(code), _words(code), what, is_launch=is_launch)
    return answer[1:]


def _retain(device: object, what: str) -> object:
    """The primary context. Raises DeviceLost where an earlier loss leaves the process without."""
    answer = cu.cuDevicePrimaryCtxRetain(device)
    if answer[0] != 0 and _name(answer[0]) in LOST:
        raise DeviceLost(f"{what}: {_words(answer[0])}; {NOT_AGAIN}")
    return _check(answer, what)[0]


def _number(answer: Answer, what: str) -> int:
    return int(_check(answer, what)[0])


class _Current:
    """A context on top of the thread's stack while it is entered, by one thread at a time. It may
    be entered again inside, which costs no call of the driver's.
    """

    def __init__(self, context: object, do: Callable[[Answer, str], Answer]) -> None:
        self._context = context
        self._do = do
        self._lock = threading.RLock()
        self._depth = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        if not self._depth:
            answer = cu.cuCtxPushCurrent(self._context)
            if answer[0] != 0:
                self._lock.release()
                self._do(answer, "making the context current")
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if not self._depth:
            cu.cuCtxPopCurrent()
        self._lock.release()


class BindingsDriver:
    """One context and stream."""

    def __init__(self, index: int, stream: object | None) -> None:
        self._device: Any = _check(cu.cuDeviceGet(index), f"device {index}")[0]
        self._is_primary = stream is None
        self.lost = ""
        self._is_open = True
        self._pid = os.getpid()
        # What has to be given back, by what it is and its address or handle.
        self._made: dict[tuple[str, int], Callable[[], Answer]] = {}
        if stream is None:
            what = f"the primary context of device {index}"
            self._context: Any = _retain(self._device, what)
            self._entered = _Current(self._context, self._do)
            try:
                with self._current():
                    made = self._do(cu.cuStreamCreate(_NON_BLOCKING), "a stream")[0]
            except BackendError:
                cu.cuDevicePrimaryCtxRelease(self._device)
                raise
            self._stream: Any = made
        else:
            self._stream = cu.CUstream(stream_handle(stream))
            self._context = self._context_of(index)
            self._entered = _Current(self._context, self._do)

    def _context_of(self, index: int) -> object:
        """The context of the caller's stream; of the default stream, the current or primary one."""
        if int(self._stream) in (0, 1, 2):
            current = _check(cu.cuCtxGetCurrent(), "the current context")[0]
            if int(current) != 0:
                return current
            self._is_primary = True
            return _retain(self._device, f"device {index}")
        return _check(cu.cuStreamGetCtx(self._stream), "the stream's context")[0]

    # Calls

    def _current(self) -> _Current:
        return self._entered

    def _do(self, answer: Answer, what: str, is_launch: bool = False) -> Answer:
        if answer[0] == 0:
            return answer[1:]
        try:
            return _check(answer, what, is_launch)
        except DeviceLost as e:
            self.lost = self.lost or e.message
            raise

    def _end(self, answer: Answer, what: str) -> None:
        """Of a call that gives something back: a loss that it tells of is remembered."""
        if answer[0] != 0:
            with suppress(BackendError):
                self._do(answer, what)

    def _give_back(self, kind: str, handle: SupportsInt) -> None:
        """Once: of what is given back already, or went with its context, nothing is asked."""
        give_back = self._made.pop((kind, int(handle)), None)
        if give_back is not None and self.is_alive:
            with self._current():
                self._do(give_back(), f"giving back {kind}")

    @property
    def has_graphs(self) -> bool:
        return True

    @property
    def can(self) -> frozenset[str]:
        return frozenset({CLUSTER, MAPS, RESIDENT})

    @property
    def is_alive(self) -> bool:
        return self._is_open and not self.lost and os.getpid() == self._pid

    @property
    def stream(self) -> int:
        return int(self._stream)

    # Memory

    def memory(self) -> tuple[int, int]:
        with self._current():
            free, total = self._do(cu.cuMemGetInfo(), "memory in use")
            return int(free), int(total)

    def allocate(self, nbytes: int) -> int:
        with self._current():
            pointer = int(self._do(cu.cuMemAlloc(nbytes), f"{nbytes} bytes")[0])
        self._made[_MEMORY, pointer] = lambda: cu.cuMemFree(pointer)
        return pointer

    def free(self, pointer: int) -> None:
        """Frees; memory of a lost or closed context is gone already."""
        self._give_back(_MEMORY, pointer)

    def free_host(self, address: int) -> None:
        """Frees page-locked memory; of a lost or closed context it is gone already."""
        self._give_back(_HOST_MEMORY, address)

    def held(self) -> _Current:
        return self._entered

    def pinned(self, nbytes: int) -> Pinned:
        with self._current():
            what = f"{nbytes} bytes of host memory"
            address = int(self._do(cu.cuMemAllocHost(nbytes), what)[0])
        self._made[_HOST_MEMORY, address] = lambda: cu.cuMemFreeHost(address)
        memory = (ctypes.c_uint8 * nbytes).from_address(address)
        weakref.finalize(memory, _free_host, weakref.ref(self), address)
        return Pinned(np.ctypeslib.as_array(memory), address)

    def zero(self, pointer: int, nbytes: int) -> None:
        with self._current():
            self._do(cu.cuMemsetD8Async(pointer, 0, nbytes, self._stream), "zeroing memory")

    def copy_in(self, pointer: int, source: np.ndarray) -> None:
        at, nbytes = source.ctypes.data, source.nbytes
        with self._current():
            self._do(cu.cuMemcpyHtoDAsync(pointer, at, nbytes, self._stream), "a copy in")

    def copy_out(self, target: np.ndarray, pointer: int) -> None:
        at, nbytes = target.ctypes.data, target.nbytes
        with self._current():
            self._do(cu.cuMemcpyDtoHAsync(at, pointer, nbytes, self._stream), "a copy out")

    def send(self, pointer: int, source: Pinned, first: int, nbytes: int) -> None:
        at = source.address + first
        with self._entered:
            self._do(cu.cuMemcpyHtoDAsync(pointer, at, nbytes, self._stream), "a copy in")

    def fetch(self, target: Pinned, pointer: int, nbytes: int) -> None:
        at = target.address
        with self._entered:
            self._do(cu.cuMemcpyDtoHAsync(at, pointer, nbytes, self._stream), "a copy out")

    def copy(self, target: int, source: int, nbytes: int) -> None:
        with self._current():
            self._do(cu.cuMemcpyDtoDAsync(target, source, nbytes, self._stream), "a copy")

    def synchronize(self) -> None:
        with self._current():
            self._do(cu.cuStreamSynchronize(self._stream), "waiting for the stream")

    def follow(self, stream: int) -> None:
        self._after(cu.CUstream(stream), self._stream)

    def wait_for(self, stream: int) -> None:
        self._after(self._stream, cu.CUstream(stream))

    def _after(self, later: object, earlier: object) -> None:
        with self._current():
            event = self._do(cu.cuEventCreate(_UNTIMED_EVENT), "an event")[0]
            try:
                self._do(cu.cuEventRecord(event, earlier), "an event")
                self._do(cu.cuStreamWaitEvent(later, event, 0), "another stream")
            finally:
                self._end(cu.cuEventDestroy(event), "an event")

    # Kernels

    def load(self, image: bytes, name: str, dynamic_nbytes: int) -> Function:
        log = bytearray(LOG_NBYTES)
        options = [
            cu.CUjit_option.CU_JIT_ERROR_LOG_BUFFER,
            cu.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ]
        with self._current():
            made = cu.cuModuleLoadDataEx(image, len(options), options, [log, LOG_NBYTES])
            if int(made[0]) != 0 and _name(made[0]) not in LOST:
                said = log.split(b"\0")[0].decode(errors="replace").strip()
                words = f"{_name(made[0])}, {_words(made[0])}"
                raise LaunchError(f"kernel {name}: the driver took no such module: {words}\n{said}")
            module = self._do(made, f"kernel {name}")[0]
            self._made[_MODULE, int(module)] = lambda: cu.cuModuleUnload(module)
            try:
                return Function(name, module, self._entry(module, name, dynamic_nbytes))
            except BackendError:
                with suppress(BackendError):
                    self._give_back(_MODULE, module)
                raise

    def _entry(self, module: object, name: str, dynamic_nbytes: int) -> object:
        found = cu.cuModuleGetFunction(module, name.encode())
        handle = self._do(found, f"kernel {name}", True)[0]
        if dynamic_nbytes:
            most = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            asked = cu.cuFuncSetAttribute(handle, most, dynamic_nbytes)
            self._do(asked, f"kernel {name} with {dynamic_nbytes} bytes of workgroup memory", True)
        return handle

    def unload(self, function: Handle) -> None:
        assert isinstance(function, Function)
        self._give_back(_MODULE, function.module)

    def resources(self, function: Handle, threads: int, dynamic_nbytes: int) -> Resources:
        assert isinstance(function, Function)
        kinds = cu.CUfunction_attribute
        which = (
            kinds.CU_FUNC_ATTRIBUTE_NUM_REGS,
            kinds.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
            kinds.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
        )
        with self._current():
            what = f"kernel {function.name}"
            registers, shared, local = (
                int(self._do(cu.cuFuncGetAttribute(w, function.handle), what)[0]) for w in which
            )
            resident = cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                function.handle, threads, dynamic_nbytes
            )
            groups = int(self._do(resident, what)[0])
        return Resources(registers, shared + dynamic_nbytes, local, groups)

    def bind(self, calls: Sequence[Call]) -> Bound:
        return bind(calls, self._stream)

    def tensor_map(self, pointer: int, view: TensorView, blob: Blob) -> bytes:
        what = f"a tensor map {blob.name} of {view} in boxes of {blob.box}"
        with self._current():
            found: Any = self._do(encode_map(pointer, view, blob), what, True)[0]
        return b"".join(int(word).to_bytes(8, "little") for word in found.opaque)

    def _launch(self, call: Call, pointers: int, config: object, stream: object) -> None:
        assert isinstance(call.function, Function)
        if config is not None:
            made = cu.cuLaunchKernelEx(on_stream(config, stream), call.function.handle, pointers, 0)
            self._do(made, f"kernel {call.name}", True)
            return
        x, y, z = call.grid
        shared = call.dynamic_nbytes
        made = cu.cuLaunchKernel(
            call.function.handle, x, y, z, call.threads, 1, 1, shared, stream, pointers, 0
        )
        self._do(made, f"kernel {call.name}", True)

    def launch(self, bound: Handle, is_checked: bool) -> None:
        assert isinstance(bound, Bound)
        with self._current():
            for call, pointers, config in bound.rows():
                self._launch(call, pointers, config, self._stream)
                if is_checked:
                    self._do(cu.cuStreamSynchronize(self._stream), f"kernel {call.name}", True)

    def launch_on(self, bound: Handle, stream: int) -> None:
        assert isinstance(bound, Bound)
        other = cu.CUstream(stream)
        with self._current():
            for call, pointers, config in bound.rows():
                self._launch(call, pointers, config, other)

    def timed(self, bound: Handle) -> list[float]:
        assert isinstance(bound, Bound)
        events: list[object] = []
        with self._current():
            try:
                for _ in range(len(bound.calls) + 1):
                    events.append(self._do(cu.cuEventCreate(_TIMED_EVENT), "an event")[0])
                self._do(cu.cuEventRecord(events[0], self._stream), "an event")
                for n, (call, pointers, config) in enumerate(bound.rows()):
                    self._launch(call, pointers, config, self._stream)
                    self._do(cu.cuEventRecord(events[n + 1], self._stream), "an event")
                self._do(cu.cuStreamSynchronize(self._stream), "timed launches", True)
                pairs = pairwise(events)
                ms = [float(self._do(cu.cuEventElapsedTime(a, b), "a time")[0]) for a, b in pairs]
            finally:
                for event in events:
                    self._end(cu.cuEventDestroy(event), "an event")
        return [1000.0 * t for t in ms]

    # Graphs

    def record(self, bound: Handle) -> Handle:
        """A chain of kernel nodes: each waits for the one before, as on the stream."""
        assert isinstance(bound, Bound)
        with self._current():
            graph = self._do(cu.cuGraphCreate(0), "a graph")[0]
            try:
                last: list[object] = []
                for call, pointers in zip(bound.calls, bound.pointers, strict=True):
                    last = [self._add(graph, last, call, pointers)]
                executable = cu.cuGraphInstantiate(graph, 0)
                made = self._do(executable, "an executable graph", True)[0]
            finally:
                self._end(cu.cuGraphDestroy(graph), "a graph")
            self._made[_GRAPH, int(made)] = lambda: cu.cuGraphExecDestroy(made)
            try:
                self._do(cu.cuGraphUpload(made, self._stream), "an executable graph")
            except BackendError:
                with suppress(BackendError):
                    self._give_back(_GRAPH, made)
                raise
        return made

    def _add(self, graph: object, last: list[object], call: Call, pointers: int) -> object:
        """A kernel node after `last`. One that may overlap begins where all groups of the one
        before have let it."""
        what = f"kernel {call.name} in a graph"
        early = call.attributes.overlap and bool(last)
        ins = [] if early else last
        made = cu.cuGraphAddKernelNode(graph, ins, len(ins), node_of(call, pointers))
        node: object = self._do(made, what, True)[0]
        if call.attributes.cluster != ONE:
            kind, value = cluster_value(call.attributes.cluster)
            self._do(cu.cuGraphKernelNodeSetAttribute(node, kind, value), what, True)
        if early:
            self._do(add_early_edge(graph, last, node), what, True)
        return node

    def replay(self, graph: Handle) -> None:
        with self._current():
            self._do(cu.cuGraphLaunch(graph, self._stream), "a graph", True)

    def release(self, graph: Handle) -> None:
        self._give_back(_GRAPH, cast("SupportsInt", graph))  # what `record` returned

    def close(self) -> None:
        """Gives back all that was made here, and the primary context; a lost one is reset, so that
        the device can be opened again.
        """
        if self.is_alive:
            with suppress(DeviceLost):  # `lost` says so
                self._give_all_back()
        was_open, self._is_open = self._is_open and os.getpid() == self._pid, False
        self._made.clear()
        if was_open and self._is_primary:
            if self.lost:
                cu.cuDevicePrimaryCtxReset(self._device)
            else:
                cu.cuDevicePrimaryCtxRelease(self._device)

    def _give_all_back(self) -> None:
        with self._current():
            self._end(cu.cuStreamSynchronize(self._stream), "waiting for the stream")
            for kind, handle in list(self._made):
                give_back = self._made.pop((kind, handle), None)
                if give_back is not None and self.is_alive:
                    self._end(give_back(), f"giving back {kind}")
            if self._is_primary and self.is_alive:
                self._end(cu.cuStreamDestroy(self._stream), "a stream")


def _free_host(driver: weakref.ref[BindingsDriver], address: int) -> None:
    """Page-locked memory whose last array went."""
    found = driver()
    if found is not None:
        with suppress(BackendError):
            found.free_host(address)


class BindingsProvider:
    """Devices through `cuda.bindings.driver`."""

    @property
    def name(self) -> str:
        return "cuda-bindings"

    def facts(self) -> list[Facts]:
        _initialise()
        count = _number(cu.cuDeviceGetCount(), "the number of devices")
        version = _number(cu.cuDriverGetVersion(), "the driver's version")
        return [_facts(index, version) for index in range(count)]

    def open(self, index: int, stream: object | None) -> BindingsDriver:
        _initialise()
        return BindingsDriver(index, stream)


def _initialise() -> None:
    """Starts the driver. Raises BackendUnavailable with what is missing."""
    if NO_BINDINGS:
        raise BackendUnavailable(NO_BINDINGS)
    try:
        code = cu.cuInit(0)[0]
    except RuntimeError as e:
        raise BackendUnavailable(f"there is no NVIDIA driver: {e}") from e
    if int(code) != 0:
        raise BackendUnavailable(f"the NVIDIA driver doesn't start: {_name(code)}, {_words(code)}")


def _facts(index: int, version: int) -> Facts:
    what = f"device {index}"
    device = _check(cu.cuDeviceGet(index), what)[0]
    name = bytes(_check(cu.cuDeviceGetName(128, device), what)[0]).split(b"\0")[0].decode()
    total = _number(cu.cuDeviceTotalMem(device), what)
    values: list[int] = []
    for row in ATTRIBUTES:
        attribute = getattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{row}")
        values.append(_number(cu.cuDeviceGetAttribute(attribute, device), what))
    return facts_of(name, total, values, version, "cuda-bindings")
