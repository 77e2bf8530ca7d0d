"""Tiles on plain lanes: every count of heads, both widths."""

import numpy as np
import pytest

from tests.support.attention_forms import form_text
from tests.support.attention_steps import check_form
from tests.support.grouped import card, decode, run


@pytest.mark.parametrize("repeat", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("width", [64, 128])
def test_every_count_of_heads_is_the_oracles(repeat: int, width: int):
    check_form(decode(2, 2 * repeat, 2, 50, width, "f32", live=True), card(3))


def test_scores_that_grow_along_the_keys_rescale_the_state():
    form = decode(1, 4, 1, 400, 64, "f32", scale=1.0)
    _, feed = form_text(form)
    feed["k"] *= np.linspace(0.1, 3.0, 400, dtype=np.float32)[None, None, :, None]
    for got, want in zip(*run(form, 1, feed), strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5)
