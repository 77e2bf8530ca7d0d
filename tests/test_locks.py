"""Locks that refuse instead of waiting."""

from __future__ import annotations

import threading

import pytest

from poot.errors import BindError, SessionBusy
from poot.locks import Exclusive, Locked


def test_a_second_thread_is_refused_and_the_first_enters_again():
    lock = threading.RLock()
    first, second = Locked(lock), Exclusive(lock)
    seen: list[Exception] = []

    def other() -> None:
        for held in (first, second):
            try:
                with held:
                    pass
            except SessionBusy as e:
                seen.append(e)

    with first, second:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(seen) == 2
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert len(seen) == 2


def test_what_is_closed_is_not_entered_and_its_lock_is_free():
    lock = threading.RLock()
    held = Exclusive(lock)
    held.is_open = False
    with pytest.raises(BindError, match="this session is closed"):
        held.__enter__()
    seen: list[bool] = []
    thread = threading.Thread(target=lambda: seen.append(lock.acquire(blocking=False)))
    thread.start()
    thread.join()
    assert seen == [True]
