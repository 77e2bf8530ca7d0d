"""A step's output left on the device, with DLPack and `__cuda_array_interface__`."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from poot.backends.base import Buffer, Lease
from poot.backends.cuda import dlpack
from poot.device_bytes import from_device
from poot.errors import BackendError, BindError
from poot.ir.dtypes import DTYPES
from poot.ir.graph import TensorType

_SYNC_NONE, _LEGACY = -1, 1


class Memory(Buffer, Protocol):
    """Device memory with its address."""

    @property
    def pointer(self) -> int: ...
    @property
    def is_freed(self) -> bool: ...


class Home(Protocol):
    """What an array asks of its device."""

    @property
    def index(self) -> int: ...
    @property
    def stream(self) -> int: ...
    def need_alive(self) -> None: ...
    def allocate(self, nbytes: int, label: str) -> Memory: ...
    def copy(
        self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, nbytes: int
    ) -> None: ...
    def copy_out(self, buffer: Buffer, offset: int, nbytes: int) -> np.ndarray: ...
    def follow(self, stream: int) -> None: ...


class CudaArray:
    """An output on the device: valid until the session's next step, unless it is a `copy`.

    Touching it later raises BindError. A bool lies as u32 words, and is handed on as such."""

    def __init__(
        self, device: Home, buffer: Memory, offset: int, type: TensorType, lease: Lease
    ) -> None:
        self._device, self._buffer, self._offset = device, buffer, offset
        self._lease = lease
        self.type = type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> str:
        return self.type.dtype

    def __repr__(self) -> str:
        state = "" if self._lease.is_current else ", no longer valid"
        return f"CudaArray({self.type}{state})"

    def _pointer(self) -> int:
        if not self._lease.is_current:
            raise BindError(
                f"this output {self.type} was valid until the session's next step; keep one by "
                "out.copy()"
            )
        if self._buffer.is_freed:
            raise BindError(f"this output {self.type} went with its session")
        self._device.need_alive()
        return self._buffer.pointer + self._offset

    def copy(self) -> CudaArray:
        """The same values in memory of their own, which later steps leave alone."""
        self._pointer()
        nbytes = -(-self._nbytes() // 4) * 4
        buffer = self._device.allocate(nbytes, "a copied output")
        self._device.copy(self._buffer, self._offset, buffer, 0, nbytes)
        return CudaArray(self._device, buffer, 0, self.type, Lease())

    def numpy(self) -> np.ndarray:
        """The values on the host; a bool array for bools."""
        self._pointer()
        if not self.type.elems:
            return np.zeros(self.shape, DTYPES[self.dtype].numpy)
        nbytes = -(-self._nbytes() // 4) * 4
        return from_device(self._device.copy_out(self._buffer, self._offset, nbytes), self.type)

    def __array__(
        self, dtype: np.dtype[np.generic] | None = None, copy: bool | None = None
    ) -> np.ndarray:
        if copy is False:
            raise ValueError("an array on the device can't be seen by the host without a copy")
        found = self.numpy()
        return found if dtype is None else found.astype(dtype)

    def _nbytes(self) -> int:
        return self.type.elems * (4 if self.dtype == "bool" else DTYPES[self.dtype].nbytes)

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """Version 3, with the stream that a consumer has to wait for."""
        letters = {"bool": "<u4", "f8e4m3": "|u1"}
        if self.dtype == "bf16":
            raise BackendError("__cuda_array_interface__ has no bf16; take it over DLPack")
        text = letters.get(self.dtype) or DTYPES[self.dtype].numpy.str
        return {
            "shape": self.shape,
            "typestr": text,
            "data": (self._pointer() if self.type.elems else 0, False),
            "strides": None,
            "stream": self._device.stream or _LEGACY,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self._device.index

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A capsule whose consumer's stream waits for the step. Raises BufferError for another
        device."""
        if dl_device not in (None, self.__dlpack_device__()):
            raise BufferError(f"this array is on cuda:{self._device.index}, not on {dl_device}")
        source = self.copy() if copy else self
        if stream != _SYNC_NONE:
            self._device.follow(stream or _LEGACY)
        pointer = source._pointer()
        return dlpack.capsule(pointer, self.shape, self.dtype, self._device.index, source)
