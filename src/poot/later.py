"""A value that is made when it is first asked for, once, whoever asks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Later(Generic[T]):
    """`make` runs at the first call, in the caller's thread; others wait for it. Where it raises,
    the next call runs it again."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] | None = make
        self._made: list[T] = []
        self._lock = threading.Lock()

    @property
    def is_made(self) -> bool:
        return bool(self._made)

    def __call__(self) -> T:
        with self._lock:
            if self._make is not None:
                self._made.append(self._make())
                self._make = None
            return self._made[0]


def made(value: T) -> Later[T]:
    """A value that is there already."""
    later: Later[T] = Later(lambda: value)
    later()
    return later
