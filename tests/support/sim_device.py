"""A device whose launches run through the kernel IR's simulator: what kernels do wrong is an error
here, whatever a driver would make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from poot.backends.base import BufferRef, Code, Launch
from poot.backends.launches import MAPS, RESIDENT, check_launch, padded
from poot.backends.owned import need_open
from poot.codegen.emitters import emit
from poot.codegen.kir.nodes import Kernel, Param
from poot.codegen.kir.sim import simulate
from poot.codegen.kir.sim.team import TensorMap
from poot.codegen.kir.sim.values import NUMPY
from poot.codegen.kir.verify import check_arrays, verify
from poot.errors import BackendError, OutOfDeviceMemory
from poot.ir.dtypes import DTYPES
from poot.limits import DeviceLimits, profile

# NaN as f32, as f16 and as bf16, and far outside any index as i32.
POISON = np.uint16(0x7FC0)


@dataclass(slots=True)
class SimBuffer:
    """Bytes of the host, whole quanta; `nbytes` is what was asked."""

    data: np.ndarray
    label: str
    is_freed: bool = False
    asked: int = 0

    @property
    def nbytes(self) -> int:
        return self.asked


@dataclass(frozen=True, slots=True)
class SimExecutable:
    """A launch list over buffers. Before it runs, nothing of the arena is known to hold a value:
    the first of a step's lists starts from poison."""

    device: SimDevice
    kernels: tuple[Kernel, ...]
    launches: tuple[Launch, ...]
    buffers: dict[str, SimBuffer]

    def run(self) -> None:
        for launch in self.launches:
            kernel = self.kernels[launch.kernel]
            arrays = {
                p.name: self._view(p, ref)
                for p, ref in zip(kernel.params, launch.buffers, strict=True)
            }
            blobs = {
                blob.name: TensorMap(self._name(launch, kernel, ref), view.dims, view.strides)
                for blob, (ref, view) in zip(kernel.blobs, launch.maps, strict=True)
            }
            simulate(kernel, arrays, launch.grid, imms=launch.imms, blobs=blobs, buffer_races=True)
            self.device.launches += 1

    def _name(self, launch: Launch, kernel: Kernel, ref: BufferRef) -> str:
        """The parameter that is bound to the same bytes as a tensor map."""
        return kernel.params[launch.buffers.index(ref)].name

    def _view(self, p: Param, ref: BufferRef) -> np.ndarray:
        nbytes = p.elems * DTYPES[p.dtype].nbytes
        room = padded(ref.nbytes)
        if nbytes > room:
            raise BackendError(f"{p.name} takes {nbytes} bytes, and {ref.nbytes} are bound")
        data = self.buffers[ref.space].data[ref.offset : ref.offset + nbytes]
        return data.view(np.uint32 if p.dtype == "bool" else NUMPY[p.dtype])

    def timed(self) -> list[float]:
        self.run()
        return [float("nan")] * len(self.launches)

    def record(self) -> bool:
        return True

    @property
    def is_replay(self) -> bool:
        return True


class SimDevice:
    """`backends.base.Device` over numpy. Its arena and results start as poison, not as zeros, so
    that a read
    of what nothing wrote shows; every kernel is verified when it is loaded."""

    def __init__(self, limits: DeviceLimits | None = None) -> None:
        self._limits = limits or profile("lavapipe")
        self._is_open = True
        self.launches = 0
        self.allocated = 0

    @property
    def limits(self) -> DeviceLimits:
        return self._limits

    @property
    def description(self) -> str:
        return f"the kernel IR's simulator with the limits of {self._limits.name}"

    def allocate(self, nbytes: int, label: str) -> SimBuffer:
        if nbytes > self._limits.memory_nbytes:
            raise OutOfDeviceMemory(
                f"{label} asks {nbytes} bytes: {self._limits.name} has {self._limits.memory_nbytes}"
            )
        data = np.zeros(padded(nbytes), np.uint8)
        if label in ("arena", "results"):
            data.view(np.uint16)[:] = POISON
        self.allocated += nbytes
        return SimBuffer(data, label, asked=nbytes)

    def _own(self, buffer: object) -> SimBuffer:
        if not isinstance(buffer, SimBuffer) or buffer.is_freed:
            raise BackendError(f"needs a live buffer of the simulator: {buffer}")
        return buffer

    def free(self, buffer: object) -> None:
        own = self._own(buffer)
        own.is_freed = True
        self.allocated -= own.nbytes

    def copy_in(self, buffer: object, offset: int, data: np.ndarray) -> None:
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self._own(buffer).data[offset : offset + flat.size] = flat

    def copy_out(self, buffer: object, offset: int, nbytes: int) -> np.ndarray:
        return self._own(buffer).data[offset : offset + nbytes].copy()

    def copy(
        self, source: object, source_offset: int, target: object, target_offset: int, nbytes: int
    ) -> None:
        self.copy_in(target, target_offset, self.copy_out(source, source_offset, nbytes))

    def emit(self, kernel: Kernel) -> Code:
        return emit(kernel, self._limits)

    def load(self, codes: Sequence[Code]) -> tuple[Kernel, ...]:
        for code in codes:
            verify(code.kernel)
            check_arrays(code.kernel)
        return tuple(code.kernel for code in codes)

    def prepare(
        self, loaded: object, launches: Sequence[Launch], buffers: dict[str, object]
    ) -> SimExecutable:
        assert isinstance(loaded, tuple)
        own = {name: self._own(b) for name, b in buffers.items()}
        sizes = {name: b.data.size for name, b in own.items()}
        for launch in launches:
            check_launch(
                launch, loaded[launch.kernel], sizes, self._limits, frozenset({RESIDENT, MAPS})
            )
        return SimExecutable(self, loaded, tuple(launches), own)

    def need_open(self) -> None:
        need_open(self._is_open, self._limits)

    def close(self) -> None:
        self._is_open = False
