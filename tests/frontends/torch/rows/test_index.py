"""ATen ops whose addresses are data beside torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import poot
import poot.torch
from poot import ops
from poot.errors import UnsupportedOps, ValidationError
from poot.frontends.lower import lower
from poot.frontends.torch.read import read_graph
from poot.frontends.torch.rows.index import INDEX, inside
from poot.frontends.torch.table import ATEN
from poot.ops.record import recording
from tests.support.aten import Case, bools, check, floats, graph_of, ints

A, W = floats(3, 4), floats(2, 3, 4)
ROWS, BACK = torch.tensor([2, 0, 2]), torch.tensor([-1, 1, -3])
GRID = torch.tensor([[0, 1], [2, 0]])
NEW = floats(3, 2, seed=5)

CASES: dict[str, list[Case]] = {
    "embedding.default": [(A, ROWS), (A, GRID), (A, GRID, 0)],
    "index_select.default": [(A, 0, ROWS), (W, 1, ROWS), (W, -1, ROWS)],
    "index.Tensor": [(A, [ROWS]), (A, [None, BACK]), (A, [ROWS, BACK]), (W, [None, ROWS, BACK]),
                     (W, [GRID.clamp(max=1), None, GRID]), (W, [GRID[:1].clamp(max=1), BACK[:2]]),
                     (floats(1, 5), [torch.zeros(1, 1, dtype=torch.int64), GRID])],
    "gather.default": [(A, 1, ints(3, 2, lo=0, hi=4)), (A, 0, ints(2, 4, lo=0, hi=3)),
                       (W, -1, ints(2, 3, 5, lo=0, hi=4))],
    "index_copy.default": [(A, 0, torch.tensor([2, 0]), floats(2, 4, seed=5)),
                           (A, 1, torch.tensor([3]), floats(3, 1, seed=5)),
                           (A[0], 0, torch.tensor(3), torch.tensor(2.0)),
                           (torch.tensor(1.0), 0, torch.tensor([0]), torch.tensor([2.0]))],
    "index_fill.int_Scalar": [(A, 0, torch.tensor([2, 0]), 7.0)],
    "index_put.default": [(A, [torch.tensor([2])], floats(1, 4, seed=5)),
                          (A, [None, torch.tensor([1, 3])], NEW),
                          (A, [None, torch.tensor([-1])], torch.tensor(2.0)),
                          (A, [torch.tensor(1)], floats(4, seed=5))],
    "scatter.src": [(A, 1, ints(3, 2, lo=0, hi=4), NEW), (A, 0, ints(2, 4, lo=0, hi=3), A)],
    "scatter.value": [(A, 1, ints(3, 2, lo=0, hi=4), 5.0)],
}  # fmt: skip


@pytest.mark.parametrize(
    "name, case", [(n, c) for n, cs in CASES.items() for c in cs], ids=lambda x: str(x)[:24]
)
def test_a_row_gives_what_torch_gives(name: str, case: Case):
    check(name, *case)


def test_every_row_has_a_case():
    assert sorted(CASES) == sorted(INDEX)


def test_an_index_outside_fails_the_step():
    graph = graph_of("index_select.default", (A, 0, ROWS), {})
    made = lower(read_graph(graph, frozenset()), ATEN, "the test").graph
    session = poot.compile(made, "oracle").bind()
    with pytest.raises(ValidationError) as e:
        session.step(x0=A.numpy(), x1=np.array([0, 3, 1], np.int32))
    assert (e.value.index, e.value.value, e.value.bounds) == ((1,), 3, (0, 3))


@pytest.mark.parametrize("at", [-1, -3, 3])
def test_a_copy_to_an_index_below_0_or_past_the_end_fails_the_step(at: int):
    class Copies(torch.nn.Module):
        def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
            y = x.clone().index_copy_(0, i, torch.ones(1, 4))
            return y + x.index_copy(0, i, torch.ones(1, 4))

    def fn(i: torch.Tensor) -> torch.Tensor:
        return Copies()(A, i)

    index = torch.tensor([2])
    made = poot.from_torch(torch.export.export(Copies(), (A, index)))
    session = made.bind(poot.compile(made.graph, "oracle"))
    np.testing.assert_array_equal(session.step(x=A.numpy(), i=np.array([2], np.int32)), fn(index))
    with pytest.raises(ValidationError) as e:
        session.step(x=A.numpy(), i=np.array([at], np.int32))
    assert (e.value.value, e.value.bounds) == (at, (0, 3))
    compiled = torch.compile(fn, backend="poot")
    torch.testing.assert_close(compiled(index), fn(index))
    with pytest.raises(IndexError, match=f"index {at} is out of bounds"):
        compiled(torch.tensor([at]))


def test_an_add_of_rows_stays_torchs_own():
    class Adds(torch.nn.Module):
        def forward(self, i: torch.Tensor) -> torch.Tensor:
            return A.index_add(0, i, torch.ones(1, 4))

    with pytest.raises(UnsupportedOps, match="index_add"):
        poot.from_torch(torch.export.export(Adds(), (torch.tensor([2]),)))
    compiled = torch.compile(Adds(), backend="poot")
    torch.testing.assert_close(compiled(torch.tensor([2])), Adds()(torch.tensor([2])))
    with pytest.raises(RuntimeError, match="index -1 is out of bounds"):
        compiled(torch.tensor([-1]))


def test_a_proved_index_is_not_guarded():
    with recording() as recorder:
        inside(ops.iota((3,)), 3)
        assert recorder.builder.validations == []
        inside(ops.iota((3,)), 2)
        assert len(recorder.builder.validations) == 1


@pytest.mark.parametrize(
    "name, case, why",
    [
        ("index.Tensor", (A, [bools(3)]), "indices that are integers"),
        ("index_put.default", (A, [ROWS], A, True), "values that replace"),
        ("index_put.default", (A, [ROWS, ROWS], floats(3)), "an index for one axis"),
        ("index_copy.default", (floats(80, 2), 0, torch.arange(70), floats(70, 2)), "at most 64"),
    ],
)
def test_what_has_no_composition_is_refused(name: str, case: Case, why: str):
    with pytest.raises(UnsupportedOps, match=why):
        check(name, *case)
