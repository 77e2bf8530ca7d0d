# pyright: basic
"""A JAX function and its arguments as a `Foreign`: trees of arrays become inputs with names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from poot.errors import TraceError
from poot.extras import library
from poot.frontends.foreign import Foreign, Given, Ref
from poot.frontends.jax.arrays import as_numpy, is_concrete, type_of
from poot.frontends.jax.read import Calls
from poot.ir.graph import Const, Slot, State, Storage, TensorType, Weight
from poot.ops.kinds import wholes
from poot.ops.record import device_bytes

# Kinds of numpy's dtypes: objects, texts, bytes, times.
_NO_NUMBERS = "OUSMm"


@dataclass(frozen=True, slots=True)
class Leaf:
    """An array of the arguments: its name, what it is ("weight", "state" or "slot"), itself, and
    its aval once the function is traced."""

    name: str
    kind: str
    value: Any


def read_function(
    fn: Callable[..., object], args: Sequence[object], weights: Sequence[int] | None,
    states: Sequence[int],
) -> Foreign:  # fmt: skip
    """The function, called with arrays like these, as a Foreign. Raises TraceError on arguments
    that don't fit it, on what is no array, and on states that it doesn't give back."""
    return _Reader(fn, args, weights, states).foreign()


class _Reader:
    """One function at work."""

    def __init__(
        self, fn: Any, args: Sequence[Any], weights: Sequence[int] | None, states: Sequence[int]
    ) -> None:
        self.jax = library("jax", "from_jax")
        self.tree = self.jax.tree_util
        self.args = tuple(args)
        self.is_module = callable(fn) and not self.tree.all_leaves([fn])
        self.fn = fn
        self.states = self._places("states", states)
        if weights is None:
            is_tree = bool(self.args) and not self.tree.all_leaves([self.args[0]])
            weights = (0,) if is_tree and not self.is_module and 0 not in self.states else ()
        self.weights = self._places("weights", weights)
        self.leaves: list[Leaf] = []
        self.givens: list[Given] = []
        self.by_memory: dict[int, Ref] = {}

    def _places(self, what: str, given: object) -> tuple[int, ...]:
        """Numbers of arguments. Raises TraceError on what is none."""
        found = wholes(given)
        if found is None or any(not 0 <= n < len(self.args) for n in found):
            seen = f"{what}={given!r}, of {len(self.args)} arguments"
            raise TraceError(f"from_jax needs numbers of arguments: {seen}")
        return found

    def foreign(self) -> Foreign:
        names = _names(self.fn, self.args)
        trees = [self._flat(self.fn, "", "weight")] if self.is_module else []
        for n, (name, arg) in enumerate(zip(names, self.args, strict=True)):
            kind = "weight" if n in self.weights else "state" if n in self.states else "slot"
            trees.append(self._flat(arg, name, kind))
        closed, shape = self._traced(trees)
        calls = Calls()
        ins = [
            self._given(calls, leaf, aval)
            for leaf, aval in zip(self.leaves, closed.in_avals, strict=True)
        ]
        consts = [self._closed_over(calls, c, n) for n, c in enumerate(closed.consts)]
        outs = calls.run(closed.jaxpr, consts, ins)
        nested = self.tree.tree_unflatten(self.tree.tree_structure(shape), outs)
        outputs, pairs = self._paired(nested, shape) if self.states else (nested, ())
        return Foreign(tuple(self.givens), tuple(calls.calls), outputs, pairs)

    def _flat(self, value: Any, prefix: str, kind: str) -> tuple[Any, list[Any]]:
        """(the tree, its leaves with a number for each array and the others as they are)."""
        paths, tree = self.tree.tree_flatten_with_path(value)
        held: list[Any] = []
        for path, leaf in paths:
            if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
                held.append(_Fixed(leaf))
                continue
            inner = self.tree.keystr(path, simple=True, separator=".").removesuffix(".value")
            name = ".".join(part for part in (prefix, inner) if part)
            if isinstance(leaf.dtype, np.dtype) and leaf.dtype.kind in _NO_NUMBERS:
                # The function would meet it first, and jax has other words for it.
                raise TraceError(f"from_jax needs arrays of numbers: {name} is of {leaf.dtype}")
            held.append(len(self.leaves))
            self.leaves.append(Leaf(name, kind, leaf))
        return tree, held

    def _traced(self, trees: list[tuple[Any, list[Any]]]) -> tuple[Any, Any]:
        """(the closed jaxpr of a function of the leaves, the shapes of its results)."""

        def flat(*arrays: Any) -> Any:
            whole = [
                self.tree.tree_unflatten(
                    tree, [x.value if isinstance(x, _Fixed) else arrays[x] for x in held]
                )
                for tree, held in trees
            ]
            return whole[0](*whole[1:]) if self.is_module else self.fn(*whole)

        shapes = [
            self.jax.ShapeDtypeStruct(leaf.value.shape, leaf.value.dtype) for leaf in self.leaves
        ]
        return self.jax.make_jaxpr(flat, return_shape=True)(*shapes)

    def _given(self, calls: Calls, leaf: Leaf, aval: Any) -> Ref:
        type = type_of(aval)
        if isinstance(type, str):
            raise TraceError(f"from_jax needs arrays of poot's dtypes: {leaf.name} is {type}")
        if leaf.kind == "weight":
            return self._held(calls, leaf.name, type, leaf.value)
        array = None
        if leaf.kind == "state" and is_concrete(leaf.value):
            array = as_numpy(leaf.value, leaf.name)
            array = array if array.any() else None
        storage: Storage = State() if leaf.kind == "state" else Slot()
        return self._add(calls, leaf.name, type, storage, array)

    def _held(self, calls: Calls, name: str, type: TensorType, value: Any) -> Ref:
        """A weight, or a constant: integers, and floats that aren't all finite."""
        if not is_concrete(value):
            return self._add(calls, name, type, Weight(), None)
        if id(value) in self.by_memory:  # weights that are tied
            return self.by_memory[id(value)]
        array = as_numpy(value, name)
        is_known = array.dtype.kind in "iub" or not np.isfinite(array.astype(np.float32)).all()
        if is_known:
            ref = self._add(calls, name, type, Const(device_bytes(array, name)[1]), None)
        else:
            ref = self._add(calls, name, type, Weight(), array)
        self.by_memory[id(value)] = ref
        return ref

    def _closed_over(self, calls: Calls, value: Any, n: int) -> object:
        """An array that the function had at hand without an argument for it."""
        type = type_of(value)
        if isinstance(type, str) or not type.shape:
            return calls.const(value)
        return self._held(calls, f"closed.{n}", type, value)

    def _add(self, calls: Calls, name: str, type: TensorType, storage: Storage, array: Any) -> Ref:
        ref = calls.ref()
        self.givens.append(Given(ref, name, type, storage, array))
        return ref

    def _paired(self, nested: Any, shape: Any) -> tuple[object, tuple[tuple[str, Ref], ...]]:
        """(the outputs, each State with what it becomes)."""
        if not isinstance(nested, tuple) or len(nested) != 2:
            got = type(nested).__name__
            raise TraceError(
                f"from_jax needs (outputs, states) of a function with states: got {got}"
            )
        held = [self.args[n] for n in self.states]
        wanted: Any = held[0] if len(held) == 1 else tuple(held)
        if self.tree.tree_structure(shape[1]) != self.tree.tree_structure(wanted):
            want, got = self.tree.tree_structure(wanted), self.tree.tree_structure(shape[1])
            raise TraceError(f"from_jax needs states nested as they came, {want}: got {got}")
        before = [leaf for leaf in self.leaves if leaf.kind == "state"]
        after = zip(self.tree.tree_leaves(nested[1]), self.tree.tree_leaves(shape[1]), strict=True)
        pairs: list[tuple[str, Ref]] = []
        for leaf, (ref, aval) in zip(before, after, strict=True):
            if type_of(aval) != type_of(leaf.value):
                what = f"{type_of(leaf.value)} for state {leaf.name}"
                raise TraceError(f"from_jax needs {what}: got {type_of(aval)}")
            pairs.append((leaf.name, ref))
        return nested[0], tuple(pairs)


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A leaf that is no array, and stays what it is."""

    value: Any


def _names(fn: Any, args: tuple[Any, ...]) -> list[str]:
    """The names of the arguments; of those that a signature collects, with their numbers."""
    if not callable(fn):
        raise TraceError(f"from_jax needs a function: got {type(fn).__name__}")
    try:
        bound = inspect.signature(fn).bind(*args)
    except (TypeError, ValueError) as e:
        named = getattr(fn, "__name__", type(fn).__name__)
        raise TraceError(f"from_jax needs arguments that fit {named}: {e}") from None
    names: list[str] = []
    for name, parameter in bound.signature.parameters.items():
        if name in bound.arguments and parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{name}.{n}" for n in range(len(bound.arguments[name]))]
        elif name in bound.arguments:
            names.append(name)
    return names
