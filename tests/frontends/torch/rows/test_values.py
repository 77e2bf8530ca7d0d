"""Operands of several dtypes."""

from __future__ import annotations

import pytest
import torch

from poot import ops
from poot.errors import TypeRuleError
from poot.frontends.torch.rows.values import in_dtype, kind_of, number, promoted
from poot.ops.record import recording

NAMES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32,
         "bool": torch.bool}  # fmt: skip


@pytest.mark.parametrize("a", NAMES)
@pytest.mark.parametrize("b", NAMES)
@pytest.mark.parametrize("shape", [(), (2,)])
def test_two_tensors_promote_as_torch_promotes_them(a: str, b: str, shape: tuple[int, ...]):
    want = torch.result_type(torch.ones(shape, dtype=NAMES[a]), torch.ones(2, dtype=NAMES[b]))
    with recording():
        assert promoted(ops.ones(shape, a), ops.ones((2,), b)) == _name(want)


@pytest.mark.parametrize("a", NAMES)
@pytest.mark.parametrize("value", [True, 2, 0.5])
def test_a_tensor_and_a_number_promote_as_torch_promotes_them(a: str, value: bool | int | float):
    want = torch.result_type(torch.ones(2, dtype=NAMES[a]), value)
    with recording():
        got = promoted(ops.ones((2,), a), value)
    assert NAMES[got] == want if want != torch.int64 else got == "i32"


def _name(dtype: torch.dtype) -> str:
    return next(n for n, d in NAMES.items() if d == dtype)


def test_a_kind_is_of_the_value():
    with recording():
        assert [kind_of(x) for x in (True, 3, 0.5, ops.ones((2,), "i32"))] == [0, 1, 2, 1]


def test_a_number_takes_the_dtype():
    with recording():
        assert number(3, "f32").dtype == "f32"
        assert number(2.0, "i32").dtype == "i32"
        assert in_dtype(ops.ones((2,), "i32"), "f32").dtype == "f32"


def test_a_fraction_is_no_integer():
    with recording(), pytest.raises(TypeRuleError, match="a whole number for i32"):
        number(0.5, "i32")
