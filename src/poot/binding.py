"""What a caller hands over, as numpy arrays of a program's types."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import numpy as np
from numpy.lib.stride_tricks import as_strided

from poot import dlpack
from poot.device_array import DeviceArray
from poot.errors import BindError
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Graph, Input, TensorType, Weight
from poot.launch_lists import Signature
from poot.tagged import Tagged


def need_flag(value: object, what: str) -> bool:
    """A bool. Raises BindError on all else: a text or a number is no answer to yes or no."""
    if not isinstance(value, bool):
        raise BindError(f"{what} needs True or False: got {_seen(value)}")
    return value


def need_names(given: object, what: str) -> dict[str, object]:
    """A mapping by names, as a dict. Raises BindError on what is none, and on a name that is no
    text."""
    if not isinstance(given, Mapping):
        raise BindError(f"{what} needs a dict by names: got {_seen(given)}")
    items = cast("Mapping[object, object]", given).items()  # what it holds is seen here
    named = {name: value for name, value in items if isinstance(name, str)}
    if len(named) < len(items):
        odd = next(name for name, _ in items if not isinstance(name, str))
        raise BindError(f"{what} needs names that are texts: got {_seen(odd)}")
    return named


def dotted(unknown: Sequence[str], known: Iterable[str]) -> str:
    """The remedy where what was given nests under a name that the known ones begin with."""
    within = sorted(k for k in known if any(k.startswith(f"{name}.") for name in unknown))
    return f"; names are dotted, one for each array: {', '.join(within[:3])}" if within else ""


def _seen(value: object) -> str:
    kind = type(value).__name__
    return f"{kind} {value!r}" if isinstance(value, (int, float, str)) else kind


def as_array(value: object, name: str, type: TensorType) -> np.ndarray:
    """What the caller gave, as numpy without a copy where that can be: numpy, DLPack, the buffer
    protocol, numbers.

    Raises BindError where it is no array."""
    if isinstance(value, np.ndarray):
        return cast("np.ndarray", value)  # isinstance leaves its parameters unknown
    if isinstance(value, DeviceArray):
        return value.numpy()
    if isinstance(value, Tagged):
        return value.array()
    if isinstance(value, dlpack.Exports):
        return _over_dlpack(value, name)
    try:
        array = np.asarray(value)
    except Exception as e:  # what has __array__ may raise anything
        raise BindError(f"{name} needs an array of {type}: {e}") from e
    want = DTYPES[type.dtype]
    if (
        array.dtype == np.int64
        and want.kind in ("int", "uint")
        and not isinstance(value, np.ndarray)
    ):
        return array
    if array.dtype == np.float64 and want.kind == "float" and not isinstance(value, np.ndarray):
        return array.astype(want.numpy)
    return array


def _over_dlpack(value: dlpack.Exports, name: str) -> np.ndarray:
    """The host's memory as it is; numpy refuses bf16 and fp8, which are read here."""
    try:
        return np.from_dlpack(value)  # pyright: ignore[reportArgumentType] - it has __dlpack__
    except Exception as e:  # numpy refuses, or the array's maker raises
        if dlpack.device_of(value, name)[0] == dlpack.CPU:
            return host_array(dlpack.take(dlpack.capsule_of(value, name), name, is_strided=True))
        raise BindError(f"{name} can't be read over DLPack: {e}; hand it over as numpy") from e


def host_array(taken: dlpack.Taken) -> np.ndarray:
    """An array of the host's memory as numpy, which keeps it."""
    if not taken.type.elems:
        return np.zeros(taken.type.shape, DTYPES[taken.type.dtype].numpy)
    dtype, shape = DTYPES[taken.type.dtype].numpy, taken.type.shape
    elems = taken.type.elems
    if taken.strides is not None:
        elems = 1 + sum((n - 1) * step for n, step in zip(shape, taken.strides, strict=True))
    memory = (ctypes.c_uint8 * (elems * dtype.itemsize)).from_address(taken.pointer)
    weakref.finalize(memory, _held_until_now, taken.hold)
    flat = np.ctypeslib.as_array(memory).view(dtype)
    if taken.strides is None:
        return flat.reshape(shape)
    return as_strided(flat, shape, [step * dtype.itemsize for step in taken.strides])


def _held_until_now(hold: object) -> None:
    """The end of memory that another library gave: it was held by being asked for here."""


def check_weight(i: Input, value: object, allow_nonfinite: bool) -> np.ndarray:
    """A weight's array, of its type exactly. Raises BindError naming the input, what was seen and
    the remedy."""
    array = as_array(value, i.name, i.var.type)
    want = DTYPES[i.var.type.dtype].numpy
    if array.dtype != want or array.shape != i.var.type.shape:
        raise BindError(
            f"{i.name} needs {i.var.type}: got {array.dtype}[{','.join(map(str, array.shape))}]; "
            "convert it before the bind"
        )
    if not allow_nonfinite and DTYPES[i.var.type.dtype].kind == "float" and array.size:
        finite = np.isfinite(array.astype(np.float32) if array.dtype.itemsize < 4 else array)
        if not finite.all():
            at = np.unravel_index(int(np.argmin(finite)), array.shape)
            where = tuple(int(n) for n in at)
            raise BindError(
                f"{i.name} holds {array[at]} at {where}; repair the weights, or bind with "
                f"allow_nonfinite=True"
            )
    return array


def bind_weights(
    graphs: Mapping[str, Graph | Signature],
    given: object,
    allow_nonfinite: bool,
    *,
    all_of_them: bool = True,
) -> dict[str, np.ndarray]:
    """Every Weight's array (or that of each given, where not `all_of_them`), checked; `given` is
    them by dotted name. Raises BindError on a missing, unknown or ill-typed one."""
    weights = need_names(given, "bind")
    inputs = {i.name: i for g in graphs.values() for i in g.inputs if isinstance(i.storage, Weight)}
    missing = sorted(set(inputs) - set(weights)) if all_of_them else []
    unknown = sorted(set(weights) - set(inputs))
    if missing or unknown:
        parts = [f"missing {', '.join(missing[:8])}"] if missing else []
        parts += [f"unknown {', '.join(unknown[:8])}"] if unknown else []
        remedy = dotted(unknown, missing or inputs)
        raise BindError(f"the weights don't match the program: {'; '.join(parts)}{remedy}")
    return {
        name: check_weight(i, weights[name], allow_nonfinite)
        for name, i in inputs.items()
        if name in weights
    }
