"""Where keys lie, and which of them a row may see."""

import pytest

from tests.support.attention_forms import Form
from tests.support.attention_steps import check_form


@pytest.mark.parametrize(
    "form",
    [
        Form(),
        Form(paged=True),
        Form(width=24, shared=8),
        Form(live=True),
        Form(live=True, paged=True),
    ],
    ids=str,
)
def test_keys_are_found_dense_in_pools_and_in_two_parts(form: Form):
    check_form(form)


@pytest.mark.parametrize(
    "form",
    [Form(rows=7, keys=9, causal=c, window=w) for c in (-2, 0, 2, 20) for w in (None, 1, 3, 99)],
    ids=str,
)
def test_causal_and_window_bound_the_keys_of_a_row(form: Form):
    check_form(form)
