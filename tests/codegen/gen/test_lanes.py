"""Square tiles over the lanes of a subgroup, in the simulator."""

from __future__ import annotations

import operator

import numpy as np
import pytest

from poot.codegen.gen.lanes import across, part, turned
from poot.codegen.kir.build import KernelBuilder
from poot.codegen.kir.sim.run import simulate
from poot.codegen.kir.verify import verify


@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
def test_a_tile_is_turned(lanes):
    k = KernelBuilder("turn", lanes, subgroup=lanes)
    x, y = k.param("x", "f32", lanes * lanes, "r"), k.param("y", "f32", lanes * lanes, "w")
    rows = [k.load(x, k.lane() + j * lanes) for j in range(lanes)]
    for i, row in enumerate(turned(k, rows)):
        k.store(y, k.lane() + i * lanes, row)
    kernel = k.kernel()
    verify(kernel)
    tile = np.arange(lanes * lanes, dtype=np.float32).reshape(lanes, lanes)
    got = np.zeros_like(tile)
    simulate(kernel, {"x": tile, "y": got}, 1)
    np.testing.assert_array_equal(got, tile.T)


@pytest.mark.parametrize("count", [1, 5, 8])
def test_a_part_of_the_lanes_reads_and_the_others_hold_zeros(count):
    k = KernelBuilder("part", 8)
    x, y = k.param("x", "f32", count, "r"), k.param("y", "f32", 8, "w")
    k.store(y, k.lane(), part(k, count, 8, lambda: k.load(x, k.lane())))
    got = np.full(8, 9, np.float32)
    simulate(k.kernel(), {"x": np.ones(count, np.float32), "y": got}, 1)
    np.testing.assert_array_equal(got, (np.arange(8) < count).astype(np.float32))


@pytest.mark.parametrize("lanes", [2, 4, 16])
def test_rows_are_joined_across_their_lanes(lanes):
    k = KernelBuilder("join", lanes, subgroup=lanes)
    x, y = k.param("x", "f32", lanes * lanes, "r"), k.param("y", "f32", lanes, "w")
    rows = [k.load(x, k.lane() + j * lanes) for j in range(lanes)]
    k.store(y, k.lane(), across(k, rows, operator.add))
    kernel = k.kernel()
    verify(kernel)
    tile = np.arange(lanes * lanes, dtype=np.float32).reshape(lanes, lanes)
    got = np.zeros(lanes, np.float32)
    simulate(kernel, {"x": tile, "y": got}, 1)
    np.testing.assert_array_equal(got, tile.sum(1))
