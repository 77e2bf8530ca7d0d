"""A launch list of a CUDA device: launched one by one, or as a graph that may bring slots along."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import Protocol

from poot.backends.cuda.buffers import CudaBuffer, Loaded
from poot.backends.cuda.provider import Call, Driver, Handle
from poot.backends.cuda.slot_ring import SlotRing
from poot.backends.owned import launch_names, need_live
from poot.errors import BackendError


class Owner(Protocol):
    """What an executable asks of its device."""

    @property
    def driver(self) -> Driver: ...
    @property
    def is_checked(self) -> bool: ...
    @property
    def frees(self) -> int: ...
    def guarded(self, names: tuple[str, ...] = ()) -> AbstractContextManager[None]: ...
    def need_open(self) -> None: ...
    def allocate(self, nbytes: int, label: str) -> CudaBuffer: ...
    def taker(self) -> Handle: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What an executable holds on to: nothing of it may be freed while launches name it."""

    loaded: Loaded
    buffers: dict[str, CudaBuffer]
    names: tuple[str, ...]


def _retire(driver: Driver, graph: Handle, ring: SlotRing | None, count: CudaBuffer | None) -> None:
    """A graph's end: the memory that it reads by itself goes when it is done. A lost or closed
    device reads nothing, and its page-locked memory may be gone."""
    if ring is not None and driver.is_alive:
        with suppress(BackendError):
            ring.drain()
    driver.release(graph)
    if count is not None:
        count.free()


class CudaExecutable:
    """A launch list over fixed buffers: launched one by one, or as a graph once it is recorded."""

    def __init__(self, device: Owner, calls: Sequence[Call], parts: Parts) -> None:
        self._device = device
        self._driver = device.driver
        self._parts = parts
        self._calls = tuple(calls)
        self._bound = self._driver.bind(calls)
        self._graph: Handle = None
        self._ring: SlotRing | None = None
        self._seen = -1  # of the device's frees, those after which the buffers were looked at
        self._guard = device.guarded(parts.names)

    def _check(self) -> None:
        if self._seen == self._device.frees:
            return
        self._device.need_open()
        need_live(self._parts.buffers.values(), launch_names(self._parts.names))
        self._seen = self._device.frees

    def run(self) -> None:
        """Enqueues the list; the next copy out waits for it."""
        self._check()
        if self._ring is not None:
            self.run_with(0, b"")
            return
        with self._guard:
            if self._graph is not None:
                self._driver.replay(self._graph)
            else:
                self._driver.launch(self._bound, self._device.is_checked)

    def run_on(self, stream: int) -> None:
        """Enqueues the launches on another stream of the context; a capture of that stream takes
        them. Raises BackendError where the provider has its own streams alone."""
        self._check()
        with self._device.guarded(self._parts.names):
            self._driver.launch_on(self._bound, stream)

    def timed(self) -> list[float]:
        """Runs once with an event after each launch; microseconds."""
        self._check()
        with self._device.guarded(self._parts.names):
            return self._driver.timed(self._bound)

    def record(self) -> bool:
        """Makes a graph of the list. Raises CaptureUnavailable where the provider has none."""
        self._check()
        if self._graph is None:
            with self._device.guarded(self._parts.names):
                self._graph = self._driver.record(self._bound)
                weakref.finalize(self, _retire, self._driver, self._graph, None, None)
        return True

    def record_with(self, space: str) -> int:
        """As `record`, with a first node that brings bytes of that buffer along with each run. How
        many bytes a run can bring; 0 where the list is recorded without."""
        if self._graph is not None:
            return 0 if self._ring is None else self._ring.room
        self._check()
        buffer = self._parts.buffers.get(space)
        with self._device.guarded(self._parts.names):
            if buffer is None or not self._driver.has_graphs or not self._calls:
                self.record()
                return 0
            count = self._device.allocate(4, f"the count of {space} taken")
            ring = SlotRing(self._driver, buffer.nbytes, count.pointer)
            take = ring.call(self._device.taker(), buffer.pointer)
            # The first launch waits until the slots are there, and with it all that may overlap.
            first = self._calls[0]
            first = replace(first, attributes=replace(first.attributes, overlap=False))
            bound = self._driver.bind((take, first, *self._calls[1:]))
            self._graph = self._driver.record(bound)
            weakref.finalize(self, _retire, self._driver, self._graph, ring, count)
        self._ring = ring
        return ring.room

    def make_room(self) -> None:
        """Returns when the next run can bring its bytes. Raises a BackendError where the device
        doesn't go on."""
        ring = self._ring
        assert ring is not None, "record_with comes first"
        self._check()
        self._device.need_open()
        with self._guard:
            ring.settle()
            if ring.is_full():
                ring.wait()

    def run_with(self, first: int, raw: memoryview | bytes) -> None:
        """Enqueues the recorded list with `raw` for the bytes of its buffer from `first` on, whole
        words. Waits as `make_room` does where that wasn't asked before."""
        ring = self._ring
        assert ring is not None, "record_with comes first"
        with self._guard:
            ring.settle()
            if ring.is_full():
                ring.wait()
            ring.put(first, raw)
            ring.launching()
            self._driver.replay(self._graph)
            ring.launched()

    @property
    def is_replay(self) -> bool:
        return self._graph is not None
