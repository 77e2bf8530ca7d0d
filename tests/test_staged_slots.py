"""The host's copy of slots: what has to be copied, and what must not be."""

import numpy as np

from poot.staged_slots import StagedSlots


def runs(slots: StagedSlots) -> list[tuple[int, int]]:
    return [(first, raw.size) for first, raw in slots.runs()]


def test_writes_close_to_one_another_are_one_copy():
    slots = StagedSlots(20000)
    slots.write(0, np.ones(4, np.uint8))
    slots.write(256, np.ones(8, np.uint8))
    slots.write(16000, np.ones(4, np.uint8))
    assert runs(slots) == [(0, 264), (16000, 4)]
    slots.done()
    assert runs(slots) == []


def test_bytes_that_the_device_has_from_elsewhere_are_not_written_over():
    slots = StagedSlots(1024)
    slots.write(256, np.ones(8, np.uint8))
    slots.lose(256, 8)
    slots.write(0, np.ones(4, np.uint8))
    slots.write(512, np.ones(4, np.uint8))
    assert runs(slots) == [(0, 4), (512, 4)]
    slots.own(256)
    slots.write(256, np.full(8, 7, np.uint8))
    assert runs(slots) == [(0, 516)]
