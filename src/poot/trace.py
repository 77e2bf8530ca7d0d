"""A Python function and the specs of its arguments become a Graph.

Specs mirror the arguments: a tuple for positional ones, a dict for keyword ones, nested as the
function takes them. An input has its argument's name, nested ones dotted (`w.layers.0.q`), in the
order of flattening. The function returns its outputs, or, where arguments hold States, `(outputs,
states)`."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from poot.collector import collector_paused
from poot.errors import TraceError, TypeRuleError
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Const, Graph, Slot, State, Storage, TensorType, Var, Weight
from poot.ir.ranges import bounds, input_interval
from poot.ir.tree import Tree, flatten, join, unflatten
from poot.ops.array import Array
from poot.ops.kinds import wholes
from poot.ops.record import Recorder, device_bytes, here, recording, refuse
from poot.slots import check_slot_type

RESERVED = "device_outputs"  # what `Session.step` takes beside the slots
_REMEDY = "Specs are made by poot.weight, poot.state, poot.slot and poot.const"


@dataclass(frozen=True, slots=True)
class Spec:
    """What an argument will be: its type and its storage."""

    type: TensorType
    storage: Storage


def _type(what: str, shape: tuple[int, ...], dtype: str) -> TensorType:
    if not isinstance(cast("object", dtype), str) or dtype not in DTYPES:  # it is the user's
        refuse(what, f"a dtype among {', '.join(DTYPES)}", error=TraceError, dtype=dtype)
    extents = _whole(what, shape, "a tuple of whole extents", "shape")
    if any(n < 0 for n in extents):
        refuse(what, "extents of 0 or more", error=TraceError, shape=shape)
    return TensorType(dtype, extents)


def _whole(what: str, numbers: tuple[int, ...], rule: str, name: str) -> tuple[int, ...]:
    """The numbers as ints. A fraction, a text or a lone number is refused, never cut."""
    found = wholes(numbers)
    if found is None:
        refuse(what, rule, error=TraceError, **{name: repr(numbers)})
    return found


def weight(shape: tuple[int, ...], dtype: str = "f32") -> Spec:
    """An input that is bound once and never written."""
    return Spec(_type("weight", shape, dtype), Weight())


def state(shape: tuple[int, ...], dtype: str = "f32") -> Spec:
    """A device-resident input that each step may replace. It starts as zeros."""
    return Spec(_type("state", shape, dtype), State())


def slot(
    shape: tuple[int, ...],
    dtype: str = "i32",
    *,
    kind: str = "user",
    range: tuple[int, int] | None = None,
) -> Spec:
    """An input bound at each step. `kind` is "pos" (i32 [] or [B]), "tokens" (i32 [], [L] or
    [B,L]), "slot_map" (i32 [rows, capacity]), "write_map" (i32 [N]), "user", or a name of the
    user's own. An integer slot may declare `range` (lo, hi), hi excluded, which every bind
    checks."""
    type_ = _type("slot", shape, dtype)
    if (
        not isinstance(cast("object", kind), str)
        or not kind.isidentifier()
        or keyword.iskeyword(kind)
    ):
        refuse("slot", "a kind that is a plain name", error=TraceError, kind=repr(kind))
    if range is None:
        _check_slot(Slot(kind), type_)
        return Spec(type_, Slot(kind))
    limits = _whole("slot", range, "a range (lo, hi) of whole numbers", "range")
    if len(limits) != 2:
        refuse("slot", "a range (lo, hi) of whole numbers", error=TraceError, range=repr(range))
    lo, hi = limits
    declared = Slot(kind, (lo, hi))
    _check_slot(declared, type_)
    least, most = bounds(type_)
    if lo < least or hi - 1 > most:
        refuse("slot", f"a range that {dtype} holds", error=TraceError, range=range)
    return Spec(type_, declared)


def _check_slot(declared: Slot, type_: TensorType) -> None:
    try:
        check_slot_type(declared, type_, declared.kind)
    except TypeRuleError as e:
        raise TypeRuleError(e.message, here()) from None


def const(array: object) -> Spec:
    """An input whose numbers are known now; its bytes are read here. int64 that fits becomes i32.
    Takes numpy, and what has `__dlpack__` or `__array__`; raises TraceError on lists and numbers,
    which have no dtype."""
    is_numpy = isinstance(array, (np.ndarray, np.generic))
    held = np.asarray(cast("np.ndarray", array)) if is_numpy else _known(array)  # as it says
    dtype, data = device_bytes(held, "const")
    return Spec(TensorType(dtype, held.shape), Const(data))


def _known(value: object) -> np.ndarray:
    try:
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)  # pyright: ignore[reportArgumentType] - it has __dlpack__
        if hasattr(value, "__array__"):
            return np.asarray(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as e:
        refuse("const", "an array that numpy can read", error=TraceError, reason=e)
    remedy = "Write np.asarray(..., np.float32), or the dtype that you mean"
    refuse("const", "a numpy array", remedy, TraceError, got=type(value).__name__)


def trace(fn: Callable[..., object], specs: tuple[object, ...] | Mapping[str, object]) -> Graph:
    """Calls fn once with traced values as `specs` say, and gives what it did as a Graph.

    Where an argument holds State specs, fn returns (outputs, states). `states` nests as that
    argument does; where several arguments hold States it is a tuple of them, in argument order, or
    a dict by argument name. Leaves that aren't States may be left out, or handed back as they came.
    Outputs nest as they like; `Graph.tree` keeps how. Raises TraceError on a missing or unknown
    spec, on an output that is no traced value, and on states that differ from the arguments' in
    name or type."""
    arguments = _by_name(fn, specs)
    with collector_paused(), recording() as recorder:
        values: dict[str, object] = {}
        held: list[tuple[str, str, Array]] = []
        for name, spec in arguments.items():
            values[name], states = _inputs(recorder, name, spec)
            held.extend((name, path, x) for path, x in states)
        result = _call(fn, values)
        returned, pairs = result, ()
        if held:
            returned, states_out = _pair(result, held)
            pairs = _states(recorder, states_out, held)
        outputs, tree = _outputs(recorder, returned)
        return recorder.builder.graph(outputs, pairs, tree)


def signature_of(fn: Callable[..., object], who: str) -> inspect.Signature:
    """The function's signature. Raises TraceError on what is no function, or has none."""
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError) as e:
        refuse(who, "a Python function", error=TraceError, got=type(fn).__name__, reason=e)


