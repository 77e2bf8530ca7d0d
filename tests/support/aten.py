"""One ATen op by its row, run by the oracle, beside torch."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from poot.frontends.lower import lower
from poot.frontends.torch.read import read_graph
from poot.frontends.torch.table import ATEN
from poot.frontends.torch.tensors import as_numpy, as_tensor
from poot.oracle import run

Case = tuple[Any, ...]


def floats(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw) * scale


def positive(*shape: int, seed: int = 0) -> torch.Tensor:
    return floats(*shape, seed=seed).abs() + 0.25


def ints(*shape: int, lo: int = -5, hi: int = 6, seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(lo, hi, shape, generator=draw)


def bools(*shape: int, seed: int = 0) -> torch.Tensor:
    return floats(*shape, seed=seed) > 0


def edges() -> torch.Tensor:
    """Numbers at which functions of floats differ: zeros, halves, large, infinite, NaN."""
    inf = float("inf")
    numbers = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-4, -1e-4, 30.0, -30.0, inf, -inf]
    return torch.tensor([*numbers, float("nan")])


def overload(name: str) -> Callable[..., Any]:
    packet, kind = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), kind)


def graph_of(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> torch.fx.Graph:
    """A graph of one call, its tensors as placeholders, with torch's result as what it holds."""
    graph = torch.fx.Graph()
    count = 0

    def placed(value: Any) -> Any:
        nonlocal count
        if isinstance(value, torch.Tensor):
            node = graph.placeholder(f"x{count}")
            node.meta["val"] = value
            count += 1
            return node
        return [placed(v) for v in value] if isinstance(value, list) else value

    op = overload(name)
    declared = [a.name for a in op._schema.arguments if a.kwarg_only]
    first = len(op._schema.arguments) - len(declared)
    options = {**dict(zip(declared, args[first:], strict=False)), **options}
    args = args[:first]
    given = tuple(placed(a) for a in args)
    node = graph.call_function(op, given, {k: placed(v) for k, v in options.items()})
    node.meta["val"] = op(*args, **options)
    graph.output((node,) if isinstance(node.meta["val"], torch.Tensor) else _parts(graph, node))
    return graph


def _parts(graph: torch.fx.Graph, node: torch.fx.Node) -> tuple[torch.fx.Node, ...]:
    parts = []
    for n, value in enumerate(node.meta["val"]):
        part = graph.call_function(operator.getitem, (node, n))
        part.meta["val"] = value
        parts.append(part)
    return tuple(parts)


def check(name: str, *args: Any, close: float = 2e-5, **options: Any) -> None:
    """Asserts that the op's row gives what torch gives: dtype, shape, and numbers within `close`,
    relative and absolute; integers and bools exactly."""
    graph = graph_of(name, args, options)
    foreign = read_graph(graph, frozenset())
    calls = tuple(replace(c, wide=frozenset()) for c in foreign.calls)  # the row alone, in 32 bits
    imported = lower(replace(foreign, calls=calls), ATEN, "the test")
    given = [n for n in graph.nodes if n.op == "placeholder"]
    got = run(imported.graph, {n.name: as_numpy(n.meta["val"], n.name) for n in given}).outputs
    (out,) = (n for n in graph.nodes if n.op == "output")
    wanted = [n.meta["val"] for n in out.args[0]]
    assert len(got) == len(wanted)
    for x, want in zip(got, wanted, strict=True):
        tensor = as_tensor(np.ascontiguousarray(x), want)
        assert tensor.dtype == want.dtype
        assert tensor.shape == want.shape
        exact = not want.dtype.is_floating_point
        near = 0.0 if exact else close
        torch.testing.assert_close(tensor, want, rtol=near, atol=near, equal_nan=True)
