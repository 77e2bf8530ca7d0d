"""Graphs of symbolic extents, for extents that are known."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx._symbolic_trace import is_fx_tracing
from torch.fx.experimental.proxy_tensor import make_fx

from poot.frontends.torch.sized import sized


def symbolic(fn: Any, *args: Any) -> torch.fx.GraphModule:
    return make_fx(fn, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*args)


def values(module: torch.fx.GraphModule) -> list[Any]:
    return [n.meta["val"] for n in module.graph.nodes if n.op == "call_function"]


def test_numbers_that_follow_from_extents_stand_in_the_calls():
    def fn(n: int, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return x.reshape(-1) * (n * x.shape[0]), x.shape[0] + 1

    traced = symbolic(fn, 5, torch.ones(3, 4))
    module = sized(traced, (7, torch.ones(6, 4)))
    calls = [n for n in module.graph.nodes if n.op == "call_function"]
    assert [n.args[1:] for n in calls] == [([-1],), (42,)]
    assert [tuple(v.shape) for v in values(module)] == [(24,), (24,)]
    assert {n.name for n in calls} < {n.name for n in traced.graph.nodes}
    got, count = module(7, torch.ones(6, 4))
    assert torch.equal(got, torch.full((24,), 42.0))
    assert count == 7


def test_strides_are_those_of_the_inputs_and_held_tensors_are_shared():
    held = torch.tensor([2, 0])
    traced = symbolic(lambda x: x[:, held] + 1, torch.ones(3, 4))
    module = sized(traced, (torch.ones(4, 6).t(),))
    (node,) = (n for n in module.graph.nodes if n.op == "placeholder")
    assert (tuple(node.meta["val"].shape), node.meta["val"].stride()) == ((6, 4), (1, 6))
    (got,) = (n.target for n in module.graph.nodes if n.op == "get_attr")
    assert getattr(module, got) is getattr(traced, got)
    assert torch.equal(module(torch.ones(6, 4)), torch.full((6, 2), 2.0))


def test_extents_that_follow_from_elements_stay_open():
    module = sized(symbolic(lambda x: x.nonzero() + 1, torch.ones(3)), (torch.ones(5),))
    assert all(not isinstance(v.shape[0], int) for v in values(module))
    assert module(torch.tensor([0.0, 1, 1])).tolist() == [[2], [3]]


def test_no_trace_is_begun_and_a_check_of_numbers_is_made_once():
    seen: list[bool] = []

    def noted(x: torch.Tensor) -> torch.Tensor:
        seen.append(is_fx_tracing())
        return x

    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    extent = graph.call_function(torch.ops.aten.sym_size.int, (x, 0))
    fits = graph.call_function(operator.lt, (extent, 9))
    graph.call_function(torch.ops.aten._assert_scalar.default, (fits, "below 9"))
    graph.output(graph.call_function(noted, (x,)))
    module = sized(torch.fx.GraphModule(torch.nn.Module(), graph), (torch.ones(3),))
    assert [n.op for n in module.graph.nodes] == ["placeholder", "call_function", "output"]
    assert seen == [False]
