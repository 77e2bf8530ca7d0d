"""What an opening of a CUDA device owns: device memory, loaded kernels, memory to copy through."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from poot.backends.cuda.provider import Driver, Handle
from poot.codegen.kir.nodes import Kernel

# Copies up to this size go through page-locked memory, larger ones straight from the caller's.
STAGED_NBYTES = 1 << 20
_SLOT_NBYTES = 256


class CudaBuffer:
    """Device memory, freed with its last reference or by `Device.free`, whichever is first."""

    def __init__(self, driver: Driver, pointer: int, nbytes: int, label: str) -> None:
        self.pointer = pointer
        self.label = label
        self.is_freed = False
        self._nbytes = nbytes
        self._release = weakref.finalize(self, driver.free, pointer)

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def free(self) -> None:
        self.is_freed = True
        self._release()


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
