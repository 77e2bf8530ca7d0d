"""How two shapes of one array correspond."""

from __future__ import annotations

import math


def shape_groups(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[range, range]]:
    """The finest pairing of runs of axes with equal element counts, in order. Counts of zero pair
    as one run."""
    if math.prod(old) == 0:
        return [(range(len(old)), range(len(new)))]
    groups: list[tuple[range, range]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        i0, j0 = i, j
        a = b = 1
        if i < len(old):
            a, i = old[i], i + 1
        if j < len(new):
            b, j = new[j], j + 1
        while a != b:
            if a < b:
                a, i = a * old[i], i + 1
            else:
                b, j = b * new[j], j + 1
        groups.append((range(i0, i), range(j0, j)))
    return groups
