"""Powers of two."""

from __future__ import annotations

from poot.planner.powers import power_of_two_below


def test_the_largest_power_of_two_below():
    assert [power_of_two_below(n) for n in (1, 2, 3, 4, 63, 64, 65)] == [1, 2, 2, 4, 32, 64, 64]
