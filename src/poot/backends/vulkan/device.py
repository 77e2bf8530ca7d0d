"""A Vulkan device as `backends.base.Device`: buffers, kernels, recorded launch lists."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from poot.backends.base import Buffer, BufferRef, Code, Launch
from poot.backends.launches import (
    UNIFORM_ALIGN,
    binding_nbytes,
    check_launch,
    pack_immediates,
    padded,
    refuse_more,
    waits,
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
from poot.backends.vulkan.api import (
    Binding,
    Block,
    Dispatch,
    Handles,
    Pipeline,
    Recording,
    Shader,
    VulkanApi,
)
from poot.codegen.emitters import emit
from poot.codegen.kir.nodes import Kernel
from poot.errors import BackendError, OutOfDeviceMemory
from poot.limits import DeviceLimits

STAGING_NBYTES = 16 << 20
_MEMINFO = Path("/proc/meminfo")


def host_free_nbytes() -> int | None:
    """Memory the host could give without swapping, or None where Linux doesn't tell."""
    if not _MEMINFO.exists():
        return None
    for line in _MEMINFO.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


class VulkanBuffer(FinalizedBuffer):
    """A block of the device's memory."""

    def __init__(
        self, block: Block, nbytes: int, label: str, release: Callable[[Block], None]
    ) -> None:
        super().__init__(nbytes, label, release, block)
        self.block = block


def _let_go(block: Block) -> None:
    """An adopted block's end: its memory is its owner's, which was held until now."""


