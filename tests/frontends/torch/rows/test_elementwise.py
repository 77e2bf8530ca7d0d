"""Elementwise ATen ops beside torch."""

from __future__ import annotations

import pytest
import torch

import poot
from poot.errors import UnsupportedOps
from poot.frontends.torch.rows.elementwise import ELEMENTWISE
from tests.support.aten import Case, bools, check, edges, floats, ints, positive

A, B, ROW = floats(3, 4), floats(3, 4, seed=1), floats(4, seed=2)
N, M = ints(3, 4), ints(3, 4, lo=1, hi=5, seed=1)
P, Q = bools(3, 4), bools(3, 4, seed=1)
EDGES = edges()
FINITE = EDGES[EDGES.isfinite()]

_PAIRS = {
    name: [(A, B), (A, ROW), (N, M), (A, N), (N, 2), (A, 3), (N, 1.5)]
    for name in ("add", "sub", "mul", "rsub")
}
CASES: dict[str, list[Case]] = {
    **{f"{n}.default": [(A,), (EDGES,)] for n in ("exp", "exp2", "expm1", "sigmoid", "silu")},
    **{f"{n}.default": [(A,), (EDGES,)] for n in ("tanh", "erf", "reciprocal", "square", "relu")},
    **{f"{n}.default": [(A,), (FINITE,)] for n in ("sin", "cos", "tan")},
    **{f"{n}.default": [(A,)] for n in ("sinh", "cosh")},
    **{f"{n}.default": [(positive(3, 4),), (EDGES,)] for n in ("log", "log2", "log10", "log1p")},
    **{f"{n}.default": [(positive(3, 4),), (M,)] for n in ("sqrt", "rsqrt")},
    **{f"{n}.default": [(A,), (N,), (EDGES,)] for n in ("abs", "neg", "sign", "isinf", "isnan")},
    **{f"{n}.default": [(EDGES,), (N,), (A * 3,)] for n in ("ceil", "floor", "trunc", "round")},
    **{f"{name}.Tensor": [c for c in cases if isinstance(c[1], torch.Tensor)]
       for name, cases in _PAIRS.items()},
    **{f"{name}.Scalar": [c for c in cases if not isinstance(c[1], torch.Tensor)]
       for name, cases in _PAIRS.items()},
    **{f"{n}.Tensor": [(A, B), (N, M), (A, N), (P, Q), (EDGES, EDGES.flip(0)), (N, B)]
       for n in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"{n}.Scalar": [(A, 0.5), (N, 2), (N, 1.5), (P, 1), (P, True)]
       for n in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"bitwise_{n}.Tensor": [(N, M), (P, Q), (N, P)] for n in ("and", "or", "xor")},
    **{f"bitwise_{n}.Scalar": [(N, 6)] for n in ("and", "or", "xor")},
    "bitwise_not.default": [(N,), (P,)],
    **{f"logical_{n}.default": [(P, Q), (N, A)] for n in ("and", "or", "xor")},
    "logical_not.default": [(P,), (N,), (A,)],
    "div.Tensor": [(A, B), (N, M), (A, M), (EDGES, EDGES.flip(0))],
    "div.Scalar": [(A, 3), (N, 2)],
    "div.Tensor_mode": [(A * 5, B, "floor"), (A * 5, B, "trunc"), (N, M, "floor"),
                        (N, M, "trunc"), (A, B, None)],
    "div.Scalar_mode": [(A * 5, 2, "floor"), (N, 3, "trunc"), (N, -2, "floor")],
    "floor_divide.default": [(N, M), (A * 5, B)],
    "remainder.Tensor": [(A * 5, B), (N, M), (N, -M)],
    "remainder.Scalar": [(A * 5, 2.0), (N, 3), (N, -3)],
    "fmod.Tensor": [(A * 5, B), (N, M), (N, -M)],
    "fmod.Scalar": [(A * 5, 2.0), (N, -3)],
    "maximum.default": [(A, B), (N, M), (EDGES, EDGES.flip(0))],
    "minimum.default": [(A, B), (N, M), (EDGES, EDGES.flip(0))],
    "pow.Tensor_Scalar": [(A, 2), (A, 3.0), (A, -1), (positive(3), 0.5), (A, 1.7), (N, 2),
                          (torch.tensor([0.0, 1.0, 4.0]), 1.5), (A, 0)],
    "pow.Scalar": [(2.0, A), (10, A), (-2.0, torch.tensor([0.0, 1.0, 2.0, 0.5, -1.0]))],
    "pow.Tensor_Tensor": [(positive(3, 4), B), (A, torch.tensor([2.0, 3.0, 0.5, 0.0])),
                          (torch.tensor([0.0, 0.0, 2.0]), torch.tensor([0.0, 2.0, -1.0]))],
    "gelu.default": [(A,)],
    "leaky_relu.default": [(A,), (A, 0.2)],
    "hardtanh.default": [(A,), (A, -0.5, 0.25)],
    "elu.default": [(A,), (A, 2.0)],
    "softplus.default": [(A * 20,), (A * 20, 0.5, 10)],
    "clamp.default": [(A, -0.5, 0.5), (A, None, 0.5), (N, -1, 2), (EDGES, -1.0)],
    "clamp.Tensor": [(A, B, B + 1), (A, None, ROW)],
    "clamp_min.default": [(A, 0.1)],
    "where.self": [(P, A, B), (P, A, torch.tensor(0.0)), (bools(4), N, M)],
    "masked_fill.Scalar": [(A, P, -1e9), (N, P, 7)],
    "masked_fill.Tensor": [(A, P, torch.tensor(float("-inf")))],
}  # fmt: skip


