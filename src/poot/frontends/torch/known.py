# pyright: basic
"""What of an fx graph depends on nothing that it is given: torch itself says what it is, in the
dtypes that the program has."""

from __future__ import annotations

import importlib
import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from poot.frontends.torch.tensors import bits_of

# Elements of a result that is taken as a constant.
MOST = 1 << 24


class Known:
    """The known nodes of one graph. `constants` are tensors by the nodes that hold them."""

    def __init__(self, constants: Mapping[Any, Any] | None = None) -> None:
        self._values: dict[Any, Any] = dict(constants or {})
        self._answers: dict[Any, bool] = dict.fromkeys(self._values, True)

    def add(self, node: Any, tensor: Any) -> None:
        """A node that holds that tensor."""
        self._values[node] = tensor
        self._answers[node] = True

    def __contains__(self, node: Any) -> bool:
        if node not in self._answers:
            self._answers[node] = _is_fixed(node) and all(n in self for n in node.all_input_nodes)
        return self._answers[node]

    def arrays(self, node: Any) -> tuple[np.ndarray, ...]:
        """Each result of a known node, as torch computes it."""
        value = self.tensor(node)
        parts = value if isinstance(value, (tuple, list)) else (value,)
        return tuple(_exact(part) for part in parts if part is not None)

    def tensor(self, node: Any) -> Any:
        """What a known node gives."""
        fake = importlib.import_module("torch._subclasses.fake_tensor")
        torch = importlib.import_module("torch")
        with fake.unset_fake_temporarily(), torch.no_grad():
            return self._value(node)

    def _value(self, node: Any) -> Any:
        fx = importlib.import_module("torch.fx")
        todo = [node]
        while todo:
            missing = [n for n in todo[-1].all_input_nodes if n not in self._values]
            if missing:
                todo += missing
                continue
            at = todo.pop()
            if at not in self._values:
                args, options = fx.node.map_arg((at.args, at.kwargs), self._values.__getitem__)
                self._values[at] = at.target(*args, **options)
        return self._values[node]


def _is_fixed(node: Any) -> bool:
    """Whether a node gives the same whenever its operands are the same, and writes nothing."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return True
    schema = getattr(node.target, "_schema", None)
    if schema is None or schema.is_mutable or not str(node.target).startswith("aten."):
        return False
    torch = importlib.import_module("torch")
    if torch.Tag.nondeterministic_seeded in node.target.tags or _is_unfilled(node):
        return False
    value = node.meta.get("val")
    parts = value if isinstance(value, (tuple, list)) else (value,)
    return all(_is_small(part) for part in parts)


def _is_unfilled(node: Any) -> bool:
    return str(node.target).split(".")[1].startswith(("empty", "new_empty"))


def _is_small(value: Any) -> bool:
    shape = getattr(value, "shape", ())
    return all(type(n) is int for n in shape) and math.prod(shape) <= MOST


def _exact(tensor: Any) -> np.ndarray:
    """A tensor's elements in a dtype of numpy or ml_dtypes; what neither has, as f64."""
    held = tensor.detach().cpu()
    bits = bits_of(held)
    if bits is not None:
        return bits
    try:
        return held.numpy()
    except TypeError:
        return held.double().numpy()