class Loaded:
    """Kernels made ready, in the order of their codes. Pipelines go with their last reference."""

    def __init__(self, api: VulkanApi, kernels: tuple[Kernel, ...], made: list[Pipeline]) -> None:
        self.kernels = kernels
        self.pipelines = tuple(made)
        for pipeline in made:
            weakref.finalize(self, api.destroy, pipeline)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What an executable holds on to: nothing of it may be freed while a recording names it."""

    device: VulkanDevice
    loaded: Loaded
    buffers: tuple[VulkanBuffer, ...]
    names: str


class VulkanExecutable:
    """A recorded command buffer over fixed buffers; running it is one submission."""

    def __init__(self, api: VulkanApi, dispatches: list[Dispatch], parts: _Parts) -> None:
        self._api = api
        self._dispatches = dispatches
        self._parts = parts
        self._lock = threading.Lock()
        self._recording = self._record(False)
        self._timed: Recording | None = None

    def _record(self, timed: bool) -> Recording:
        recording = self._api.record(self._dispatches, timed)
        weakref.finalize(self, self._api.release, recording)
        return recording

    def _check(self) -> None:
        self._parts.device.need_open()
        need_live(self._parts.buffers, self._parts.names)

    def run(self) -> None:
        """Submits and waits until it is done."""
        self._check()
        with self._lock:
            self._api.run(self._recording, self._parts.names)

    def timed(self) -> list[float]:
        """Runs once with a timestamp after each launch, which then runs alone."""
        self._check()
        with self._lock:
            if self._timed is None:
                self._timed = self._record(True)
            self._api.run(self._timed, self._parts.names)
            return self._api.times(self._timed)

    def record(self) -> bool:
        """The command buffer is the recording."""
        return True

    @property
    def is_replay(self) -> bool:
        return True


class VulkanDevice:
    """One opening of a device. The VkDevice below is the process's own and is shared by openings.

    Methods may be called from any thread. `close` frees what this opening allocated."""

    def __init__(
        self, api: VulkanApi, limits: DeviceLimits | None = None, use_staging: bool = False
    ) -> None:
        self._api = api
        self._limits = api.limits
        if limits is not None:
            refuse_more(limits, api.limits)
            align = max(limits.offset_align, api.limits.offset_align)
            trips = api.limits.loop_trips
            self._limits = replace(limits, offset_align=align, loop_trips=trips)
        self._is_direct = api.is_direct and not use_staging
        self._lock = threading.RLock()
        self._buffers: weakref.WeakSet[VulkanBuffer] = weakref.WeakSet()
        self._staging: VulkanBuffer | None = None
        self._is_open = True
        self._pid = os.getpid()

    @property
    def limits(self) -> DeviceLimits:
        return self._limits

    @property
    def description(self) -> str:
        return self._api.description

    @property
    def messages(self) -> list[str]:
        """What the validation layer said, where the device was opened with it."""
        return self._api.messages

    def need_open(self) -> None:
        """Raises BackendError where this opening was closed."""
        need_open(self._is_open, self.limits, self._pid)

    def _own(self, buffer: Buffer) -> VulkanBuffer:
        return need_own(buffer, VulkanBuffer, self.limits)

    # Memory

    def allocate(self, nbytes: int, label: str) -> VulkanBuffer:
        """Zero-filled. Raises OutOfDeviceMemory (asked, free) or BindingLimit."""
        self.need_open()
        self._refuse_too_much(nbytes, label)
        block = self._api.allocate(padded(nbytes), False, label)
        buffer = VulkanBuffer(block, nbytes, label, self._api.free)
        if block.mapped is not None:
            block.mapped.fill(0)
        else:
            self._api.zero(block)
        self._buffers.add(buffer)
        return buffer

    def _refuse_too_much(self, nbytes: int, label: str) -> None:
        limits = self.limits
        told = lambda: f"{self._api.free_nbytes()} thought free"  # noqa: E731
        refuse_too_much(nbytes, label, limits, told)
        free = host_free_nbytes() if limits.is_software else None
        if free is not None and nbytes > free:
            raise OutOfDeviceMemory(f"{label} asks {nbytes} bytes: the host has {free} free")

    @property
    def handles(self) -> Handles:
        """The driver's own objects, for who makes buffers that this device adopts."""
        return self._api.handles

    def adopt(self, handle: object, nbytes: int, label: str, owner: object = None) -> VulkanBuffer:
        """A VkBuffer of this device's VkDevice, bound to memory, with usage for storage and for
        transfers both ways. Raises BackendError."""
        self.need_open()
        need_sizes(nbytes, label)
        block = Block(nbytes, self._api.adopted(handle, label), owner, None)
        return VulkanBuffer(block, nbytes, label, _let_go)

    def free(self, buffer: Buffer) -> None:
        if isinstance(buffer, VulkanBuffer):
            buffer.free()

    def copy_in(self, buffer: Buffer, offset: int, data: np.ndarray) -> None:
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        own = self._range(buffer, offset, raw.size)
        mapped = own.block.mapped
        if mapped is not None and self._is_direct:
            mapped[offset : offset + raw.size] = raw
            return
        with self._lock:
            staging = self._staged()
            for at in range(0, raw.size, STAGING_NBYTES):
                part = raw[at : at + STAGING_NBYTES]
                assert staging.mapped is not None, "staging is mapped"
                staging.mapped[: part.size] = part
                target = Binding(own.block, offset + at, part.size)
                self._api.copy(Binding(staging, 0, part.size), target)

    def copy_out(self, buffer: Buffer, offset: int, nbytes: int) -> np.ndarray:
        own = self._range(buffer, offset, nbytes)
        mapped = own.block.mapped
        if mapped is not None and self._is_direct:
            return mapped[offset : offset + nbytes].copy()
        out = np.empty(nbytes, np.uint8)
        with self._lock:
            staging = self._staged()
            for at in range(0, nbytes, STAGING_NBYTES):
                size = min(STAGING_NBYTES, nbytes - at)
                source = Binding(own.block, offset + at, size)
                self._api.copy(source, Binding(staging, 0, size))
                assert staging.mapped is not None, "staging is mapped"
                out[at : at + size] = staging.mapped[:size]
        return out

    def copy(
        self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, nbytes: int
    ) -> None:
        one = self._range(source, source_offset, nbytes)
        other = self._range(target, target_offset, nbytes)
        if nbytes:
            start = Binding(one.block, source_offset, nbytes)
            self._api.copy(start, Binding(other.block, target_offset, nbytes))

    def _range(self, buffer: Buffer, offset: int, nbytes: int) -> VulkanBuffer:
        self.need_open()
        return need_words(buffer, VulkanBuffer, self.limits, offset, nbytes)

    def _staged(self) -> Block:
        """Host memory to copy through; the caller holds the lock."""
        if self._staging is None:
            block = self._api.allocate(STAGING_NBYTES, True, "staging")
            self._staging = VulkanBuffer(block, STAGING_NBYTES, "staging", self._api.free)
        return self._staging.block

    # Kernels

    def emit(self, kernel: Kernel) -> Code:
        return emit(kernel, self.limits)

    def load(self, codes: Sequence[Code]) -> Loaded:
        """Pipelines. Raises LaunchError naming the kernel the driver refused."""
        self.need_open()
        made: list[Pipeline] = []
        try:
            for code in codes:
                made.append(self._api.pipeline(self._shader(code)))
        except BackendError:
            for pipeline in made:
                self._api.destroy(pipeline)
            raise
        return Loaded(self._api, tuple(c.kernel for c in codes), made)

    def _shader(self, code: Code) -> Shader:
        kernel = code.kernel
        need_code(code, "spirv", self.limits)
        has_uniform = bool(kernel.imms)
        return Shader(code.name, code.binary, len(kernel.params), has_uniform, kernel.subgroup)

    def prepare(
        self, loaded: object, launches: Sequence[Launch], buffers: dict[str, Buffer]
    ) -> VulkanExecutable:
        """Records the list. Raises LaunchError, GridLimit or BindingLimit, naming the kernel."""
        self.need_open()
        assert isinstance(loaded, Loaded), "what this backend's load returned"
        own = {name: self._own(buffer) for name, buffer in buffers.items()}
        sizes = {name: buffer.nbytes for name, buffer in own.items()}
        for launch in launches:
            check_launch(launch, loaded.kernels[launch.kernel], sizes, self.limits)
        uniforms, offsets = self._uniforms(loaded, launches)
        dispatches: list[Dispatch] = []
        must = waits(launches, loaded.kernels)
        for launch, offset, wait in zip(launches, offsets, must, strict=True):
            pipeline = loaded.pipelines[launch.kernel]
            bindings = tuple(self._binding(ref, own) for ref in launch.buffers)
            uniform = None
            if pipeline.shader.has_uniform and uniforms is not None:
                uniform = Binding(uniforms.block, offset, padded(4 * len(launch.imms)))
            dispatches.append(Dispatch(pipeline, launch.grid, bindings, uniform, wait))
        used = {ref.space for launch in launches for ref in launch.buffers}
        held = [own[name] for name in sorted(used)] + ([uniforms] if uniforms else [])
        names = launch_names([loaded.kernels[launch.kernel].name for launch in launches])
        return VulkanExecutable(self._api, dispatches, _Parts(self, loaded, tuple(held), names))

    def _binding(self, ref: BufferRef, own: dict[str, VulkanBuffer]) -> Binding:
        block = own[ref.space].block
        return Binding(block, ref.offset, binding_nbytes(ref, block.nbytes, self.limits))

    def _uniforms(
        self, loaded: Loaded, launches: Sequence[Launch]
    ) -> tuple[VulkanBuffer | None, list[int]]:
        """One buffer with every launch's immediates, and where each launch's start."""
        offsets: list[int] = []
        data = bytearray()
        for launch in launches:
            data += b"\0" * (-len(data) % UNIFORM_ALIGN)
            offsets.append(len(data))
            if launch.imms:
                data += pack_immediates(loaded.kernels[launch.kernel], launch.imms)
        if not any(launch.imms for launch in launches):
            return None, offsets
        buffer = self.allocate(len(data), "immediates")
        self.copy_in(buffer, 0, np.frombuffer(bytes(data) + b"\0" * (-len(data) % 4), np.uint8))
        return buffer, offsets

    def close(self) -> None:
        """Frees this opening's buffers. Kernels and recordings go with their last reference."""
        self._is_open = False
        for buffer in list(self._buffers):
            buffer.free()
        if self._staging is not None:
            self._staging.free()
