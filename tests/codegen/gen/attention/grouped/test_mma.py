"""Tiles on matrix units: every count of heads, every width, both 16-bit dtypes."""

import numpy as np
import pytest

from tests.support.attention_forms import form_text
from tests.support.attention_steps import check_form
from tests.support.grouped import card, decode, run


@pytest.mark.parametrize("repeat", [1, 2, 3, 5, 8])
def test_heads_past_the_last_are_computed_and_never_stored(repeat: int):
    check_form(decode(2, 2 * repeat, 2, 50, 64, live=True), card(3))


@pytest.mark.parametrize("width", [64, 128, 256])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_every_width_is_the_oracles(width: int, dtype: str):
    check_form(decode(2, 4, 2, 40, width, dtype, scale=width**-0.5), card(3))


def test_scores_that_grow_along_the_keys_rescale_the_state():
    form = decode(1, 4, 1, 400, 64, scale=1.0)
    _, feed = form_text(form)
    ramp = np.linspace(0.1, 3.0, 400)[None, None, :, None]
    feed["k"] = (feed["k"].astype(np.float32) * ramp).astype(feed["k"].dtype)
    for got, want in zip(*run(form, 1, feed), strict=True):
        np.testing.assert_allclose(got.astype(float), want.astype(float), atol=3e-2)


def test_large_scores_of_either_sign_keep_their_order():
    form = decode(1, 4, 1, 64, 64, "f16", scale=30.0)
    _, feed = form_text(form)
    for got, want in zip(*run(form, 1, feed), strict=True):
        np.testing.assert_allclose(got.astype(float), want.astype(float), atol=4e-3)
