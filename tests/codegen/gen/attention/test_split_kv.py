"""The split schedule: partial states and their merge."""

from dataclasses import replace

import pytest

from poot.codegen.gen.lower import lower
from tests.support.attention_forms import DECODES, Form
from tests.support.attention_steps import check_form
from tests.support.launch import BASELINE


@pytest.mark.parametrize("form", DECODES, ids=str)
def test_every_split_decode_is_the_oracles(form: Form):
    assert check_form(form, BASELINE).schedule.name == "split_kv"


@pytest.mark.parametrize("seed", range(3))
def test_splits_past_the_live_length_publish_nothing(seed: int):
    form = Form(1, 1, 1, 1, 1024, live=True, lse=True)
    request = check_form(form, BASELINE, seed)
    assert request.schedule.get("splits") == 8


def test_two_launches_share_a_scratch_of_a_state_a_split():
    request = check_form(Form(1, 1, 1, 1, 300), BASELINE)
    partials, combine = lower(request, BASELINE).calls
    assert partials.grid == (request.schedule.get("splits"), 1, 1)
    assert combine.grid == (1, 1, 1)
    assert request.scratch[-1].elems == request.schedule.get("splits") * (16 + 2)


def test_rows_that_fill_the_device_are_not_split():
    few = replace(BASELINE, compute_units=1)
    assert check_form(Form(1, 1, 1, 1, 300), few).schedule.name == "streaming"
