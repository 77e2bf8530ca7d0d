"""The edge of `poot.ops`: each argument is of the kind that its function declares, or TraceError
names the function, the argument and what came.

The kind is read off the annotation, so a function can't forget to check. What is of the kind in
another dress is handed on in the plain one: numpy's ints as ints, lists of ints as tuples, and a
numpy array where a traced value is wanted as a Const.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from poot.errors import TraceError
from poot.ops.array import Array, as_array, recorder_of
from poot.ops.block_keys import BlockKeys
from poot.ops.kinds import fits, is_number, whole, wholes
from poot.ops.record import refuse
from poot.ops.rope import FactorScaling, LinearScaling, Llama3Scaling, YarnScaling


class _Miss:
    """What a reader gives for a value of another kind."""


MISS = _Miss()
Reader = Callable[[object], object]
Function = Callable[..., object]


def _is_a(*types: type) -> Reader:
    return lambda value: value if isinstance(value, types) else MISS


def _whole(value: object) -> object:
    n = whole(value)
    return MISS if n is None or not fits(n) else n


def _wholes(value: object) -> object:
    found = wholes(value)
    return MISS if found is None or not all(map(fits, found)) else found


def _number(value: object) -> object:
    return value if is_number(value) else MISS


def _operand(value: object) -> object:
    is_one = isinstance(value, (bool, np.bool_, Array, np.ndarray)) or is_number(value)
    return cast("object", value) if is_one else MISS  # isinstance leaves parameters unknown


def _each(reader: Reader, many: int | None = None) -> Reader:
    def read(value: object) -> object:
        if not isinstance(value, (tuple, list)):
            return MISS
        parts = [reader(part) for part in cast("Sequence[object]", value)]
        is_whole = many in (None, len(parts)) and all(part is not MISS for part in parts)
        return tuple(parts) if is_whole else MISS

    return read


def _anything(value: object) -> object:
    return value


_ARRAY = _is_a(Array)
# An annotation, or one side of its `|`: (how an error names it, what reads it).
KINDS: dict[str, tuple[str, Reader]] = {
    "Array": ("a traced value", _ARRAY),
    "np.ndarray": ("a numpy array", _is_a(np.ndarray)),
    "Operand": ("a traced value, a numpy array or a number", _operand),
    "Sequence[Operand]": ("a tuple of traced values, arrays or numbers", _each(_operand)),
    "tuple[Array, Array]": ("a pair of traced values", _each(_ARRAY, 2)),
    "int": ("an int", _whole),
    "float": ("a number", _number),
    "bool": ("a bool", _is_a(bool, np.bool_)),
    "str": ("a text", _is_a(str)),
    "bytes": ("bytes", _is_a(bytes)),
    "Sequence[int]": ("a tuple of ints", _wholes),
    "tuple[int, ...]": ("a tuple of ints", _wholes),
    "Axes": ("an axis, a tuple of axes or None", _anything),
    "Scaling": (
        "a LinearScaling, Llama3Scaling, YarnScaling or FactorScaling",
        _is_a(LinearScaling, Llama3Scaling, YarnScaling, FactorScaling),
    ),
    "BlockKeys[Array]": ("a BlockKeys of traced values", _is_a(BlockKeys)),
    "Finish": ("a function of means and positions", lambda f: f if callable(f) else MISS),
    "None": ("None", lambda value: value if value is None else MISS),
    "object": ("anything", _anything),  # operands, which the op itself reads
}


def kinds_of(annotation: str) -> tuple[str, ...]:
    """The rows of KINDS that an annotation allows."""
    return (annotation,) if annotation in KINDS else tuple(annotation.split(" | "))


def _reader(annotation: str) -> Reader:
    readers = [KINDS[kind][1] for kind in kinds_of(annotation)]

    def read(value: object) -> object:
        for reader in readers:
            got = reader(value)
            if got is not MISS:
                return got
        return MISS

    return readers[0] if len(readers) == 1 else read


def _const(name: str, annotation: str, value: object, given: Sequence[object]) -> object:
    """A numpy array in the place of a traced value, as a Const of the trace at hand."""
    if "Array" in kinds_of(annotation) and isinstance(value, np.ndarray) and value.ndim:
        known = cast("np.ndarray", value)  # isinstance leaves its parameters unknown
        return as_array(known, recorder_of(name, *given), None, name)
    return MISS


def _refuse(name: str, parameter: str, annotation: str, value: object) -> None:
    what = " or ".join(KINDS[kind][0] for kind in kinds_of(annotation))
    kind = type(value).__name__
    seen = f"{kind} {value!r}" if isinstance(value, (int, float, str)) else kind
    refuse(name, f"{what} for {parameter}", error=TraceError, got=seen)


def at_the_edge(fn: Function) -> Function:
    """The function behind a check of its arguments' kinds. A wrong count of arguments stays
    Python's TypeError."""
    name = fn.__name__
    parameters = list(inspect.signature(fn).parameters.values())
    rows = {p.name: (p.annotation, _reader(p.annotation)) for p in parameters}
    many = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "")
    places = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]

    def read(parameter: str, value: object, given: Sequence[object]) -> object:
        annotation, reader = rows[parameter]
        got = reader(value)
        if got is MISS:
            got = _const(name, annotation, value, given)
        if got is MISS:
            _refuse(name, parameter, annotation, value)
        return got

    @functools.wraps(fn)
    def call(*args: object, **options: object) -> object:
        given = (*args, *options.values())
        names = [*places[: len(args)], *[many] * (len(args) - len(places))]
        if all(names) and not options.keys() - rows.keys():
            args = tuple(read(n, v, given) for n, v in zip(names, args, strict=True))
            options = {n: read(n, v, given) for n, v in options.items()}
        return fn(*args, **options)

    return call


def all_at_the_edge(public: Mapping[str, object], names: Sequence[str]) -> dict[str, Function]:
    """The functions among the named, each behind its check."""
    return {n: at_the_edge(f) for n in names if inspect.isfunction(f := public[n])}
