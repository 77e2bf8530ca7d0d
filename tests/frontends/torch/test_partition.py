"""What of a graph poot takes."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from poot.frontends.torch.partition import partitioned, refused


def traced(fn: Any, *args: torch.Tensor) -> torch.fx.GraphModule:
    return make_fx(fn, tracing_mode="fake")(*args)


def calls(module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [n for n in module.graph.nodes if n.op == "call_function"]


def test_a_node_is_asked_by_its_row():
    module = traced(lambda x: x[x > 0].sum() + x.sum(), torch.zeros(3))
    found = {
        str(n.target): refused(n) for n in calls(traced(lambda x: x.sin().sum(), torch.zeros(3)))
    }
    assert set(found.values()) == {None}
    whys = [why.why for n in calls(module) if (why := refused(n)) is not None]
    assert any("dynamic" in w or "integers" in w for w in whys)


def test_parts_of_several_results_go_with_their_source():
    module = traced(lambda x: x.max(1)[1] + 1, torch.zeros(2, 3))
    assert [refused(n) for n in calls(module)] == [None] * len(calls(module))


def test_what_is_known_becomes_one_part():
    module = traced(lambda x, y: (x @ y).relu() + 1, torch.zeros(2, 3), torch.zeros(3, 2))
    fused, names, left = partitioned(module)
    assert len(names) == 1
    assert left == []
    assert calls(fused) == []


def test_what_is_not_known_stays_between_its_parts():
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.cummax(x + 1, 0)[0].sin() * 2

    fused, names, left = partitioned(traced(fn, torch.zeros(4)))
    assert len(names) == 2
    assert [n.op for n in left] == ["aten.cummax.default"]
    assert left[0].why == "there is no row for it"
    assert "aten.cummax.default" in [str(n.target) for n in calls(fused)]
