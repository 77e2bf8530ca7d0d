# pyright: basic
"""A graph of symbolic extents for the extents of one call.

The graph is walked over fake tensors and copied node by node. Nothing is traced: torch's flag of a
trace is one of the whole process, and other threads run what they compiled in the meantime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.node import map_arg

# What a node's meta says of the extents that it was traced with.
_OF_EXTENTS = ("val", "tensor_meta", "unbacked_bindings")


def sized(module: Any, inputs: Sequence[Any]) -> Any:
    """The module for inputs of these extents: numbers that follow from them stand in its calls, and
    what each call gives has static extents. Nodes keep their names and lines; the inputs stay as
    they are, and their numbers are used no more. Tensors that it holds are shared."""
    walk = _Walk(module, inputs)
    with walk.mode, torch.no_grad():
        for node in module.graph.nodes:
            walk.take(node)
    return torch.fx.GraphModule(module, walk.graph)


class _Walk:
    """The copy at work: `values` has what each node gives, fake; `put` what stands for it in the
    copy, a node or a number."""

    def __init__(self, module: Any, inputs: Sequence[Any]) -> None:
        self.module, self.inputs = module, iter(inputs)
        self.mode = FakeTensorMode(
            shape_env=ShapeEnv(), static_shapes=True, allow_non_fake_inputs=True
        )
        self.graph = torch.fx.Graph()
        self.values: dict[Any, Any] = {}
        self.put: dict[Any, Any] = {}

    def take(self, node: Any) -> None:
        if node.op == "output":
            self._copy(node, None)
            return
        value = self.values[node] = self._value(node)
        is_number = isinstance(value, (bool, int, float))
        if node.op == "placeholder":
            made = self._copy(node, value)
            self.put[node] = value if is_number else made
        elif is_number:
            self.put[node] = value
        elif value is not None or self._is_of_nodes(node):
            self.put[node] = self._copy(node, value)

    def _value(self, node: Any) -> Any:
        if node.op == "placeholder":
            return self._fake(next(self.inputs))
        if node.op == "get_attr":
            held = self.module
            for name in node.target.split("."):
                held = getattr(held, name)
            return self._fake(held)
        args = map_arg(node.args, self.values.__getitem__)
        kwargs = map_arg(node.kwargs, self.values.__getitem__)
        return node.target(*args, **kwargs)

    def _fake(self, value: Any) -> Any:
        is_tensor = isinstance(value, torch.Tensor)
        return self.mode.from_tensor(value, static_shapes=True) if is_tensor else value

    def _is_of_nodes(self, node: Any) -> bool:
        """Whether a call that gives nothing takes more than numbers: a check of numbers was made
        here, and holds at every call of these extents."""
        return any(isinstance(self.put.get(n), torch.fx.Node) for n in node.all_input_nodes)

    def _copy(self, node: Any, value: Any) -> Any:
        made = self.graph.node_copy(node, self.put.__getitem__)
        made.meta = {k: v for k, v in node.meta.items() if k not in _OF_EXTENTS}
        if node.op not in ("output", "get_attr"):
            made.meta["val"] = value
        return made
