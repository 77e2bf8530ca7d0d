"""The host's copy of a space of slots, and which of its bytes the device hasn't got yet.

All that changed between two runs goes over in as few copies as may be: runs of bytes close to one
another are one, with what lies between them, but where a slot in between came from the device.
"""

from __future__ import annotations

import numpy as np

# Bytes that are copied along rather than begun anew.
_GAP_NBYTES = 4096
Span = tuple[int, int]


class StagedSlots:
    """Bytes [0, nbytes) of one space; offsets and sizes are whole words."""

    def __init__(self, nbytes: int) -> None:
        self.data = np.zeros(nbytes, np.uint8)
        self._view = self.data.data
        self._dirty: list[Span] = []
        self._foreign: dict[int, int] = {}  # first byte of a slot that the device knows alone: end

    def write(self, first: int, raw: np.ndarray) -> None:
        """New bytes from `first` on."""
        if raw.size:
            self.data[first : first + raw.size] = raw
            self._dirty.append((first, first + raw.size))

    def write_whole(self, first: int, raw: bytes) -> None:
        """A whole slot, which the host knows from here on."""
        if self._foreign:
            self.own(first)
        last = first + len(raw)
        self._view[first:last] = raw
        self._dirty.append((first, last))

    def lose(self, first: int, nbytes: int) -> None:
        """A slot whose bytes the device has from elsewhere. What was to be sent of it is not."""
        end = first + nbytes
        self._foreign[first] = end
        self._dirty = [d for d in self._dirty if d[1] <= first or end <= d[0]]

    def own(self, first: int) -> None:
        """A slot that is about to be written whole: the host knows it again."""
        self._foreign.pop(first, None)

    def _may_join(self, a: int, b: int) -> bool:
        """Whether bytes [a, b) between two runs may be copied along."""
        if b - a > _GAP_NBYTES:
            return False
        return all(end <= a or b <= first for first, end in self._foreign.items())

    def runs(self) -> list[tuple[int, np.ndarray]]:
        """(first byte, bytes) of what has to be copied, in order."""
        if not self._foreign and self._dirty:
            first, last = min(self._dirty)[0], max(d[1] for d in self._dirty)
            if last - first <= _GAP_NBYTES:
                return [(first, self.data[first:last])]
        merged: list[list[int]] = []
        for first, last in sorted(self._dirty):
            if merged and (first <= merged[-1][1] or self._may_join(merged[-1][1], first)):
                merged[-1][1] = max(merged[-1][1], last)
            else:
                merged.append([first, last])
        return [(first, self.data[first:last]) for first, last in merged]

    def span(self, most: int) -> Span | None:
        """[first, last) of all that has to be copied, as one run of up to `most` bytes; (0, 0)
        where nothing has; None where it takes several runs, or more."""
        dirty = self._dirty
        if len(dirty) == 1:
            (only,) = dirty
            return only if only[1] - only[0] <= most else None
        if not dirty:
            return 0, 0
        if self._foreign:
            return None
        first, last = min(dirty)[0], max(d[1] for d in dirty)
        return (first, last) if last - first <= most else None

    def view(self, first: int, last: int) -> memoryview:
        """The bytes [first, last), until they are written again."""
        return self._view[first:last]

    def done(self) -> None:
        """All runs are on the device."""
        self._dirty.clear()

    def copy(self) -> StagedSlots:
        other = StagedSlots(0)
        other.data = self.data.copy()
        other._view = other.data.data
        other._dirty, other._foreign = list(self._dirty), dict(self._foreign)
        return other
