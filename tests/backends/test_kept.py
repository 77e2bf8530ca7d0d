"""What is shared by its users, and how long it stays without any."""

from __future__ import annotations

import itertools

from poot.backends.kept import Kept


def test_one_key_is_made_once_for_all_its_users():
    numbers, gone = itertools.count(), list[int]()
    kept = Kept(gone.append, most_idle=2)
    assert [kept.take(key, lambda: next(numbers)) for key in "aab"] == [0, 0, 1]
    for key in "aab":
        kept.give(key)
    assert kept.take("a", lambda: next(numbers)) == 0
    assert gone == []


def test_the_oldest_without_users_go_first():
    numbers, gone = itertools.count(), list[int]()
    kept = Kept(gone.append, most_idle=2)
    for key in "abcd":
        kept.take(key, lambda: next(numbers))
    for key in "acbd":
        kept.give(key)
    assert gone == [0, 2]
    assert len(kept) == 2
    assert kept.take("a", lambda: next(numbers)) == 4


def test_what_has_users_stays():
    gone: list[int] = []
    kept = Kept(gone.append, most_idle=0)
    kept.take("a", lambda: 1)
    kept.take("a", lambda: 2)
    kept.give("a")
    assert gone == []
    kept.give("a")
    assert gone == [1]
