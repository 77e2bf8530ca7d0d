"""What a traced value refuses, by name and with a remedy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import poot
from poot.errors import TraceError
from poot.ops import Array
from poot.ops.refusals import grad, value_and_grad


def assign(x: Array) -> None:
    x[0] = 1.0


@pytest.mark.parametrize(
    "fn, message",
    [
        (lambda x: 1 if x[0] > 0 else 2, r"bool\(\) needs a value known .* write ops.where"),
        (lambda x: x[0] > 0 and x[1] > 0, r"bool\(\)"),
        (lambda x: float(x[0]), r"float\(\).*Write x.astype\('f32'\)"),
        (lambda x: int(x[0]), r"int\(\).*Write x.astype\('i32'\)"),
        (lambda x: complex(x[0]), r"complex\(\)"),
        (lambda x: range(x.astype("i32")[0]), r"an index, range\(\) or a shape"),
        (lambda x: 1.0 in x, r"in needs .*Write ops.any"),
        (assign, r"item assignment .*Write ops.dynamic_update_slice"),
        (np.asarray, r"numpy conversion"),
        (lambda x: np.concatenate([x, x]), r"numpy.concatenate .*Write ops.concatenate"),
        (lambda x: x.item(), r"item\(\)"),
        (lambda x: x.tolist(), r"tolist\(\)"),
        (lambda x: x.numpy(), r"numpy\(\)"),
        (lambda x: x.backward(), r"backward\(\) needs gradients.*Gradients are not in poot"),
        (lambda x: x.grad, r"grad needs gradients.*Gradients are not in poot"),
    ],
)
def test_a_traced_value_has_no_number_yet(fn: Callable[[Array], object], message: str):
    with pytest.raises(TraceError, match=message) as error:
        poot.trace(lambda x: fn(x), (poot.weight((3,)),))
    assert error.value.loc.startswith(__file__)


def test_gradients_are_refused_outside_a_trace_too():
    for fn in (grad, value_and_grad):
        with pytest.raises(TraceError, match="Gradients are not in poot"):
            fn(len, argnums=0)
