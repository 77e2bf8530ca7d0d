"""Row spaces and teams of lanes."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.gen.job import open_job
from poot.codegen.gen.row_reduce import Rows, Team, across_lanes
from poot.codegen.kir.sim.run import simulate
from tests.support.launch import LAVAPIPE, request_of

TEXT = """in v0: i32[4]
          v1: i32[4] = neg(v0)
          out v1"""


def test_a_row_space_counts_what_is_kept_and_folded():
    space = Rows((2, 3, 4, 1), (1, 2))
    assert (space.kept, space.folded, space.rows, space.cols) == ((2, 1), (3, 4), 2, 12)
    assert space.is_trailing
    assert not Rows((2, 3, 4), (0,)).is_trailing
    assert Rows((1, 3), (0,)).is_trailing


@pytest.mark.parametrize("adjacent", [False, True])
@pytest.mark.parametrize("lanes, rows", [(1, 8), (2, 4), (8, 1), (64, 1), (16, 4), (128, 2)])
def test_every_lane_gets_its_rows_sums(lanes, rows, adjacent):
    threads = lanes * rows
    job = open_job(request_of(TEXT, "none"), LAVAPIPE, "across", threads)
    k = job.k
    k.param("out", "i32", 2 * threads, "w")
    team = Team.of(k.lane(), lanes, rows, adjacent)
    mine = [k.lane() + 0, team.row * 1000 + team.col]
    for n, total in enumerate(across_lanes(job, team, "sums", mine, lambda a, b: a + b)):
        k.store("out", k.lane() + n * threads, total)
    out = np.zeros(2 * threads, np.int32)
    simulate(k.kernel(), {"out": out}, 1)
    lane = np.arange(threads)
    row = lane // lanes if adjacent else lane % rows
    want = np.array([lane[row == r].sum() for r in row])
    np.testing.assert_array_equal(out[:threads], want)
    cols = lanes * (lanes - 1) // 2
    np.testing.assert_array_equal(out[threads:], row * 1000 * lanes + cols)
