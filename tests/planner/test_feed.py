"""What checks slots that come from the device."""

from __future__ import annotations

import numpy as np
import pytest

from poot.ir.text import parse
from poot.ir.verify import verify
from poot.oracle import run
from poot.planner.feed import OK, feed_of

TEXT = """
state v0: f32[8,4] "a" -> v4
slot  v1: f32[1,4] "x"
slot  v2: i32[] "pos" kind=pos range=(0, 8)
slot  v3: i32[2] "at" range=(-4, 2147483648)
v4: f32[8,4] = dynamic_update_slice(v0, v1, v2) axis=0
out v1
"""


@pytest.mark.parametrize(
    "pos, at, records, holds",
    [
        (7, [-4, (1 << 31) - 1], [[0, 0, 7], [0, 1, (1 << 31) - 1]], True),
        (8, [0, 0], [[1, 0, 8], [0, 1, 0]], False),
        (-1, [-5, -6], [[1, 0, -1], [2, 0, -5]], False),
    ],
)
def test_slots_are_clamped_and_reported_and_decide(pos, at, records, holds):
    feed = feed_of(parse(TEXT))
    assert feed is not None
    verify(feed)
    got = run(feed, {"pos": np.int32(pos), "at": np.array(at, np.int32), OK: np.array(True)})
    assert [r.tolist() for r in got.outputs] == records
    assert got.states["pos"] == min(max(pos, 0), 7)
    assert got.states["at"].tolist() == [max(n, -4) for n in at]
    assert got.states[OK] == holds


def test_there_is_no_word_where_no_state_is_written():
    feed = feed_of(parse(TEXT.replace('"a" -> v4', '"a" -> v0')))
    assert feed is not None
    assert [i.name for i in feed.inputs] == ["pos", "at"]


def test_there_is_no_feed_without_a_slot_of_a_range():
    assert feed_of(parse('slot v0: i32[] "at"\nout v0')) is None
