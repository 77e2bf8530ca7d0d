"""Masks, biases, softcaps: hidden keys weigh nothing, finite masks are ordinary numbers."""

import numpy as np
import pytest

from tests.support.attention_forms import form_text
from tests.support.attention_steps import check_form
from tests.support.grouped import card, decode, run

DTYPES = ("bf16", "f32")
INF = float("inf")
FORMS = (
    {"softcap": 3.0},
    {"mask": "k"},
    {"mask": "hk", "live": True},
    {"mask": "bk", "fill": -1e9},
    {"mask": "bhqk", "fill": -INF, "live": True, "paged": True},
    {"mask": "h", "softcap": 4.0, "live": True, "sink": True, "lse": True},
)


@pytest.mark.parametrize("rest", FORMS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_score_is_the_oracles(dtype: str, rest: dict[str, object]):
    check_form(decode(2, 8, 2, 150, 64, dtype, **rest), card(3))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_with_no_visible_key_is_nan_and_touches_no_other(dtype: str):
    form = decode(3, 4, 2, 60, 64, dtype, mask="bk", fill=-INF, lse=True)
    _, feed = form_text(form)
    feed["mask"][1] = False
    got, want = run(form, 3, feed)
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine.astype(float), theirs.astype(float), atol=3e-2)
    assert np.isnan(got[0][1].astype(float)).all()
    assert (got[1][1] == -INF).all()


@pytest.mark.parametrize("least", [-1e9, float(np.finfo(np.float32).min)])
def test_a_row_of_the_same_finite_mask_is_the_mean_of_its_values(least: float):
    form = decode(2, 4, 2, 60, 64, "f32", mask="bk", fill=least)
    _, feed = form_text(form)
    feed["mask"][0] = False
    (got,), (want,) = run(form, 3, feed)
    np.testing.assert_allclose(got, want, atol=2e-5)
    mean = feed["v"][0].mean(axis=1)
    np.testing.assert_allclose(got[0, :, 0], np.repeat(mean, 2, axis=0), atol=2e-5)
