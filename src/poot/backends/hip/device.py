"""A HIP device as `backends.base.Device`: buffers, compiled kernels, launch lists as graphs."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from poot.backends.base import Buffer, Code, Launch
from poot.backends.hip.compiler import compile_text
from poot.backends.hip.driver import HipApi
from poot.backends.hip.line import HipBuffer, Line, Loaded, close_quietly
from poot.backends.hip.properties import Facts
from poot.backends.launches import check_launch, padded
from poot.backends.owned import (
    launch_names,
    need_code,
    need_live,
    need_open,
    need_own,
    need_words,
    refuse_too_much,
)
from poot.cache import DiskCache
from poot.codegen.emitters import emit
from poot.codegen.hip.names import symbol
from poot.codegen.kir.nodes import Kernel
from poot.errors import BackendError, DeviceLost, LaunchError, OutOfDeviceMemory
from poot.limits import DeviceLimits

Argument = ctypes.c_void_p | ctypes.c_int32 | ctypes.c_uint32 | ctypes.c_float
_IMMEDIATES: dict[str, Callable[[int | float], Argument]] = {
    "i32": lambda value: ctypes.c_int32(int(value)),
    "u32": lambda value: ctypes.c_uint32(int(value)),
    "f32": ctypes.c_float,
}


@dataclass(frozen=True, slots=True)
class _Call:
    """A launch with its arguments: an address a buffer, then the immediates. An empty grid, which
    HIP refuses, has nothing to do."""

    function: object
    grid: tuple[int, int, int]
    lanes: int
    args: tuple[Argument, ...]
    what: str

    def put(self, api: HipApi) -> None:
        if all(self.grid):
            api.launch(self.function, self.grid, self.lanes, self.args, self.what)


class HipExecutable:
    """A launch list over fixed buffers: launched one by one until it is recorded, then replayed as
    a captured graph by one call."""

    def __init__(
        self, device: HipDevice, line: Line, calls: Sequence[_Call], loaded: Loaded,
        buffers: Sequence[HipBuffer], names: str,
    ) -> None:  # fmt: skip
        self._device = device
        self._line = line
        self._calls = tuple(calls)
        self._loaded = loaded
        self._buffers = tuple(buffers)
        self._names = names
        self._is_recorded = False
        self._ready: object | None = None

    def _capture(self) -> object | None:
        """The launches as a replayable graph; None where there is nothing to launch."""
        if not any(all(call.grid) for call in self._calls):
            return None
        with self._line.held() as api:
            api.begin_capture()
            try:
                for call in self._calls:
                    call.put(api)
                graph = api.end_capture()
            except BackendError:
                with self._line.quietly():
                    api.drop_graph(api.end_capture())
                raise
            try:
                ready = api.instantiate(graph)
            finally:
                with self._line.quietly():
                    api.drop_graph(graph)
            made = self._line.made(lambda: api.drop_replay(ready))
        weakref.finalize(self, self._line.drop, made)
        return ready

    def _check(self) -> None:
        self._device.need_open()
        need_live(self._buffers, self._names)

    def run(self) -> None:
        """Puts the launches, or the replay of them, on the stream; the next copy_out waits."""
        self._check()
        with self._line.held() as api:
            if self._ready is not None:
                api.replay(self._ready, self._names)
            elif not self._is_recorded:
                for call in self._calls:
                    call.put(api)

    def record(self) -> bool:
        """Captures the list as a graph."""
        self._check()
        if not self._is_recorded:
            self._ready = self._capture()
            self._is_recorded = True
        return True

    def timed(self) -> list[float]:
        """Runs once, launch by launch, an event before and after each."""
        self._check()
        with self._line.held() as api:
            marks: list[object] = []
            try:
                for _ in range(len(self._calls) + 1):
                    marks.append(api.event())
                api.mark(marks[0])
                for call, mark in zip(self._calls, marks[1:], strict=True):
                    call.put(api)
                    api.mark(mark)
                api.wait(self._names)
                return [api.between(a, b) for a, b in pairwise(marks)]
            finally:
                for mark in marks:
                    with self._line.quietly():
                        api.drop_event(mark)

    @property
    def is_replay(self) -> bool:
        return self._is_recorded


class HipDevice:
    """One opening of a device, with a stream of its own. Methods may be called from any thread.
    `close`, or the last reference, gives back what this opening made."""

    def __init__(self, api: HipApi, facts: Facts, cache: DiskCache | None) -> None:
        self._line = Line(api)
        self._facts = facts
        self._cache = cache
        self._buffers: weakref.WeakSet[HipBuffer] = weakref.WeakSet()
        self._is_open = True
        self._pid = os.getpid()
        self._ending = weakref.finalize(self, close_quietly, self._line)

    @property
    def limits(self) -> DeviceLimits:
        return self._facts.limits

    @property
    def description(self) -> str:
        return self._facts.description

    def need_open(self) -> None:
        """Raises DeviceLost, or BackendError where this opening was closed."""
        if self._line.lost:
            raise DeviceLost(f"{self.limits.name} was lost before: {self._line.lost}")
        need_open(self._is_open, self.limits, self._pid)

    # Memory

    def allocate(self, nbytes: int, label: str) -> HipBuffer:
        """Zero-filled. Raises OutOfDeviceMemory (asked, free) or BindingLimit."""
        self.need_open()
        limits = self.limits
        with self._line.held() as api:
            refuse_too_much(nbytes, label, limits, lambda: f"{api.free_nbytes()} of them free")
            try:
                address = api.allocate(padded(nbytes))
            except OutOfDeviceMemory as e:
                raise OutOfDeviceMemory(
                    f"{label} asks {nbytes} bytes: {limits.name} has {api.free_nbytes()} free"
                ) from e
            buffer = HipBuffer(self._line, address, nbytes, label)
            api.zero(address, padded(nbytes))
        self._buffers.add(buffer)
        return buffer

    def free(self, buffer: Buffer) -> None:
        """Ends the buffer. Raises DeviceLost where the runtime says now that the device is lost."""
        if isinstance(buffer, HipBuffer):
            buffer.free()
            buffer.line.give_back()

    def copy_in(self, buffer: Buffer, offset: int, data: np.ndarray) -> None:
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        own = self._range(buffer, offset, raw.size)
        if raw.size:
            with self._line.held() as api:
                api.copy_in(own.address + offset, raw)

    def copy_out(self, buffer: Buffer, offset: int, nbytes: int) -> np.ndarray:
        own = self._range(buffer, offset, nbytes)
        out = np.empty(nbytes, np.uint8)
        if nbytes:
            with self._line.held() as api:
                api.copy_out(out, own.address + offset)
        return out

    def copy(
        self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, nbytes: int
    ) -> None:
        one = self._range(source, source_offset, nbytes)
        other = self._range(target, target_offset, nbytes)
        if nbytes:
            with self._line.held() as api:
                api.copy(other.address + target_offset, one.address + source_offset, nbytes)

    def _own(self, buffer: Buffer) -> HipBuffer:
        """Raises BackendError, of a buffer of another opening too."""
        own = need_own(buffer, HipBuffer, self.limits)
        if own.line is not self._line:
            raise BackendError(f"{own.label} is a buffer of another opening of {self.limits.name}")
        return own

    def _range(self, buffer: Buffer, offset: int, nbytes: int) -> HipBuffer:
        self.need_open()
        return need_words(self._own(buffer), HipBuffer, self.limits, offset, nbytes)

    # Kernels

    def emit(self, kernel: Kernel) -> Code:
        return emit(kernel, self.limits)

    def load(self, codes: Sequence[Code]) -> Loaded:
        """Compiled and loaded. Raises LaunchError naming the kernel that the compiler or the
        runtime refused, and DeviceLost or OutOfDeviceMemory with its name."""
        self.need_open()
        images = [self._image(code) for code in codes]
        modules: list[object] = []
        functions: list[object] = []
        with self._line.held() as api:
            try:
                for code, image in zip(codes, images, strict=True):
                    modules.append(_named(code, lambda image=image: api.load(image)))
                    module = modules[-1]
                    functions.append(
                        _named(code, lambda m=module, c=code: api.function(m, symbol(c.name)))
                    )
            except BackendError:
                for module in modules:
                    with self._line.quietly():
                        api.unload(module)
                raise
            return Loaded(self._line, tuple(c.kernel for c in codes), modules, functions)

    def _image(self, code: Code) -> bytes:
        need_code(code, "hip", self.limits)
        text = code.binary.decode(errors="replace")
        return compile_text(text, code.name, self._facts.arch, self._cache)

    def prepare(
        self, loaded: object, launches: Sequence[Launch], buffers: dict[str, Buffer]
    ) -> HipExecutable:
        """Binds the list. Raises LaunchError, GridLimit or BindingLimit, naming the kernel."""
        self.need_open()
        assert isinstance(loaded, Loaded), "what this backend's load returned"
        if loaded.line is not self._line:
            raise BackendError(f"needs kernels that this opening of {self.limits.name} loaded")
        own = {name: self._own(buffer) for name, buffer in buffers.items()}
        sizes = {name: buffer.nbytes for name, buffer in own.items()}
        calls: list[_Call] = []
        for launch in launches:
            kernel = loaded.kernels[launch.kernel]
            check_launch(launch, kernel, sizes, self.limits)
            function = loaded.functions[launch.kernel]
            args = _arguments(launch, kernel, own)
            what = f"kernel {kernel.name}"
            calls.append(_Call(function, launch.grid, kernel.threads, args, what))
        used = sorted({ref.space for launch in launches for ref in launch.buffers})
        names = launch_names([loaded.kernels[launch.kernel].name for launch in launches])
        return HipExecutable(self, self._line, calls, loaded, [own[n] for n in used], names)

    def close(self) -> None:
        """Gives back what this opening made: buffers, kernels, graphs, the stream. Raises
        DeviceLost where it comes out now that the device is lost: all is closed then too."""
        self._is_open = False
        self._ending.detach()
        for buffer in list(self._buffers):
            buffer.free()
        self._line.close()


def _named(code: Code, do: Callable[[], object]) -> object:
    """What a call of the runtime gives; its refusal with the kernel's name."""
    try:
        return do()
    except (DeviceLost, OutOfDeviceMemory) as e:
        raise type(e)(f"kernel {code.name}: {e.message}") from e
    except BackendError as e:
        raise LaunchError(f"kernel {code.name}: {e.message}") from e


def _arguments(launch: Launch, kernel: Kernel, own: dict[str, HipBuffer]) -> tuple[Argument, ...]:
    pointers = [ctypes.c_void_p(own[r.space].address + r.offset) for r in launch.buffers]
    pairs = zip(kernel.imms, launch.imms, strict=True)
    return (*pointers, *(_IMMEDIATES[imm.dtype](value) for imm, value in pairs))
