# pyright: basic
"""Random keys: an array of keys is the u32 words that each of them holds, along last axes.

An eqn that draws from keys is what its implementation does to the words (of jax's default that is
`threefry2x32`, plain arithmetic); one that moves keys is the same move of each word.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

# Primitives that move whole keys, and hold no jaxpr.
_MOVES = (
    "slice", "squeeze", "reshape", "broadcast_in_dim", "concatenate", "transpose", "select_n",
    "gather", "dynamic_slice", "dynamic_update_slice", "expand_dims", "rev", "copy", "copy_p",
    "stack", "unstack", "split", "tile",
)  # fmt: skip
_SAME = ("random_wrap", "random_unwrap", "random_clone")


def words_of(dtype: Any) -> tuple[int, ...] | None:
    """The shape of the words that one key holds; None where the dtype is none of keys."""
    impl = getattr(dtype, "_impl", None)  # jax says in public only that it is one of keys
    return None if impl is None else tuple(impl.key_shape)


def has_keys(eqn: Any) -> bool:
    """Whether an eqn reads or makes keys."""
    return any(_words(v.aval) is not None for v in (*eqn.invars, *eqn.outvars))


def on_words(eqn: Any) -> Callable[..., Any] | str:
    """What an eqn about keys does, as a function of words, or why poot has none."""
    name, params = eqn.primitive.name, eqn.params
    if name in _SAME:
        return lambda words: words
    if name == "random_seed":
        return _each(params["impl"].seed, len(eqn.invars[0].aval.shape))
    if name in ("random_split", "random_bits", "random_fold_in"):
        return _drawn(name, eqn.invars[0].aval.dtype._impl, params, [v.aval for v in eqn.invars])
    if name in _MOVES and all(_words(v.aval) is not None for v in eqn.outvars):
        return _moved(eqn)
    return "a random key is read by something else than jax.random's draws"


def _drawn(name: str, impl: Any, params: Any, avals: list[Any]) -> Callable[..., Any]:
    """What an implementation's split, bits or fold_in does to each of an array of keys."""
    rank = len(avals[0].shape)
    if name == "random_split":
        return _each(lambda words: impl.split(words, params["shape"]), rank)
    if name == "random_bits":
        width, shape = params["bit_width"], params["shape"]
        return _each(lambda words: impl.random_bits(words, width, shape), rank)
    return _folded(impl, *(a.shape for a in avals))


def raw(aval: Any) -> Any:
    """The shape and dtype of an abstract value, of keys as their words."""
    struct = importlib.import_module("jax").ShapeDtypeStruct
    words = _words(aval)
    if words is None:
        return struct(aval.shape, aval.dtype)
    return struct((*aval.shape, *words), np.uint32)


def _words(aval: Any) -> tuple[int, ...] | None:
    return words_of(getattr(aval, "dtype", None))


def _each(fn: Callable[..., Any], rank: int) -> Callable[..., Any]:
    """The function of each element, of arrays with so many axes before those of an element."""
    vmap = importlib.import_module("jax").vmap
    for _ in range(rank):
        fn = vmap(fn)
    return fn


def _folded(impl: Any, keys: tuple[int, ...], data: tuple[int, ...]) -> Callable[..., Any]:
    """Each key with a number folded in, the two broadcast."""
    shape = np.broadcast_shapes(keys, data)

    def fold(words: Any, numbers: Any) -> Any:
        jnp = importlib.import_module("jax.numpy")
        wide = jnp.broadcast_to(words, (*shape, *impl.key_shape))
        return _each(impl.fold_in, len(shape))(wide, jnp.broadcast_to(numbers, shape))

    return fold


def _moved(eqn: Any) -> Callable[..., Any]:
    """The eqn's primitive, on one word of each key after another."""
    vmap = importlib.import_module("jax").vmap
    ins = tuple(-1 if _words(v.aval) is not None else None for v in eqn.invars)
    rank = len(next(w for v in eqn.invars if (w := _words(v.aval)) is not None))

    def fn(*args: Any) -> Any:
        return eqn.primitive.bind(*args, **eqn.params)

    for _ in range(rank):
        fn = vmap(fn, in_axes=ins, out_axes=-1)
    return fn
