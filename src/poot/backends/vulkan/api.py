"""What poot asks of a Vulkan driver: the protocol that the untyped wrapper answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from poot.limits import DeviceLimits

Handle = object


@dataclass(frozen=True, slots=True)
class Block:
    """A buffer over memory of its own. `mapped` is its bytes (u8) where the host reaches them."""

    nbytes: int
    buffer: Handle
    memory: Handle
    mapped: np.ndarray | None


@dataclass(frozen=True, slots=True)
class Handles:
    """The driver's own objects, as the package `vulkan` has them: the physical device, the device,
    its queue, and the queue's family."""

    physical: Handle
    device: Handle
    queue: Handle
    family: int


@dataclass(frozen=True, slots=True)
class Shader:
    """A module to make a pipeline of. `subgroup` is the width it is written for, or None."""

    name: str
    binary: bytes
    buffers: int
    has_uniform: bool
    subgroup: int | None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline with its layouts."""

    shader: Shader
    pipeline: Handle
    layout: Handle
    set_layout: Handle


@dataclass(frozen=True, slots=True)
class Binding:
    """Bytes [offset, offset + nbytes) of a block."""

    block: Block
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One dispatch of a recording. `waits`: everything before it has to be done first."""

    pipeline: Pipeline
    grid: tuple[int, int, int]
    bindings: tuple[Binding, ...]
    uniform: Binding | None
    waits: bool


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded command buffer, with what it holds on to. `queries` is None where not timed."""

    commands: Handle
    descriptors: Handle
    fence: Handle
    queries: Handle
    count: int


class VulkanApi(Protocol):
    """One VkDevice with its queue. Methods may be called from any thread; they raise BackendErrors.

    `is_direct`: device memory is the host's own, cached and coherent, so blocks are mapped."""

    @property
    def limits(self) -> DeviceLimits: ...
    @property
    def description(self) -> str: ...
    @property
    def is_direct(self) -> bool: ...
    @property
    def is_lost(self) -> bool: ...
    @property
    def messages(self) -> list[str]:
        """What the validation layer said, where the device was opened with it."""
        ...

    @property
    def handles(self) -> Handles: ...
    def adopted(self, handle: object, label: str) -> Handle:
        """A VkBuffer of this device, given as the package `vulkan` has it or as its number. Raises
        BackendError."""
        ...

    def free_nbytes(self) -> int:
        """Device memory thought to be free."""
        ...

    def allocate(self, nbytes: int, mapped: bool, label: str) -> Block: ...
    def free(self, block: Block) -> None: ...
    def zero(self, block: Block) -> None: ...
    def copy(self, source: Binding, target: Binding) -> None: ...
    def pipeline(self, shader: Shader) -> Pipeline:
        """The shader's pipeline, shared with whoever else holds it; `destroy` lets go of it."""
        ...

    def destroy(self, pipeline: Pipeline) -> None: ...
    def record(self, dispatches: Sequence[Dispatch], timed: bool) -> Recording: ...
    def run(self, recording: Recording, what: str) -> None:
        """Submits and waits. `what` names the launches in an error."""
        ...

    def times(self, recording: Recording) -> list[float]:
        """Microseconds of each dispatch of a timed recording that has run."""
        ...

    def release(self, recording: Recording) -> None: ...