def _by_name(fn: Callable[..., object], specs: object) -> dict[str, object]:
    """Specs by parameter name, in the order of the parameters."""
    name = getattr(fn, "__name__", repr(fn))
    given = cast("tuple[object, ...] | Mapping[str, object]", specs)  # checked below
    if not isinstance(specs, (tuple, Mapping)) or hasattr(given, "_fields"):
        refuse(
            "trace",
            "a tuple of positional specs or a dict of keyword specs",
            error=TraceError,
            got=given,
        )
    signature = signature_of(fn, "trace")
    try:
        bound = signature.bind(**given) if isinstance(given, Mapping) else signature.bind(*given)
    except TypeError as e:
        remedy = f"{name}{signature} wants one spec for each argument without a default"
        refuse("trace", f"specs that fit {name}", remedy, TraceError, reason=e)
    return dict(bound.arguments)


def _inputs(recorder: Recorder, name: str, spec: object) -> tuple[object, list[tuple[str, Array]]]:
    """The traced argument, and its State leaves by dotted name."""
    leaves, tree = flatten(spec, name, (Spec,))
    arrays: list[Array] = []
    states: list[tuple[str, Array]] = []
    for path, leaf in leaves:
        if not isinstance(leaf, Spec):
            refuse("trace", "a spec for each leaf", _REMEDY, TraceError, name=path, got=repr(leaf))
        if path == RESERVED:
            remedy = "It is a keyword of step; give the argument another name"
            refuse("trace", f"a name other than {RESERVED}", remedy, TraceError, name=path)
        var = recorder.builder.input(leaf.type, path, leaf.storage)
        arrays.append(Array(recorder, var, input_interval(recorder.builder.inputs[-1])))
        if isinstance(leaf.storage, State):
            states.append((path, arrays[-1]))
    return unflatten(tree, arrays), states


