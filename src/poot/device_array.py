"""Arrays that stay where a step made them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from poot import dlpack
from poot.backends.base import Buffer, Device, HostMemory, SharedView, SharesMemory
from poot.device_bytes import from_device
from poot.errors import BindError
from poot.ir.dtypes import DTYPES
from poot.ir.graph import TensorType
from poot.tagged import CARRIERS, Tagged, tagged

_CPU = (dlpack.CPU, 0)
_INTERFACE = "__cuda_array_interface__"


class Ticket(Protocol):
    """Who may touch an array, and until when."""

    def held(self) -> AbstractContextManager[object]:
        """A context in which the array is there. Raises StaleArray after the session's next step,
        and what the step that made it raises."""
        ...


class Always:
    """The ticket of an array that owns its memory."""

    def held(self) -> AbstractContextManager[object]:
        return nullcontext()


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """A value's bytes on a device, or (`device` None) the oracle's own array."""

    type: TensorType
    device: Device | None
    buffer: Buffer | None = None
    offset: int = 0
    array: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        """Whole words, as a device copies them."""
        return -(-self.type.nbytes // 4) * 4

    def read(self) -> np.ndarray:
        """A copy on the host."""
        if self.device is None or self.buffer is None:
            assert self.array is not None
            return self.array.copy()
        if not self.type.elems:
            return np.zeros(self.type.shape, DTYPES[self.type.dtype].numpy)
        data = self.device.copy_out(self.buffer, self.offset, self.nbytes)
        return np.array(from_device(data, self.type))

    def copied(self) -> Stored:
        """The same value in memory of its own, freed with its last reference."""
        if self.device is None or self.buffer is None:
            return Stored(self.type, None, array=self.read())
        buffer = self.device.allocate(max(self.nbytes, 4), "a copied output")
        if self.nbytes:
            self.device.copy(self.buffer, self.offset, buffer, 0, self.nbytes)
        return Stored(self.type, self.device, buffer)

    @property
    def is_shared(self) -> bool:
        """Whether other libraries of its device can take it where it is."""
        return self.buffer is not None and isinstance(self.device, SharesMemory)

    @property
    def is_on_host(self) -> bool:
        """Whether it lies in the host's memory."""
        return self.array is not None or isinstance(self.buffer, HostMemory)

    def shared(self) -> SharedView | None:
        """The value as other libraries of its device take it, where they can."""
        if self.buffer is None or not isinstance(self.device, SharesMemory):
            return None
        return self.device.view(self.buffer, self.offset, self.type)

    def view(self) -> np.ndarray:
        """The value in the host's memory, not copied. Raises BindError where it lies elsewhere."""
        if self.array is not None:
            return self.array
        if not isinstance(self.buffer, HostMemory):
            raise BindError("the array lies in no host memory; take a copy of it by .numpy()")
        data = self.buffer.bytes()[self.offset : self.offset + self.nbytes]
        return from_device(data, self.type)


class DeviceArray:
    """An output left on the device. Valid until its session's next step; `copy` keeps it.

    `numpy` copies to the host. DLPack gives host memory and CUDA memory as they are, and CUDA
    memory has `__cuda_array_interface__`. What is taken by these keeps the memory, after its
    session's close too, and is not told when the next step writes over it. Touching a stale array
    raises StaleArray; where a guard of its step failed, the first touch raises that step's
    ValidationError or RangeError."""

    def __init__(self, stored: Stored, ticket: Ticket) -> None:
        self._stored = stored
        self._ticket = ticket
        self._taken: SharedView | None = (
            None  # keeps what __cuda_array_interface__ gave an address of
        )

    @property
    def type(self) -> TensorType:
        return self._stored.type

    @property
    def shape(self) -> tuple[int, ...]:
        return self._stored.type.shape

    @property
    def dtype(self) -> np.dtype:
        """numpy's (ml_dtypes' for bf16 and f8e4m3)."""
        return DTYPES[self._stored.type.dtype].numpy

    def __repr__(self) -> str:
        return f"DeviceArray({self._stored.type})"

    def held(self) -> AbstractContextManager[object]:
        """A context in which the array can't be written over. Raises StaleArray, and what its step
        raises."""
        return self._ticket.held()

    def stored(self) -> Stored:
        """Where it lies: for use inside `held`."""
        return self._stored

    def numpy(self) -> np.ndarray:
        """A copy on the host."""
        with self._ticket.held():
            return self._stored.read()

    def __array__(
        self, dtype: np.dtype[np.generic] | None = None, copy: bool | None = None
    ) -> np.ndarray:
        if copy is False:
            raise ValueError("an array on the device can't be seen by the host without a copy")
        got = self.numpy()
        return got if dtype is None else got.astype(dtype, copy=False)

    def copy(self) -> DeviceArray:
        """The same values on the device, in memory of their own, for as long as the copy lives."""
        with self._ticket.held():
            own = self._stored.copied()
        return DeviceArray(own, Always())

    def __dlpack_device__(self) -> tuple[int, int]:
        with self._ticket.held():
            shared = self._stored.shared()
            return _CPU if shared is None else shared.__dlpack_device__()

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Its memory as it is, or with `copy` a copy's. bf16 goes as DLPack's bfloat, which numpy
        refuses (`tagged` is for it), and f8e4m3 as bytes. Raises BindError where no other library
        takes it; BufferError for another device."""
        with self._ticket.held():
            stored = self._stored.copied() if copy else self._stored
            shared = stored.shared()
            if shared is not None:
                return shared.__dlpack__(stream=stream, dl_device=dl_device)
            if dl_device not in (None, _CPU):
                raise BufferError(f"this array is in the host's memory, not on {dl_device}")
            view = stored.view()
            if self._stored.type.dtype in CARRIERS:
                return dlpack.capsule(view.ctypes.data, view.shape, stored.type.dtype, _CPU, view)
            return view.__dlpack__(stream=None, max_version=max_version)

    def tagged(self) -> Tagged:
        """The value as bits with a dtype tag, where numpy has no such dtype: in the host's memory
        as it is, elsewhere a copy. Raises BindError for a dtype that numpy has."""
        with self._ticket.held():
            stored = self._stored
            return tagged(stored.view() if stored.is_on_host else stored.read())

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """CUDA memory as it is. AttributeError where there is none, so that `hasattr` tells;
        BackendError for a dtype that the protocol can't name."""
        if not self._stored.is_shared:
            raise AttributeError(_INTERFACE)
        with self._ticket.held():
            self._taken = self._taken or self._stored.shared()
            assert self._taken is not None, "is_shared says so"
            return self._taken.__cuda_array_interface__
