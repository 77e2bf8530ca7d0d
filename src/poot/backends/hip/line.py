"""What an opening of a HIP device owns: its stream, and all that has to be given back."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager

from poot.backends.hip.driver import HipApi
from poot.backends.owned import FinalizedBuffer
from poot.codegen.kir.nodes import Kernel
from poot.errors import BackendError, DeviceLost


class Line:
    """One device's stream, used by one thread at a time, and what was made on it. What is dropped
    while another works is given back by the next who enters, all that is left by `close`. A lost
    device, or one of another process, has nothing to give back."""

    def __init__(self, api: HipApi) -> None:
        self.api = api
        self.lost = ""  # what the first call said that found the device lost
        self._is_open = True
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._made: dict[int, Callable[[], None]] = {}
        self._dropped: deque[int] = deque()
        self._count = itertools.count()

    @property
    def is_alive(self) -> bool:
        """Whether it is neither closed nor lost, and this is the process that opened it."""
        return self._is_open and not self.lost and os.getpid() == self._pid

    @contextmanager
    def held(self) -> Generator[HipApi]:
        """The runtime's calls, for this thread alone. A loss that they tell of is remembered.
        Raises DeviceLost where the device is lost already."""
        with self._lock:
            try:
                self._need()
                self.api.enter()
                self._give_back_dropped()
                self._need()
                yield self.api
            except DeviceLost as e:
                self.lost = self.lost or e.message
                raise

    def _need(self) -> None:
        if self.lost:
            raise DeviceLost(f"hip:{self.api.index} was lost before: {self.lost}")

    @contextmanager
    def quietly(self) -> Generator[None]:
        """Of what gives back: a refusal is nobody's error, a loss is remembered."""
        try:
            yield
        except BackendError as e:
            if isinstance(e, DeviceLost):
                self.lost = self.lost or e.message

    def made(self, give_back: Callable[[], None]) -> int:
        """A number for `drop`; who calls holds the line."""
        number = next(self._count)
        self._made[number] = give_back
        return number

    def drop(self, number: int) -> None:
        """May be called by the garbage collector, in the middle of anything."""
        self._dropped.append(number)

    def give_back(self) -> None:
        """Gives back what was dropped. Raises DeviceLost where that tells now of a loss."""
        before = self.lost
        with self._lock:
            self._enter_quietly()
            self._give_back_dropped()
        if self.lost and not before:
            raise DeviceLost(self.lost)

    def close(self) -> None:
        """Gives back all that is left, and the stream. Raises DeviceLost where that tells now of a
        loss: all is closed then too."""
        before = self.lost
        with self._lock:
            self._enter_quietly()
            self._dropped.extend(reversed(self._made))
            self._give_back_dropped()
            if self.is_alive:
                with self.quietly():
                    self.api.drop_stream()
            self._is_open = False
            self._made.clear()
        if self.lost and not before:
            raise DeviceLost(self.lost)

    def _enter_quietly(self) -> None:
        if self.is_alive:
            with self.quietly():
                self.api.enter()

    def _give_back_dropped(self) -> None:
        """Launches may still read what is given back: they are waited for first."""
        if self._dropped and self.is_alive:
            with self.quietly():
                self.api.wait("the last launches")
        while self._dropped:
            give_back = self._made.pop(self._dropped.popleft(), None)
            if give_back is not None and self.is_alive:
                with self.quietly():
                    give_back()


def close_quietly(line: Line) -> None:
    """For a device that was dropped, where nobody can be told."""
    with line.quietly():
        line.close()


class HipBuffer(FinalizedBuffer):
    """Memory at an address of the device."""

    def __init__(self, line: Line, address: int, nbytes: int, label: str) -> None:
        api = line.api
        super().__init__(nbytes, label, line.drop, line.made(lambda: api.free(address)))
        self.line = line
        self.address = address


class Loaded:
    """Kernels made ready, in the order of their codes. Modules go with the last reference."""

    def __init__(
        self,
        line: Line,
        kernels: tuple[Kernel, ...],
        modules: list[object],
        functions: list[object],
    ) -> None:
        self.line = line
        self.kernels = kernels
        self.functions = tuple(functions)
        for module in modules:
            weakref.finalize(self, line.drop, line.made(lambda m=module: line.api.unload(m)))
