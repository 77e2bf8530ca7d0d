"""Places for values that are alive at different times: interval colouring into one arena.

Values are placed largest first, each at the lowest offset that is free for as long as the value
lives. Bytes are
shared only by values whose lives don't meet, so the arena doesn't grow with the number of equal
layers.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Life:
    """A value's bytes and the steps it lives through, first and last included."""

    name: str
    nbytes: int
    first: int
    last: int


def place(lives: list[Life], align: int) -> tuple[dict[str, int], int]:
    """An offset (a multiple of `align`) for each name, and the arena's size, in bytes."""
    by_step: dict[int, list[tuple[int, int]]] = {}
    offsets: dict[str, int] = {}
    size = 0
    for life in sorted(lives, key=lambda v: (-v.nbytes, v.first, v.name)):
        nbytes = max(align, -(-life.nbytes // align) * align)
        taken: list[tuple[int, int]] = []
        for step in range(life.first, life.last + 1):
            for span in by_step.get(step, ()):
                at = bisect_left(taken, span)
                if at == len(taken) or taken[at] != span:
                    insort(taken, span)
        offset = 0
        for start, stop in taken:
            if start - offset >= nbytes:
                break
            offset = max(offset, stop)
        offsets[life.name] = offset
        size = max(size, offset + nbytes)
        for step in range(life.first, life.last + 1):
            by_step.setdefault(step, []).append((offset, offset + nbytes))
    return offsets, size
