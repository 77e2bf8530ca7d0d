"""What of an fx graph depends on nothing given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from poot.frontends.torch import known
from poot.frontends.torch.known import Known


def node_of(fn: Any, *args: torch.Tensor) -> tuple[torch.fx.Node, Known]:
    """The node of a function's result."""
    graph = make_fx(fn, tracing_mode="fake")(*args).graph
    (out,) = (n for n in graph.nodes if n.op == "output")
    return out.args[0], Known()


def test_what_is_made_of_nothing_is_known_in_the_dtype_that_torch_has():
    node, held = node_of(lambda x: torch.arange(3) * 2**40, torch.zeros(1))
    assert node in held
    (array,) = held.arrays(node)
    assert array.dtype == np.int64
    assert array.tolist() == [0, 2**40, 2**41]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.float8_e5m2, torch.bool])
def test_every_dtype_has_its_numbers(dtype: torch.dtype):
    node, held = node_of(lambda x: torch.ones(2).to(dtype), torch.zeros(1))
    (array,) = held.arrays(node)
    assert array.astype(np.float64).tolist() == [1.0, 1.0]


def test_results_of_several_are_known_each():
    node, held = node_of(lambda x: torch.arange(4.0).view(2, 2).max(1)[1], torch.zeros(1))
    assert node in held
    assert held.arrays(node)[0].tolist() == [1, 1]
    assert [a.tolist() for a in held.arrays(node.args[0])] == [[1.0, 3.0], [1, 1]]


@pytest.mark.parametrize(
    "fn", [lambda x: x + 1, lambda x: torch.rand(2), lambda x: torch.empty(2)],
    ids=["of what is given", "random", "unfilled"],
)  # fmt: skip
def test_what_is_given_or_differs_each_time_is_not_known(fn: Any):
    node, held = node_of(fn, torch.zeros(2))
    assert node not in held


def test_what_is_large_is_not_known(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(known, "MOST", 3)
    node, held = node_of(lambda x: torch.arange(4), torch.zeros(1))
    assert node not in held


def test_a_constant_that_is_held_makes_known_what_is_made_of_it():
    node, held = node_of(lambda x: x * 2, torch.zeros(2))
    held.add(node.args[0], torch.tensor([1.0, 3.0]))
    assert node in held
    assert held.arrays(node)[0].tolist() == [2.0, 6.0]
