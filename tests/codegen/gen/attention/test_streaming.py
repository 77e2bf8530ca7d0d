"""The streaming schedule: one workgroup a query row."""

from dataclasses import replace

from poot.codegen.gen.lower import lower
from tests.support.attention_forms import Form
from tests.support.attention_steps import check_form
from tests.support.launch import BASELINE


def test_there_is_a_workgroup_for_each_query_row():
    request = check_form(Form(2, 4, 2, 3, 9))
    assert request.schedule.name == "streaming"
    (call,) = lower(request, BASELINE).calls
    assert call.grid == (24, 1, 1)


def test_the_grid_folds_past_the_devices_first_axis():
    narrow = replace(BASELINE, grid=(7, 7, 1))
    request = check_form(Form(2, 4, 2, 3, 9), narrow)
    (call,) = lower(request, narrow).calls
    assert call.grid == (6, 4, 1)