@pytest.mark.parametrize(
    "name, case", [(n, c) for n, cs in CASES.items() for c in cs], ids=lambda x: str(x)[:24]
)
def test_a_row_gives_what_torch_gives(name: str, case: Case):
    check(name, *case)


def test_every_row_has_a_case():
    assert sorted(CASES) == sorted(ELEMENTWISE)


def test_options_reach_their_rows():
    check("gelu.default", A, approximate="tanh")
    check("add.Tensor", A, B, alpha=2)
    check("sub.Tensor", N, M, alpha=3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_stay_sixteen_bits(dtype: torch.dtype):
    a, b = A.to(dtype), B.to(dtype)
    for name in ("add.Tensor", "mul.Tensor", "div.Tensor", "maximum.default"):
        check(name, a, b, close=1e-2)
    check("lt.Tensor", a, b)
    check("add.Tensor", a, B)


SMALL = torch.tensor([200, 3, 0, 255], dtype=torch.uint8)
SIGNED = torch.tensor([-128, 3, -1, 127], dtype=torch.int8)


@pytest.mark.parametrize("x", [SMALL, SIGNED], ids=["u8", "i8"])
def test_integers_of_eight_bits_wrap_as_atens_do(x: torch.Tensor):
    y = x.flip(0)
    for name in ("add.Tensor", "sub.Tensor", "mul.Tensor", "maximum.default", "minimum.default"):
        check(name, x, y)
    for name in ("eq", "lt", "ge"):
        check(f"{name}.Tensor", x, y)
    for name in ("bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_xor.Tensor"):
        check(name, x, y)
    for name in ("add.Scalar", "mul.Scalar", "remainder.Scalar"):
        check(name, x, 7)
    for name in ("bitwise_not.default", "neg.default", "abs.default", "sign.default"):
        check(name, x)
    check("div.Tensor_mode", x, y | 1, "floor")
    check("clamp.default", x, 2, 100)
    check("add.Tensor", x, torch.tensor([True, False, True, True]))


@pytest.mark.parametrize("bounds", [(-1, 2), (-3, None), (None, -3), (0, -1), (5, 2)])
def test_bounds_of_8_bits_are_what_these_hold(bounds: tuple[int | None, int | None]):
    for dtype in (torch.uint8, torch.int8):
        x = torch.tensor([0, 1, 2, 5, 100, 127], dtype=dtype)
        check("clamp.default", x, *bounds)
        check("clamp.Tensor", x, *[None if b is None else torch.tensor(b) for b in bounds])


@pytest.mark.parametrize("dtype, bound", [(torch.uint8, 300), (torch.int8, 200)])
def test_a_bound_that_8_bits_do_not_hold_is_refused(dtype: torch.dtype, bound: int):
    class Clamps(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.clamp(1, bound)

    program = torch.export.export(Clamps(), (torch.tensor([1, 2], dtype=dtype),))
    with pytest.raises(UnsupportedOps, match="clamp needs a bound in"):
        poot.from_torch(program)
