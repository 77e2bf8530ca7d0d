"""A step's output on the device as other libraries take it: DLPack, `__cuda_array_interface__`."""

from __future__ import annotations

from typing import Protocol

from poot import dlpack
from poot.backends.base import Buffer
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
    @property
    def memory(self) -> object:
        """What keeps the memory, beyond the buffer's end."""
        ...


class Home(Protocol):
    """What a view asks of its device."""

    @property
    def index(self) -> int: ...
    @property
    def stream(self) -> int: ...
    def need_open(self) -> None: ...
    def follow(self, stream: int) -> None: ...


class CudaView:
    """Bytes of a buffer as an array of CUDA memory. A bool lies as u32 words, and is handed on as
    such. The memory stays while the view does, and while a consumer has its capsule; handing on
    what has been freed since raises BindError."""

    def __init__(self, device: Home, buffer: Memory, offset: int, type: TensorType) -> None:
        self._device, self._buffer, self._offset = device, buffer, offset
        self._memory = buffer.memory
        self.type = type

    def __repr__(self) -> str:
        return f"CudaView({self.type})"

    def _pointer(self) -> int:
        if self._buffer.is_freed:
            raise BindError(f"this output {self.type} went with its session")
        self._device.need_open()
        return self._buffer.pointer + self._offset

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """Version 3, with the stream that a consumer has to wait for."""
        letters = {"bool": "<u4", "f8e4m3": "|u1"}
        dtype = self.type.dtype
        if dtype == "bf16":
            raise BackendError("__cuda_array_interface__ has no bf16; take it over DLPack")
        text = letters.get(dtype) or DTYPES[dtype].numpy.str
        return {
            "shape": self.type.shape,
            "typestr": text,
            "data": (self._pointer() if self.type.elems else 0, False),
            "strides": None,
            "stream": self._device.stream or _LEGACY,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self._device.index

    def __dlpack__(
        self, *, stream: int | None = None, dl_device: tuple[int, int] | None = None
    ) -> object:
        """A capsule whose consumer's stream waits for the step. `stream` is as DLPack says: None
        and 1 the legacy default, 2 each thread's own default, -1 no wait, else a handle. Raises
        BufferError for another device or what is no stream."""
        if dl_device not in (None, self.__dlpack_device__()):
            raise BufferError(f"this array is on cuda:{self._device.index}, not on {dl_device}")
        if stream is not None and (type(stream) is not int or stream == 0 or stream < _SYNC_NONE):
            raise BufferError(f"a stream is None, -1, 1, 2 or a handle: got {stream!r}")
        if stream != _SYNC_NONE:
            self._device.follow(stream or _LEGACY)
        return dlpack.capsule(
            self._pointer(), self.type.shape, self.type.dtype, self.__dlpack_device__(), self
        )
