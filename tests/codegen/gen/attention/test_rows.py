"""A query row in a workgroup: lanes, and where its query lies."""

from dataclasses import replace

import pytest

from poot.planner.schedules import streaming_lanes
from tests.support.attention_forms import Form
from tests.support.attention_steps import check_form
from tests.support.launch import BASELINE


@pytest.mark.parametrize("nbytes", [4096, 2048, 512, 160])
def test_a_row_runs_by_as_many_lanes_as_fit(nbytes: int):
    limits = replace(BASELINE, workgroup_nbytes=nbytes)
    request = check_form(Form(rows=2, keys=9), limits)
    lanes = request.schedule.get("lanes")
    assert lanes == streaming_lanes(16, limits)
    assert lanes * 18 * 4 <= nbytes


def test_the_query_is_staged_only_where_it_fits_too():
    room = replace(BASELINE, workgroup_nbytes=64 * 18 * 4 + 64)
    assert check_form(Form(rows=2, keys=9), room).schedule.get("stage_q") == 1
    tight = replace(BASELINE, workgroup_nbytes=64 * 18 * 4)
    assert check_form(Form(rows=2, keys=9), tight).schedule.get("stage_q") == 0
