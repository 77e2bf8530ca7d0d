"""One block of slots after another: widths that no vector divides, two parts of a key, splits."""

import pytest

from tests.support.selected_forms import Form
from tests.support.selected_steps import check_form


@pytest.mark.parametrize("width, shared", [(1, 0), (3, 0), (5, 2), (16, 8), (33, 1), (66, 6)])
@pytest.mark.parametrize("rows", [1, 3])
def test_keys_of_any_width_in_one_part_or_two(width, shared, rows):
    check_form(Form(width=width, shared=shared, rows=rows))


@pytest.mark.parametrize("value_width", [1, 7, 64, 65, 130])
def test_values_of_any_width(value_width):
    check_form(Form(value_width=value_width, rows=2))
