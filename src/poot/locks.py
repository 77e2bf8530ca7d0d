"""One thread at a time: a second one is told so, and doesn't wait."""

from __future__ import annotations

import threading

from poot.errors import BindError, SessionBusy


class Locked:
    """Entered by one thread at a time, again inside too. Raises SessionBusy in a second one."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise SessionBusy(
                "this session is in use by another thread; give each thread its own by "
                "session.fork()"
            )

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class Exclusive(Locked):
    """Entered as `Locked` is, until `is_open` is false: BindError from then on."""

    def __init__(self, lock: threading.RLock) -> None:
        super().__init__(lock)
        self.is_open = True

    def __enter__(self) -> None:
        super().__enter__()
        if not self.is_open:
            self._lock.release()
            raise BindError("this session is closed; bind the program again")
