"""Grids: folded evenly, refused where nothing fits, read back right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.codegen.gen.grid import each_group, fold_grid
from poot.codegen.kir.build import KernelBuilder
from poot.codegen.kir.sim.run import simulate
from poot.errors import GridLimit
from poot.limits import PROFILES

BASELINE = PROFILES["webgpu-baseline"]
TINY = replace(BASELINE, grid=(7, 5, 1))


@pytest.mark.parametrize(
    "n, grid", [(1, (1, 1, 1)), (65535, (65535, 1, 1)), (65536, (32768, 2, 1))]
)
def test_a_count_folds_evenly(n, grid):
    assert fold_grid(n, BASELINE) == grid


def test_a_count_that_fits_no_grid_is_refused_with_its_numbers():
    with pytest.raises(GridLimit, match="36 workgroups fits no grid of 7 x 5"):
        fold_grid(36, TINY)


@pytest.mark.parametrize("groups", [1, 7, 8, 9, 29, 35])
def test_each_group_runs_once(groups):
    k = KernelBuilder("count", threads=1)
    k.param("out", "i32", groups, "w")
    with each_group(k, groups, TINY) as group:
        k.store("out", group, group + 1)
    out = np.zeros(groups, np.int32)
    simulate(k.kernel(), {"out": out}, fold_grid(groups, TINY), buffer_races=True)
    np.testing.assert_array_equal(out, np.arange(1, groups + 1))
