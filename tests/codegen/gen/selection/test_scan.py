"""Sums over the lanes before each, in the simulator."""

import numpy as np
import pytest

from poot.codegen.gen.job import open_job
from poot.codegen.gen.selection.scan import scan
from poot.codegen.kir.build import I32
from poot.codegen.kir.sim.run import simulate
from poot.codegen.kir.verify import verify
from tests.support.launch import LAVAPIPE, request_of
from tests.support.selected_forms import best_text


@pytest.mark.parametrize("lanes", [1, 2, 8, 16, 32, 64, 256])
def test_each_lane_gets_the_sum_before_it_and_all_the_sum(lanes):
    job = open_job(request_of(best_text((1, 1, 1, 4), 1, 1), "none"), LAVAPIPE, "scan", lanes)
    k = job.k
    x, y = k.param("x", "i32", lanes, "r"), k.param("y", "i32", 2 * lanes, "w")
    got = scan(job, "sums", k.load(x, k.lane()), lanes)
    k.store(y, k.lane(), got.before)
    k.store(y, k.lane() + k.lit(lanes, I32), got.all)
    kernel = k.kernel()
    verify(kernel)
    values = np.random.default_rng(0).integers(0, 9, lanes).astype(np.int32)
    out = np.zeros((2, lanes), np.int32)
    simulate(kernel, {"x": values, "y": out.reshape(-1)}, 1)
    np.testing.assert_array_equal(out[0], np.cumsum(values) - values)
    np.testing.assert_array_equal(out[1], values.sum())
