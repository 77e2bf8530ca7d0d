"""Rows of a tile: where they stand, also where the last tile is not full."""

import pytest

from poot.planner.request import Schedule
from tests.support.selected_forms import Form
from tests.support.selected_steps import check_form


def schedule(**numbers: int) -> Schedule:
    return Schedule("selected", tuple(sorted(numbers.items())))


@pytest.mark.parametrize("heads", [1, 2, 3, 6])
@pytest.mark.parametrize("lanes, block", [(16, 16), (32, 8), (8, 1), (64, 64)])
def test_heads_lanes_and_blocks_of_any_size_give_the_same(heads, lanes, block):
    form = Form(2, 12, 2, 1, 70, 20, 18, 4, 6)
    check_form(
        form,
        schedule=schedule(lanes=lanes, threads=lanes, heads=heads, rows=1, block=block, splits=1),
    )


def test_a_last_tile_of_fewer_rows_stores_those_alone():
    for rows in (1, 3, 5, 9, 17):
        check_form(Form(rows=rows, keys=40))
