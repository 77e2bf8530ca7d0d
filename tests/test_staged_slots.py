"""Which bytes of the slots go over, and in how many pieces."""

from __future__ import annotations

import numpy as np

from poot.staged_slots import StagedSlots


def words(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32).view(np.uint8)


def spans(staged: StagedSlots) -> list[tuple[int, int]]:
    return [(first, first + data.size) for first, data in staged.runs()]


def test_what_was_written_since_goes_over_in_one_piece():
    staged = StagedSlots(1024)
    staged.write(512, words(3))
    staged.write(0, words(1, 2))
    ((first, data),) = staged.runs()
    assert (first, data.size) == (0, 516)
    assert data[:8].view(np.int32).tolist() == [1, 2]
    assert data[512:].view(np.int32).tolist() == [3]
    assert spans(staged) == [(0, 516)]  # until it is done
    staged.done()
    assert staged.runs() == []


def test_pieces_far_apart_go_by_themselves():
    staged = StagedSlots(1 << 16)
    staged.write(0, words(1))
    staged.write(1 << 15, words(2))
    assert spans(staged) == [(0, 4), (1 << 15, (1 << 15) + 4)]


def test_a_slot_from_the_device_is_not_written_over():
    staged = StagedSlots(1024)
    staged.write(256, words(9))
    staged.lose(256, 64)
    assert staged.runs() == []
    staged.write(0, words(1))
    staged.write(512, words(2))
    assert spans(staged) == [(0, 4), (512, 516)]
    staged.write(260, words(3))  # a part of it that the host does give
    assert spans(staged) == [(0, 4), (260, 264), (512, 516)]
    staged.own(256)
    staged.write(256, np.zeros(64, np.uint8))
    assert spans(staged) == [(0, 516)]


def test_a_copy_goes_its_own_way():
    staged = StagedSlots(64)
    staged.write(0, words(1))
    other = staged.copy()
    staged.done()
    other.write(0, words(5))
    assert spans(other) == [(0, 4)]
    assert staged.data[:4].view(np.int32) == 1
