"""Values made when they are asked for."""

from __future__ import annotations

import threading

import pytest

from poot.later import Later, made


def test_a_value_is_made_at_the_first_call_and_once_for_all_threads():
    calls: list[int] = []
    gate = threading.Event()

    def make() -> int:
        gate.wait(10)
        calls.append(1)
        return 7

    later = Later(make)
    assert not later.is_made
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(later())) for _ in range(4)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join()
    assert (seen, calls, later.is_made) == ([7] * 4, [1], True)


def test_what_raised_is_tried_again():
    tries: list[int] = []

    def make() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("not yet")
        return "there"

    later = Later(make)
    with pytest.raises(ValueError, match="not yet"):
        later()
    assert not later.is_made
    assert later() == "there"


def test_a_value_that_is_there_is_given_as_it_is():
    value = [1]
    later = made(value)
    assert later.is_made
    assert later() is value
