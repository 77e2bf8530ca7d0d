"""ATen reductions and orders beside torch."""

from __future__ import annotations

import pytest
import torch

from poot.errors import UnsupportedOps
from poot.frontends.torch.rows.reduce import REDUCE
from tests.support.aten import Case, bools, check, edges, floats, ints

A, N, W = floats(3, 5), ints(3, 5), floats(2, 3, 4)
P = bools(3, 5)
TIES = torch.tensor([[1.0, 3.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
LOWEST = torch.tensor([3, -(2**31), 2**31 - 1, -(2**31)], dtype=torch.int32)
ALIKE = [(A, 1), (A, 0, True), (W, -1)]

CASES: dict[str, list[Case]] = {
    "sum.default": [(A,), (N,), (P,)],
    "sum.dim_IntList": [(A, [1]), (W, [0, 2], True), (N, [0]), (P, [1]), (W, None)],
    "mean.default": [(A,)],
    "mean.dim": [(A, [1]), (W, [0, 2], True), (W, [-1])],
    "amax.default": [(A, [1]), (W, [0, 2], True), (N, [0]), (A,), (P, [1]),
                     (N.to(torch.int8), [0])],
    "amin.default": [(A, [1]), (W, [0, 2], True), (N, [0]), (A,), (P, [1]),
                     (N.to(torch.int8), [0])],
    "max.default": [(A,), (edges(),)],
    "min.default": [(A,), (N,)],
    "max.dim": [*ALIKE, (edges(), 0), (P, 1), (N[:, :3] * torch.tensor([1, 7, 31]), 1)],
    "min.dim": [*ALIKE, (edges(), 0), (P, 0)],
    "any.default": [(P,), (N,)],
    "any.dim": [(P, 1), (N, 0, True)],
    "any.dims": [(P, [0, 1])],
    "all.default": [(P,), (N,)],
    "all.dim": [(P, 1), (N, 0, True)],
    "all.dims": [(P, [0, 1])],
    "argmax.default": [(A, 1), (A, 0, True), (A,), (TIES, 1),
                       (edges(), 0), (edges(),)],
    "argmin.default": [(A, 1), (A,), (TIES, 1), (edges(), 0), (LOWEST, 0)],
    "var.correction": [(A, [1]), (W, [0, 2])],
    "var_mean.correction": [(A, [1])],
    "cumsum.default": [(A, 1), (N, 0), (P, 1), (W, -1), (floats(1, 1), 1), (torch.tensor(3.0), 0)],
    "topk.default": [(A, 2), (A, 2, 0), (A, 3, 1, False), (edges(), 1),
                     (N[0, :3], 3, 0, False), (torch.tensor(2.0), 1)],
    "sort.default": [(A,), (A, 0), (A, 1, True), (torch.tensor(2.0),)],
    "sort.stable": [(A, True), (TIES, True, 1, False), (TIES, True, 1, True),
                    (edges(), True), (edges(), True, 0, True), (LOWEST, True)],
    "logsumexp.default": [(A, [1]), (W, [0, 2], True),
                          (torch.full((2, 3), float("-inf")), [1])],
}  # fmt: skip


@pytest.mark.parametrize(
    "name, case", [(n, c) for n, cs in CASES.items() for c in cs], ids=lambda x: str(x)[:24]
)
def test_a_row_gives_what_torch_gives(name: str, case: Case):
    if name == "sort.stable":
        x, stable, *rest = case
        check(name, x, stable=stable, **dict(zip(("dim", "descending"), rest, strict=False)))
        return
    check(name, *case)


def test_every_row_has_a_case():
    assert sorted(CASES) == sorted(REDUCE)


def test_options_reach_their_rows():
    check("var.correction", A, [1], correction=0, keepdim=True)
    check("var_mean.correction", A, [1], correction=0, keepdim=True)
    check("sum.dim_IntList", N, [1], dtype=torch.float32)
    check("cumsum.default", N, 1, dtype=torch.float32)


def test_sums_of_sixteen_bits_are_held_in_thirty_two():
    check("sum.dim_IntList", floats(2, 300).to(torch.bfloat16), [1], close=1e-2)
    check("cumsum.default", floats(2, 40).to(torch.bfloat16), 1, close=2e-2)


def test_a_variance_without_degrees_of_freedom_is_refused():
    with pytest.raises(UnsupportedOps, match="more elements than the correction"):
        check("var.correction", floats(3, 1), [1])
