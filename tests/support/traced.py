"""Traces a function on arrays and runs it in the oracle: what tests of `ops` compare with numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import poot
from poot.ir.dtypes import DTYPES, dtype_of, is_integer
from poot.ir.graph import Graph
from poot.ir.text import parse, show
from poot.ir.tree import Tree, unflatten
from poot.ir.verify import verify
from poot.oracle import run
from poot.trace import Spec


def spec_of(array: np.ndarray) -> Spec:
    """A weight, or, for integers, a slot whose range is what the array holds."""
    dtype = dtype_of(array.dtype)
    assert dtype is not None, array.dtype
    if is_integer(dtype) and array.size:
        return poot.slot(array.shape, dtype, range=(int(array.min()), int(array.max()) + 1))
    return poot.weight(array.shape, dtype)


def graph_of(fn: Callable[..., object], *arrays: np.ndarray) -> Graph:
    """fn traced on specs of the arrays; verified, and equal to its own text read back."""
    graph = poot.trace(fn, tuple(spec_of(a) for a in arrays))
    verify(graph)
    assert parse(show(graph)) == graph
    return graph


def evaluate(fn: Callable[..., object], *arrays: np.ndarray, f64: bool = False) -> object:
    """What fn gives on the arrays, nested as fn nests it."""
    graph = graph_of(fn, *arrays)
    names = [i.name for i in graph.inputs][: len(arrays)]
    result = run(graph, dict(zip(names, arrays, strict=True)), f64=f64)
    assert isinstance(graph.tree, Tree)
    return unflatten(graph.tree, result.outputs)


def value(fn: Callable[..., object], *arrays: np.ndarray, f64: bool = False) -> np.ndarray:
    """`evaluate` of a function that gives one array."""
    result = evaluate(fn, *arrays, f64=f64)
    assert isinstance(result, np.ndarray)
    return result


def normal(seed: int, *shape: int, dtype: str = "f32") -> np.ndarray:
    """Unit-normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[dtype].numpy)
