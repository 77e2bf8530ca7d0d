"""From a folded state to results."""

import pytest

from tests.support.attention_forms import Form
from tests.support.attention_steps import check_form
from tests.support.launch import BASELINE, check_step

TRANSPOSED = """
in v0: f32[1,2,3,8]
in v1: f32[1,1,5,8]
in v2: f32[1,1,5,8]
v3: f32[1,2,3,8] = attention(v0, v1, v2) operands=(q, k, v) scale=0.5
v4: f32[1,3,2,8] = transpose(v3) perm=(0, 2, 1, 3)
v5: f32[3,16] = reshape(v4) shape=(3, 16)
v6: f32[3,16] = neg(v5)
out v6
"""


def test_an_epilogue_moves_and_changes_what_is_stored():
    check_step(TRANSPOSED, "attention", within=2e-5)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("value_width", [16, 33])
def test_a_narrow_result_is_rounded_once_and_packed(dtype: str, value_width: int):
    check_form(Form(rows=2, keys=9, dtype=dtype, value_width=value_width), BASELINE)


@pytest.mark.parametrize("form", [Form(sink=True), Form(sink=True, lse=True, causal=46)], ids=str)
def test_a_sink_joins_the_denominator_alone(form: Form):
    check_form(form)