def _call(fn: Callable[..., object], values: dict[str, object]) -> object:
    positional: list[object] = []
    keywords: dict[str, object] = {}
    is_gap = False  # what stands after an argument left out goes by its name
    for name, parameter in inspect.signature(fn).parameters.items():
        if name not in values:
            is_gap = True
            continue
        value = values[name]
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            positional.extend(_parts(value))
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            keywords.update(cast("dict[str, object]", value))  # bind made it
        elif is_gap or parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            keywords[name] = value
        else:
            positional.append(value)
    return fn(*positional, **keywords)


def _parts(value: object) -> tuple[object, ...]:
    """The elements of a tuple or a list; none of anything else."""
    is_sequence = isinstance(value, (tuple, list))
    return tuple(cast("list[object]", value)) if is_sequence else ()  # isinstance says no more


def _pair(result: object, held: list[tuple[str, str, Array]]) -> tuple[object, object]:
    parts = _parts(result)
    if len(parts) == 2:
        return parts[0], parts[1]
    names = ", ".join(path for _, path, _ in held[:4]) + (", ..." if len(held) > 4 else "")
    refuse(
        "trace",
        "(outputs, states) returned by a function with State arguments",
        f"Return the new {names} as the second value",
        TraceError,
        got=type(result).__name__,
    )


def _states(
    recorder: Recorder, returned: object, held: list[tuple[str, str, Array]]
) -> tuple[tuple[Var, Var], ...]:
    """State pairs (in, out), in the order of the State inputs."""
    arguments = list(dict.fromkeys(argument for argument, _, _ in held))
    leaves = dict(_named_states(returned, arguments))
    wanted = {path: x for _, path, x in held}
    inputs = {i.name: i.var for i in recorder.builder.inputs}
    missing = sorted(wanted.keys() - leaves.keys())
    strange = sorted(
        path
        for path, leaf in leaves.items()
        if path not in wanted and not (isinstance(leaf, Array) and leaf.var == inputs.get(path))
    )
    if missing or strange:
        remedy = "States are returned nested as their arguments are"
        seen = {"missing": missing or "none", "unexpected": strange or "none"}
        refuse("trace", f"the states {', '.join(wanted)}", remedy, TraceError, **seen)
    pairs: list[tuple[Var, Var]] = []
    for path, before in wanted.items():
        after = leaves[path]
        if not isinstance(after, Array) or after.recorder is not recorder:
            refuse(
                "trace",
                "a value of this trace for each state",
                error=TraceError,
                name=path,
                got=after,
            )
        if after.type != before.type:
            remedy = "A state keeps its dtype and shape: write .astype(...)"
            refuse("trace", f"{before.type} for state {path}", remedy, TraceError, got=after.type)
        pairs.append((before.var, after.var))
    return tuple(pairs)


def _named_states(returned: object, arguments: list[str]) -> list[tuple[str, object]]:
    if len(arguments) == 1:
        return flatten(returned, arguments[0], (Array,))[0]
    if isinstance(returned, Mapping):
        by_name = cast("Mapping[str, object]", returned)  # isinstance says no more
        return flatten(dict(by_name), "", (Array,))[0]
    parts = _parts(returned)
    if len(parts) == len(arguments):
        pairs = zip(arguments, parts, strict=True)
        return [leaf for name, part in pairs for leaf in flatten(part, name, (Array,))[0]]
    wanted = ", ".join(arguments)
    refuse(
        "trace",
        f"states as a tuple or a dict of {wanted}",
        error=TraceError,
        got=type(returned).__name__,
    )


def _outputs(recorder: Recorder, returned: object) -> tuple[tuple[Var, ...], Tree]:
    leaves, tree = flatten(returned, "", (Array,))
    outputs: list[Var] = []
    for path, leaf in leaves:
        name = join("output", path) if path else "output"
        if not isinstance(leaf, Array):
            remedy = "Return traced values; ops.full makes one of a number"
            refuse(
                "trace",
                "a traced value for each output",
                remedy,
                TraceError,
                name=name,
                got=repr(leaf),
            )
        if leaf.recorder is not recorder:
            refuse(
                "trace",
                "outputs of this trace",
                "A traced value can't leave its trace",
                TraceError,
                name=name,
            )
        outputs.append(leaf.var)
    if not outputs:
        refuse("trace", "at least one output", error=TraceError, got=repr(returned))
    return tuple(outputs), tree
