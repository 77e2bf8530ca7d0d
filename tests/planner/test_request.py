"""A request as data."""

from __future__ import annotations

import pytest

from poot.planner.request import Schedule


def test_a_schedule_gives_its_numbers_by_name():
    schedule = Schedule("streaming", (("lanes", 64), ("stage_q", 1)))
    assert schedule.get("lanes") == 64
    with pytest.raises(KeyError, match="splits"):
        schedule.get("splits")
