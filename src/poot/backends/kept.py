"""Things made of code, shared by whoever loads the same code, and kept a while after the last one
lets go: making a pipeline is slow, and some drivers never give back all that it took (Mesa 22.3's
software Vulkan keeps 100 KB of each)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")
MOST_IDLE = 1024


class Kept(Generic[T]):
    """Things by key, with a count of their users. Of those without users the latest MOST_IDLE stay;
    older ones are destroyed. The caller holds the lock that its device has."""

    def __init__(self, destroy: Callable[[T], None], most_idle: int = MOST_IDLE) -> None:
        self._destroy = destroy
        self._most_idle = most_idle
        self._made: dict[Hashable, T] = {}
        self._users: dict[Hashable, int] = {}
        self._idle: OrderedDict[Hashable, None] = OrderedDict()

    def take(self, key: Hashable, make: Callable[[], T]) -> T:
        """The thing of that key, made if there is none, with one user more."""
        if key not in self._made:
            self._made[key] = make()
        self._idle.pop(key, None)
        self._users[key] = self._users.get(key, 0) + 1
        return self._made[key]

    def give(self, key: Hashable) -> None:
        """One user fewer."""
        self._users[key] -= 1
        if self._users[key]:
            return
        self._idle[key] = None
        while len(self._idle) > self._most_idle:
            oldest, _ = self._idle.popitem(last=False)
            del self._users[oldest]
            self._destroy(self._made.pop(oldest))

    def __len__(self) -> int:
        return len(self._made)
