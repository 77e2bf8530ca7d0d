"""What an opening of a CUDA device owns: device memory, loaded kernels, memory to copy through."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress

from poot.backends.cuda.provider import Driver, Handle
from poot.codegen.kir.nodes import Kernel
from poot.errors import BackendError, DeviceLost

# Copies up to this size go through page-locked memory, larger ones straight from the caller's.
STAGED_NBYTES = 1 << 20
_SLOT_NBYTES = 256


class Memory:
    """One allocation, freed with its last reference: a buffer's, and those of the arrays of other
    libraries that lie in it."""

    __slots__ = ("__weakref__", "after")

    def __init__(self, driver: Driver, pointer: int) -> None:
        self.after: object = None  # held until the memory is free
        weakref.finalize(self, _let_go, driver, pointer)


def _let_go(driver: Driver, pointer: int) -> None:
    """Frees. That the device was lost meanwhile is told by the driver to who asks next."""
    with suppress(DeviceLost):
        driver.free(pointer)


class CudaBuffer:
    """Device memory. `free`, or its last reference, ends it for poot; the memory itself stays as
    long as an array that another library took holds on to it. `memory` is what keeps it: poot's
    own, or the owner of what was adopted."""

    def __init__(self, memory: object, pointer: int, nbytes: int, label: str) -> None:
        self.pointer = pointer
        self.label = label
        self.is_freed = False
        self._nbytes = nbytes
        self._memory = memory

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def memory(self) -> object:
        """What another library's array holds on to."""
        return self._memory

    def free(self) -> None:
        self.is_freed = True
        self._memory = None


class Closing:
    """Closes a driver with its last reference."""

    __slots__ = ("__weakref__",)

    def __init__(self, driver: Driver) -> None:
        weakref.finalize(self, close_quietly, driver)


def close_quietly(driver: Driver) -> None:
    """For who closes where nobody can be told: a device that was dropped, an array's last user."""
    with suppress(BackendError):
        driver.close()


class Loaded:
    """Kernels made ready, in the order of their codes. Modules go with the last reference."""

    def __init__(
        self, driver: Driver, kernels: tuple[Kernel, ...], functions: Sequence[Handle]
    ) -> None:
        self.kernels = kernels
        self.functions = tuple(functions)
        for function in functions:
            weakref.finalize(self, driver.unload, function)


class Staging:
    """Page-locked memory to copy through: a ring for what goes in, a block for what comes out."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.ring = driver.pinned(STAGED_NBYTES)
        self.out = driver.pinned(STAGED_NBYTES)
        self._bytes = self.ring.array.data
        self._at = 0

    def place(self, raw: memoryview) -> int:
        """Where the bytes are in the ring. Going round waits for the copies that still read it."""
        nbytes = len(raw)
        at = self._at
        if at + nbytes > STAGED_NBYTES:
            self._driver.synchronize()
            at = 0
        self._bytes[at : at + nbytes] = raw
        self._at = at + -(-nbytes // _SLOT_NBYTES) * _SLOT_NBYTES
        return at
