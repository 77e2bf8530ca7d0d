"""`@poot.jit`: trace, compile and bind at the first call for each set of argument types.

Sugar over the stages: write them out where there are Weights, States or several entry points.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import cast, overload

import numpy as np

from poot.api import compile
from poot.errors import TraceError
from poot.ir.dtypes import dtype_of
from poot.ir.tree import flatten, unflatten
from poot.session import Session
from poot.trace import RESERVED, Spec, signature_of, slot, trace

Function = Callable[..., object]


def _array(name: str, value: object) -> np.ndarray:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as e:
        raise TraceError(f"jit needs arrays and numbers: {name} is none: {e}") from e
    if not isinstance(value, np.ndarray):  # a Python number, or a list of them
        narrow = {np.dtype(np.float64): np.float32, np.dtype(np.int64): np.int32}
        array = array.astype(narrow.get(array.dtype, array.dtype))
    if dtype_of(array.dtype) is None:
        raise TraceError(f"jit needs arrays of poot's dtypes: {name} is {array.dtype}; cast it")
    return array


def _spec(array: np.ndarray) -> Spec:
    dtype = dtype_of(array.dtype)
    assert dtype is not None, array.dtype
    return slot(array.shape, dtype)


@overload
def jit(fn: Function) -> Function: ...
@overload
def jit(*, target: str = "auto") -> Callable[[Function], Function]: ...
def jit(
    fn: Function | None = None, *, target: str = "auto"
) -> Function | Callable[[Function], Function]:
    """A function of arrays, compiled for each new set of argument shapes and dtypes.

    Every array is a slot: nothing stays on the device between calls. Python floats become f32, ints
    i32. Results are numpy, nested as fn nests them. Raises TraceError, BindError, and what
    `compile` raises."""
    if fn is None:
        return functools.partial(jit_for, target=target)
    return jit_for(fn, target)


def jit_for(fn: Function, target: str) -> Function:
    """`jit` for one function and target."""
    sessions: dict[object, Session] = {}
    signature = signature_of(fn, "jit")
    for name, p in signature.parameters.items():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise TraceError(
                f"jit needs named arguments: {p} of {fn.__name__} takes any; list them"
            )
        if name == RESERVED:
            raise TraceError(f"jit needs argument names other than {RESERVED}; rename it")

    @functools.wraps(fn)
    def call(*args: object, **kwargs: object) -> object:
        bound = signature.bind(*args, **kwargs)
        leaves, tree = flatten(dict(bound.arguments))
        arrays = {name: _array(name, leaf) for name, leaf in leaves}
        key = (tree, tuple((a.shape, a.dtype.str) for a in arrays.values()))
        if key not in sessions:
            nested = unflatten(tree, [_spec(a) for a in arrays.values()])
            specs = cast("dict[str, object]", nested)  # flattened from a dict of arguments
            sessions[key] = compile(trace(fn, specs), target).bind()
        return sessions[key].step("main", device_outputs=None, **arrays)

    return call
