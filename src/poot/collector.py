"""A pause of Python's cyclic collector, for work that makes many objects and no cycles.

A compile makes some hundred thousand small objects that live until it ends. Each full collection
walks all of them and finds nothing, and its share grew with the layers: a quarter of SmolLM2's
compile time at 30. See docs/why/compile-pauses-the-collector.md.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager


class _Pauses:
    """How many pauses hold the collector still. It is one for the whole process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.was_on = False

    def begin(self) -> None:
        with self.lock:
            if self.count == 0:
                self.was_on = gc.isenabled()
                gc.disable()
            self.count += 1

    def end(self) -> None:
        with self.lock:
            self.count -= 1
            if self.count == 0 and self.was_on:
                gc.enable()


_PAUSES = _Pauses()


@contextmanager
def collector_paused() -> Generator[None]:
    """No automatic collection until the last of the pauses at hand ends, in any thread; then the
    collector is as the first found it. Counted references free memory all the while."""
    _PAUSES.begin()
    try:
        yield
    finally:
        _PAUSES.end()
