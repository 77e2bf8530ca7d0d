"""Partial states as one."""

import pytest

from tests.support.attention_forms import Form
from tests.support.attention_steps import check_form


@pytest.mark.parametrize("keys", [1, 2, 63, 64, 65, 129])
def test_lanes_that_saw_nothing_add_nothing(keys: int):
    check_form(Form(rows=2, keys=keys, lse=True))


def test_lanes_whose_keys_are_all_hidden_add_nothing():
    for seed in range(4):
        check_form(Form(rows=3, keys=70, mask="qk", fill=float("-inf"), lse=True), seed=seed)
