"""Slots that go along with a recording: what goes, and what has to be copied before."""

from __future__ import annotations

from poot.carried import Carried
from poot.staged_slots import StagedSlots


class Recording:
    """Notes what it was given."""

    def __init__(self) -> None:
        self.runs: list[tuple[int, bytes]] = []
        self.room_made = 0

    def record_with(self, space: str) -> int:
        return 64

    def make_room(self) -> None:
        self.room_made += 1

    def run_with(self, first: int, raw: memoryview | bytes) -> None:
        self.runs.append((first, bytes(raw)))


def carried(room: int = 64) -> tuple[Carried, StagedSlots, Recording]:
    made, staged = Recording(), StagedSlots(256)
    return Carried(made, staged, room, {"x": 0}, ()), staged, made


def test_what_changed_goes_along_once():
    own, _, made = carried()
    own.write_whole(8, b"abcd")
    own.write_whole(0, b"efgh")
    assert own.takes_all()
    own.run()
    own.run()
    assert made.runs == [(0, b"efgh\0\0\0\0abcd"), (0, b"")]


def test_what_is_too_far_apart_or_stands_around_a_foreign_slot_is_copied_before():
    own, staged, _ = carried()
    own.write_whole(0, b"abcd")
    own.write_whole(64, b"abcd")
    assert not own.takes_all()
    staged.done()
    staged.lose(4, 4)
    own.write_whole(0, b"abcd")
    assert own.takes_all()
    own.write_whole(8, b"abcd")
    assert not own.takes_all()


def test_room_is_asked_of_the_recording():
    own, _, made = carried()
    own.make_room()
    assert made.room_made == 1
