"""Powers of two, which lane counts are."""

from __future__ import annotations


def power_of_two_below(n: int) -> int:
    """The largest power of two that is at most n (n >= 1)."""
    return 1 << (n.bit_length() - 1)
