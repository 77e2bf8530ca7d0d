"""What every device asks of itself and of its buffers before its driver is called, in the same
words for all of them."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from poot.backends.launches import padded
from poot.codegen.code import Code
from poot.errors import BackendError, BindingLimit, LaunchError, OutOfDeviceMemory
from poot.limits import DeviceLimits

# No memory of a process, nor of a card, lies here or above: 64-bit addresses are signed.
END_OF_ADDRESSES = 1 << 63


class OwnBuffer(Protocol):
    """A buffer that a device made. `nbytes` is what was asked, whole quanta lie behind it."""

    @property
    def nbytes(self) -> int: ...
    @property
    def label(self) -> str: ...
    @property
    def is_freed(self) -> bool: ...


B = TypeVar("B", bound=OwnBuffer)


class FinalizedBuffer:
    """Device memory, freed with its last reference or by `Device.free`, whichever is first:
    `release(*what)` runs once, and must hold no reference to the buffer."""

    def __init__(
        self, nbytes: int, label: str, release: Callable[..., object], *what: object
    ) -> None:
        self.label = label
        self._nbytes = nbytes
        self._release = weakref.finalize(self, release, *what)

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def is_freed(self) -> bool:
        return not self._release.alive

    def free(self) -> None:
        self._release()


def need_open(is_open: bool, limits: DeviceLimits, pid: int = 0) -> None:
    """Raises BackendError where the device was closed, or where it was opened by process `pid` and
    this is another: a driver's threads and queues don't come along into a fork, and a call would
    wait for them for ever."""
    if pid and pid != (here := os.getpid()):
        raise BackendError(
            f"{limits.name} was opened by process {pid}, and this is process {here}, a fork: start "
            "processes by the spawn method, and open devices in each"
        )
    if not is_open:
        raise BackendError(f"{limits.name} was closed; open the device again")


def need_own(buffer: object, kind: type[B], limits: DeviceLimits) -> B:
    """A live buffer of the device's own kind. Raises BackendError."""
    if not isinstance(buffer, kind) or buffer.is_freed:
        raise BackendError(f"needs a live buffer of {limits.name}: {buffer}")
    return buffer


def need_words(buffer: object, kind: type[B], limits: DeviceLimits, offset: int, nbytes: int) -> B:
    """A live buffer in which whole words [offset, offset + nbytes) lie. Raises BackendError."""
    held = need_own(buffer, kind, limits)
    inside = offset >= 0 and nbytes >= 0 and offset + nbytes <= padded(held.nbytes)
    if not inside or offset % 4 or nbytes % 4:
        raise BackendError(
            f"a copy needs whole words inside {held.label} of {held.nbytes} bytes: "
            f"[{offset}, {offset + nbytes})"
        )
    return held


def need_sizes(nbytes: int, label: str) -> None:
    """Raises BackendError where what is to be adopted isn't whole words."""
    if nbytes <= 0 or nbytes % 4:
        raise BackendError(f"{label} needs whole words to be adopted: got {nbytes} bytes")


def need_adoptable(address: object, nbytes: int, label: str) -> int:
    """An address that whole words lie at, all of them below the end of the addresses of a process.
    Raises BackendError."""
    is_sized = nbytes > 0 and nbytes % 4 == 0
    if (
        type(address) is not int
        or not is_sized
        or not 0 < address <= END_OF_ADDRESSES - nbytes
        or address % 4
    ):
        raise BackendError(
            f"{label} needs an address and a size in whole words to be adopted: got {nbytes} bytes "
            f"at {address!r}"
        )
    return address


def need_live(buffers: Iterable[OwnBuffer], launches: str) -> None:
    """Raises LaunchError where a buffer that launches are bound to has been freed."""
    for buffer in buffers:
        if buffer.is_freed:
            raise LaunchError(f"buffer {buffer.label} of {launches} has been freed")


def launch_names(kernels: Sequence[str]) -> str:
    """A launch list for a message: the first names and how many more."""
    more = f" and {len(kernels) - 3} more" if len(kernels) > 3 else ""
    return f"launches of {', '.join(kernels[:3])}{more}"


def refuse_too_much(
    nbytes: int, label: str, limits: DeviceLimits, free: Callable[[], str] | None = None
) -> None:
    """Raises OutOfDeviceMemory where a buffer is more than the device's memory, with what `free`
    says of it, and BindingLimit where it is more than one buffer may be."""
    if nbytes > limits.memory_nbytes:
        said = f", {free()}" if free is not None else ""
        raise OutOfDeviceMemory(
            f"{label} asks {nbytes} bytes: {limits.name} has {limits.memory_nbytes}{said}"
        )
    if padded(nbytes) > limits.buffer_nbytes:
        raise BindingLimit(
            f"{label} asks {nbytes} bytes in one buffer: {limits.name} allows "
            f"{limits.buffer_nbytes}"
        )


def need_code(code: Code, target: str, limits: DeviceLimits, *, any_subgroup: bool = False) -> None:
    """Raises LaunchError where a kernel's code is another target's, or is written for subgroups
    that the device hasn't. With `any_subgroup` code brings its own: on a CPU they are a part of a
    vector, or several."""
    if code.target != target:
        raise LaunchError(f"kernel {code.name} is for {code.target}: {limits.name} takes {target}")
    if not any_subgroup and code.kernel.subgroup not in (None, limits.subgroup):
        raise LaunchError(
            f"kernel {code.name} is written for subgroups of {code.kernel.subgroup}: "
            f"{limits.name} has {limits.subgroup}"
        )
