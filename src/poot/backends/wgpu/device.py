"""A wgpu device as `backends.base.Device`. A launch list is encoded anew at every run.

A validation error inside `queue.submit` ends the process, so sizes, offsets, usages and freed
buffers are checked here first, and a list is encoded once when it is prepared.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from poot.backends.base import Buffer, BufferRef, Code, Launch
from poot.backends.launches import (
    UNIFORM_ALIGN,
    binding_nbytes,
    check_launch,
    pack_immediates,
    padded,
)
from poot.backends.owned import (
    FinalizedBuffer,
    launch_names,
    need_code,
    need_live,
    need_open,
    need_own,
    need_sizes,
    need_words,
    refuse_too_much,
)
from poot.backends.wgpu.adapters import Gpu
from poot.backends.wgpu.loader import wgpu
from poot.codegen.emitters import emit
from poot.codegen.kir.nodes import Kernel
from poot.errors import (
    BackendError,
    DeviceLost,
    LaunchError,
    OutOfDeviceMemory,
)
from poot.limits import DeviceLimits

CHUNK_NBYTES = 32 << 20
# Runs that may be in flight before one waits: wgpu keeps memory for each.
IN_FLIGHT = 16


@contextmanager
def translated(what: str, refusal: type[BackendError] = BackendError) -> Generator[None]:
    """wgpu's errors as poot's, with what was being done."""
    try:
        yield
    except wgpu.GPUOutOfMemoryError as e:
        raise OutOfDeviceMemory(f"{what}: the device is out of memory") from e
    except (wgpu.GPUError, RuntimeError, ValueError) as e:
        text = " ".join(str(e).split())
        if "lost" in text.lower():
            raise DeviceLost(f"{what}: the device is lost; open it anew: {text}") from e
        raise refusal(f"{what}: {text}") from e


def _held_until_now(owner: object) -> None:
    """An adopted buffer's end: its owner was held by being asked for here."""


class WgpuBuffer(FinalizedBuffer):
    """A buffer of wgpu's. What is dropped waits until the device's lock is held."""

    def __init__(
        self, gpu: Gpu, handle: object, nbytes: int, label: str, is_adopted: bool = False
    ) -> None:
        gpu_buffer: Any = handle
        self._destroy: Callable[[], None] = _nothing if is_adopted else gpu_buffer.destroy
        super().__init__(nbytes, label, gpu.dropped.append, self._destroy)
        self.handle = handle

    def free(self) -> None:
        """At once; the caller holds the device's lock."""
        if self._release.detach() is not None:
            self._destroy()


def _nothing() -> None:
    """The end of an adopted buffer, which is its maker's to destroy."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A pipeline with its bind group layout."""

    pipeline: object
    layout: object


class Loaded:
    """Kernels made ready, in the order of their codes.

    Every buffer is bound read-write, the weights too: a module has one access for a binding, and
    wgpu takes no buffer that one dispatch binds both ways."""

    def __init__(self, gpu: Gpu, codes: Sequence[Code]) -> None:
        self.kernels = tuple(c.kernel for c in codes)
        made: list[Ready] = []
        for code in codes:
            ready = gpu.pipelines.take(code.key, lambda code=code: _ready(gpu, code))
            weakref.finalize(self, gpu.dropped.append, partial(gpu.pipelines.give, code.key))
            assert isinstance(ready, Ready)
            made.append(ready)
        self.ready = tuple(made)


