"""Lane maps and swizzles, against the tables of the instruction sets' own pages."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from poot.codegen.kir.frags import (
    LANE_MAPS,
    SWIZZLES,
    coords,
    elems_per_lane,
    frag_problem,
    held,
    lane_map,
    swizzle,
)
from poot.codegen.kir.nodes import Frag

pytestmark = pytest.mark.quick


def at(family: str, role: str, m: int, n: int, lane: int) -> list[tuple[int, int]]:
    r, c = coords(Frag(family, role, m, n, "f32"))
    return list(zip(r[:, lane].tolist(), c[:, lane].tolist(), strict=True))


@pytest.mark.parametrize("key", LANE_MAPS, ids="-".join)
def test_every_element_is_held_equally_often(key):
    row = LANE_MAPS[key]
    r, c = coords(Frag(*key, *row.tile, "f32"))
    count = Counter(zip(r.reshape(-1).tolist(), c.reshape(-1).tolist(), strict=True))
    copies = 1 << sum(step == (0, 0) for step in row.lane_steps)
    assert len(count) == row.tile[0] * row.tile[1]
    assert set(count.values()) == {copies}
    assert r.shape == (row.elems, row.lanes)


@pytest.mark.parametrize("lane", [0, 1, 5, 31])
def test_mma_m16n8k16_is_as_the_ptx_pages_say(lane):
    g, t = lane // 4, lane % 4
    rows = [(i, k) for k in (0, 8) for i in (g, g + 8)]
    assert at("mma", "a", 16, 16, lane) == [(i, k + 2 * t + e) for i, k in rows for e in (0, 1)]
    assert at("mma", "b", 16, 8, lane) == [(k + 2 * t + e, g) for k in (0, 8) for e in (0, 1)]
    assert at("mma", "acc", 16, 8, lane) == [(i, 2 * t + e) for i in (g, g + 8) for e in (0, 1)]
    assert at("ldmatrix", "8x8", 8, 8, lane) == [(g, 2 * t), (g, 2 * t + 1)]


@pytest.mark.parametrize("lane", [0, 33, 100, 127])
def test_a_wgmma_accumulator_is_rows_of_warps_and_blocks_of_eight_columns(lane):
    row, t = 16 * (lane // 32) + lane % 32 // 4, lane % 4
    want = [(row + 8 * r, 8 * j + 2 * t + i) for j in range(4) for r in range(2) for i in range(2)]
    assert at("wgmma", "acc", 64, 32, lane) == want


def test_an_accumulator_is_an_operand_of_the_same_registers():
    for family, m in (("mma", 16), ("wgmma", 64)):
        acc, a = (coords(Frag(family, role, m, 48, "f32")) for role in ("acc", "a"))
        np.testing.assert_array_equal(acc[0], a[0])
        np.testing.assert_array_equal(acc[1], a[1])


@pytest.mark.parametrize("lane", [0, 17, 63])
def test_mfma_16x16x16_holds_four_of_k_or_four_rows(lane):
    line, quarter = lane % 16, lane // 16
    four = range(4 * quarter, 4 * quarter + 4)
    assert at("mfma", "a", 16, 16, lane) == [(line, k) for k in four]
    assert at("mfma", "b", 16, 16, lane) == [(k, line) for k in four]
    assert at("mfma", "acc", 16, 16, lane) == [(r, line) for r in four]


@pytest.mark.parametrize("lane", [0, 9, 16, 31])
def test_wmma_16x16x16_holds_all_of_k_twice_and_every_other_row(lane):
    line, half = lane % 16, lane // 16
    assert at("wmma", "a", 16, 16, lane) == [(line, k) for k in range(16)]
    assert at("wmma", "b", 16, 16, lane) == [(k, line) for k in range(16)]
    assert at("wmma", "acc", 16, 16, lane) == [(2 * e + half, line) for e in range(8)]


def test_a_larger_frag_repeats_the_tile_columns_first():
    r, c = coords(Frag("mma", "acc", 32, 16, "f32"))
    assert list(zip(r[::4, 0].tolist(), c[::4, 0].tolist(), strict=True)) == [
        (0, 0),
        (0, 8),
        (16, 0),
        (16, 8),
    ]
    assert elems_per_lane(Frag("mma", "acc", 32, 16, "f32")) == 16


def test_the_lanes_that_share_a_row_are_those_the_masks_name():
    for key in LANE_MAPS:
        row = LANE_MAPS[key]
        r, c = coords(Frag(*key, *row.tile, "f32"))
        for axis, own in ((1, r), (0, c)):
            for mask in row.lane_masks(axis):
                np.testing.assert_array_equal(own, own[:, np.arange(row.lanes) ^ mask])


@pytest.mark.parametrize(
    "frag, axis, count",
    [
        (("wgmma", "acc", 64, 128), 1, 2),
        (("wgmma", "acc", 64, 128), 0, 32),
        (("mma", "acc", 16, 8), 0, 2),
        (("mfma", "acc", 16, 16), 1, 4),
        (("mfma", "acc", 16, 16), 0, 1),
    ],
)
def test_a_lane_has_parts_of_so_many_rows_or_columns(frag, axis, count):
    assert held(Frag(*frag, "f32"), axis) == count


@pytest.mark.parametrize(
    "frag, said",
    [
        (("mma", "acc", 16, 8), ""),
        (("coop", "acc", 5, 7), ""),
        (("mma", "acc", 16, 12), "a multiple of 16x8"),
        (("mma", "acc", 0, 8), "a multiple of 16x8"),
        (("mma", "c", 16, 8), "no lane map for mma, c"),
        (("tensor", "acc", 16, 8), "no lane map for tensor, acc"),
        (("coop", "c", 16, 8), "no lane map"),
    ],
)
def test_a_frag_that_no_instruction_has_is_none(frag, said):
    assert said in frag_problem(Frag(*frag, "f32"))
    assert bool(said) == bool(frag_problem(Frag(*frag, "f32")))


def test_an_opaque_frag_has_no_map():
    assert lane_map(Frag("coop", "acc", 16, 16, "f32")) is None
    assert elems_per_lane(Frag("coop", "acc", 16, 16, "f32")) == 8


@pytest.mark.parametrize("name", SWIZZLES)
@pytest.mark.parametrize("nbytes, pitch", [(2, 64), (2, 128), (4, 32), (1, 128)])
def test_a_swizzle_moves_whole_chunks_inside_eight_rows(name, nbytes, pitch):
    tile = np.arange(8 * pitch)
    where = swizzle(name, tile, pitch, nbytes)
    assert sorted(where) == tile.tolist()
    chunk = 16 // nbytes
    np.testing.assert_array_equal(where % chunk, tile % chunk)
    np.testing.assert_array_equal(where // pitch, tile // pitch)


def test_rows_of_128_bytes_are_the_same_under_both():
    tile = np.arange(4096)
    np.testing.assert_array_equal(swizzle("128B", tile, 64, 2), swizzle("row", tile, 64, 2))
    assert swizzle(None, tile, 64, 2) is tile


def test_the_eight_chunks_of_a_column_lie_in_eight_places():
    """What it is for: eight rows' chunks at one column meet no bank twice."""
    where = swizzle("128B", np.arange(8) * 64, 64, 2)
    assert len({w % 64 // 8 for w in where.tolist()}) == 8
