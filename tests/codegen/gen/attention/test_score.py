"""Scale, softcap and mask, in that order."""

import pytest

from tests.support.attention_forms import Form
from tests.support.attention_steps import check_form


@pytest.mark.parametrize("width", [1, 3, 4, 5, 8, 33])
def test_every_width_is_summed_whole(width: int):
    check_form(Form(width=width, rows=2, keys=9))


@pytest.mark.parametrize(
    "form",
    [
        Form(softcap=1.0, mask="qk"),
        Form(softcap=1.0, mask="k", fill=float("-inf")),
        Form(mask="hqk", fill=-1e9),
        Form(mask="b"),
    ],
    ids=str,
)
def test_the_cap_stands_before_the_mask(form: Form):
    check_form(form)