def _ready(gpu: Gpu, code: Code) -> Ready:
    device: Any = gpu.device
    kinds = ["storage"] * len(code.kernel.params) + ["uniform"] * bool(code.kernel.imms)
    entries = [
        {"binding": at, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
        for at, kind in enumerate(kinds)
    ]
    with translated(f"wgpu refuses kernel {code.name}", LaunchError):
        module = device.create_shader_module(label=code.name, code=code.binary)
        layout = device.create_bind_group_layout(entries=entries)
        pipeline = device.create_compute_pipeline(
            layout=device.create_pipeline_layout(bind_group_layouts=[layout]),
            compute={"module": module, "entry_point": "main"},
        )
    return Ready(pipeline, layout)


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One dispatch, bound."""

    ready: Ready
    group: object
    grid: tuple[int, int, int]


class WgpuExecutable:
    """A checked launch list over fixed buffers, encoded at every run: wgpu has no replay."""

    def __init__(self, owner: WgpuDevice, dispatches: list[Dispatch],
                 buffers: tuple[WgpuBuffer, ...], names: str) -> None:  # fmt: skip
        self._owner = owner
        self._dispatches = dispatches
        self._buffers = buffers
        self._names = names
        with owner.calling(f"encoding {names}", LaunchError):
            self._encode()

    def _encode(self) -> object:
        gpu: Any = self._owner.gpu.device
        encoder = gpu.create_command_encoder()
        work = encoder.begin_compute_pass()
        for dispatch in self._dispatches:
            _put(work, dispatch)
        work.end()
        return encoder.finish()

    def _check(self) -> None:
        self._owner.need_open()
        need_live(self._buffers, self._names)

    def run(self) -> None:
        """Enqueues the list; `Device.copy_out` waits for it."""
        self._check()
        with self._owner.calling(self._names, LaunchError):
            self._owner.submit(self._encode())

    def timed(self) -> list[float]:
        """Runs once, each launch a pass of its own between two timestamps."""
        if not self._owner.gpu.has_timestamps:
            self.run()
            return [float("nan")] * len(self._dispatches)
        self._check()
        with self._owner.calling(self._names, LaunchError):
            return self._owner.time(self._dispatches)

    def record(self) -> bool:
        """wgpu has no replay: every run encodes the list again."""
        return False

    @property
    def is_replay(self) -> bool:
        return False


def _put(work: object, dispatch: Dispatch) -> None:
    encoder: Any = work
    encoder.set_pipeline(dispatch.ready.pipeline)
    encoder.set_bind_group(0, dispatch.group)
    encoder.dispatch_workgroups(*dispatch.grid)


class WgpuDevice:
    """One opening of an adapter. The wgpu device below is the process's own, shared by openings.

    Methods may be called from any thread. `close` frees what this opening allocated."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._buffers: weakref.WeakSet[WgpuBuffer] = weakref.WeakSet()
        self._in_flight = 0
        self._is_open = True
        self._pid = os.getpid()

    @property
    def limits(self) -> DeviceLimits:
        return self.gpu.limits

    @property
    def description(self) -> str:
        return self.gpu.description

    def need_open(self) -> None:
        """Raises BackendError where this opening was closed."""
        need_open(self._is_open, self.limits, self._pid)

    @contextmanager
    def calling(self, what: str, refusal: type[BackendError] = BackendError) -> Generator[None]:
        """Holds the device's lock and translates errors."""
        self.need_open()
        with self.gpu.held(), translated(what, refusal):
            yield

    def _own(self, buffer: Buffer) -> WgpuBuffer:
        return need_own(buffer, WgpuBuffer, self.limits)

    # Memory

    def allocate(self, nbytes: int, label: str) -> WgpuBuffer:
        """Zero-filled, by WebGPU's rule. Raises OutOfDeviceMemory or BindingLimit."""
        refuse_too_much(nbytes, label, self.limits)
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.UNIFORM
        return self._allocate(nbytes, label, usage)

    def _allocate(self, nbytes: int, label: str, usage: int) -> WgpuBuffer:
        gpu: Any = self.gpu.device
        usage |= wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
        with self.calling(f"allocating {nbytes} bytes for {label}"):
            made = gpu.create_buffer(label=label, size=padded(nbytes), usage=usage)
            buffer = WgpuBuffer(self.gpu, made, nbytes, label)
        self._buffers.add(buffer)
        return buffer

    def adopt(self, handle: object, nbytes: int, label: str, owner: object = None) -> WgpuBuffer:
        """A GPUBuffer of this wgpu device (`gpu.device`), with usage for storage and for copies
        both ways; it holds on to its own memory. Raises BackendError."""
        need_sizes(nbytes, label)
        found: Any = handle
        if not isinstance(handle, wgpu.GPUBuffer) or found._device is not self.gpu.device:
            raise BackendError(f"{label} needs a GPUBuffer of this wgpu device: got {handle!r}")
        use = wgpu.BufferUsage
        lacks = [n for n in ("STORAGE", "COPY_SRC", "COPY_DST") if not found.usage & use[n]]
        if lacks or found.size < nbytes:
            raise BackendError(
                f"{label} needs {nbytes} bytes with usage STORAGE, COPY_SRC and COPY_DST: the "
                f"buffer has {found.size}, and lacks {', '.join(lacks) or 'none'}"
            )
        with self.calling(f"adopting {label}"):
            buffer = WgpuBuffer(self.gpu, handle, nbytes, label, is_adopted=True)
        weakref.finalize(buffer, _held_until_now, owner)
        return buffer

    def free(self, buffer: Buffer) -> None:
        if isinstance(buffer, WgpuBuffer):
            with self.gpu.held():
                buffer.free()

    def _range(self, buffer: Buffer, offset: int, nbytes: int) -> WgpuBuffer:
        self.need_open()
        return need_words(buffer, WgpuBuffer, self.limits, offset, nbytes)

    def copy_in(self, buffer: Buffer, offset: int, data: np.ndarray) -> None:
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        own = self._range(buffer, offset, raw.size)
        gpu: Any = self.gpu.device
        with self.calling(f"writing {raw.size} bytes to {own.label}"):
            for at in range(0, raw.size, CHUNK_NBYTES):
                part = raw[at : at + CHUNK_NBYTES]
                gpu.queue.write_buffer(own.handle, offset + at, part)
                if part.size == CHUNK_NBYTES:
                    gpu.queue.submit([])

    def copy_out(self, buffer: Buffer, offset: int, nbytes: int) -> np.ndarray:
        own = self._range(buffer, offset, nbytes)
        out = np.empty(nbytes, np.uint8)
        gpu: Any = self.gpu.device
        with self.calling(f"reading {nbytes} bytes of {own.label}"):
            for at in range(0, nbytes, CHUNK_NBYTES):
                size = min(CHUNK_NBYTES, nbytes - at)
                got = gpu.queue.read_buffer(own.handle, offset + at, size)
                out[at : at + size] = np.frombuffer(got, np.uint8)
            self._in_flight = 0
        return out

    def copy(
        self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, nbytes: int
    ) -> None:
        one = self._range(source, source_offset, nbytes)
        other = self._range(target, target_offset, nbytes)
        if one is other:
            raise BackendError(f"wgpu copies between two buffers: both are {one.label}")
        if not nbytes:
            return
        gpu: Any = self.gpu.device
        with self.calling(f"copying {nbytes} bytes from {one.label} to {other.label}"):
            encoder = gpu.create_command_encoder()
            encoder.copy_buffer_to_buffer(
                one.handle, source_offset, other.handle, target_offset, nbytes
            )
            gpu.queue.submit([encoder.finish()])

    # Kernels

    def emit(self, kernel: Kernel) -> Code:
        return emit(kernel, self.limits)

    def load(self, codes: Sequence[Code]) -> Loaded:
        """Pipelines. Raises LaunchError naming the kernel that naga or the device refused."""
        for code in codes:
            need_code(code, "spirv", self.limits)
        with self.calling("loading kernels"):
            return Loaded(self.gpu, codes)

    def prepare(
        self, loaded: object, launches: Sequence[Launch], buffers: dict[str, Buffer]
    ) -> WgpuExecutable:
        """Binds the list and encodes it once. Raises LaunchError, GridLimit or BindingLimit."""
        assert isinstance(loaded, Loaded), "what this backend's load returned"
        own = {name: self._own(buffer) for name, buffer in buffers.items()}
        sizes = {name: buffer.nbytes for name, buffer in own.items()}
        for launch in launches:
            check_launch(launch, loaded.kernels[launch.kernel], sizes, self.limits)
        uniforms = self._uniforms(loaded, launches)
        dispatches: list[Dispatch] = []
        names = sorted({loaded.kernels[launch.kernel].name for launch in launches})
        with self.calling(f"binding {', '.join(names[:3])}", LaunchError):
            for launch, block in zip(launches, uniforms, strict=True):
                dispatches.append(self._bind(loaded, launch, own, block))
        used = sorted({ref.space for launch in launches for ref in launch.buffers})
        held = [own[name] for name in used] + [b for b, _ in uniforms if b is not None][:1]
        return WgpuExecutable(self, dispatches, tuple(held), launch_names(names))

    def _bind(self, loaded: Loaded, launch: Launch, own: dict[str, WgpuBuffer],
              block: tuple[WgpuBuffer | None, int]) -> Dispatch:  # fmt: skip
        kernel = loaded.kernels[launch.kernel]
        ready = loaded.ready[launch.kernel]
        rows = [self._resource(own[r.space], r.offset, self._size(r, own)) for r in launch.buffers]
        if block[0] is not None and kernel.imms:
            rows.append(self._resource(block[0], block[1], padded(4 * len(kernel.imms))))
        entries = [{"binding": at, "resource": row} for at, row in enumerate(rows)]
        gpu: Any = self.gpu.device
        group = gpu.create_bind_group(layout=ready.layout, entries=entries)
        return Dispatch(ready, group, launch.grid)

    def _size(self, ref: BufferRef, own: dict[str, WgpuBuffer]) -> int:
        return binding_nbytes(ref, padded(own[ref.space].nbytes), self.limits)

    def _resource(self, buffer: WgpuBuffer, offset: int, nbytes: int) -> dict[str, object]:
        return {"buffer": buffer.handle, "offset": offset, "size": nbytes}

    def _uniforms(
        self, loaded: Loaded, launches: Sequence[Launch]
    ) -> list[tuple[WgpuBuffer | None, int]]:
        """Where each launch's immediates lie: one buffer for the list."""
        offsets: list[int] = []
        data = bytearray()
        for launch in launches:
            data += b"\0" * (-len(data) % UNIFORM_ALIGN)
            offsets.append(len(data))
            if launch.imms:
                data += pack_immediates(loaded.kernels[launch.kernel], launch.imms)
        if not any(launch.imms for launch in launches):
            return [(None, 0) for _ in launches]
        buffer = self.allocate(len(data), "immediates")
        self.copy_in(buffer, 0, np.frombuffer(bytes(data), np.uint8))
        return [(buffer, at) for at in offsets]

    # Runs, called by executables that hold the lock

    def submit(self, commands: object) -> None:
        """Enqueues; now and then waits, so that what is in flight stays bounded."""
        gpu: Any = self.gpu.device
        gpu.queue.submit([commands])
        self._in_flight += 1
        if self._in_flight >= IN_FLIGHT:
            self._wait()

    def _wait(self) -> None:
        gpu: Any = self.gpu.device
        probe = gpu.create_buffer(size=16, usage=wgpu.BufferUsage.COPY_SRC)
        gpu.queue.read_buffer(probe, 0, 16)
        probe.destroy()
        self._in_flight = 0

    def time(self, dispatches: Sequence[Dispatch]) -> list[float]:
        """Microseconds of each dispatch, run once in order."""
        gpu: Any = self.gpu.device
        out: list[float] = []
        most = 2048  # passes whose two stamps fit one query set
        for first in range(0, len(dispatches), most):
            part = dispatches[first : first + most]
            queries = gpu.create_query_set(type="timestamp", count=2 * len(part))
            usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
            stamps = gpu.create_buffer(size=16 * len(part), usage=usage)
            encoder = gpu.create_command_encoder()
            for at, dispatch in enumerate(part):
                writes = {
                    "query_set": queries,
                    "beginning_of_pass_write_index": 2 * at,
                    "end_of_pass_write_index": 2 * at + 1,
                }
                work = encoder.begin_compute_pass(timestamp_writes=writes)
                _put(work, dispatch)
                work.end()
            encoder.resolve_query_set(queries, 0, 2 * len(part), stamps, 0)
            gpu.queue.submit([encoder.finish()])
            raw = np.frombuffer(gpu.queue.read_buffer(stamps), np.uint64)
            stamps.destroy()
            out += [float(end - start) * self.gpu.timestamp_us for start, end in raw.reshape(-1, 2)]
        return out

    def close(self) -> None:
        """Frees this opening's buffers. Pipelines go with their last reference."""
        self._is_open = False
        with self.gpu.held():
            for buffer in list(self._buffers):
                buffer.free()
