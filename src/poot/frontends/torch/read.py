# pyright: basic
"""An exported torch program as a `Foreign`: what `torch.export` leaves, in poot's types.

Parameters and buffers of floats become Weights under their names in the model, buffers of integers,
masks of zeros and ones, and constants become Consts (positions are proved from them), buffers and
inputs that the program writes become States, other inputs slots.
"""

from __future__ import annotations

import importlib
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from poot.errors import TraceError
from poot.frontends.foreign import Call, Foreign, Given, Ref
from poot.frontends.torch.known import Known
from poot.frontends.torch.tensors import as_numpy, dtype_name
from poot.ir.graph import Const, Slot, State, Storage, TensorType, Weight
from poot.ops.record import device_bytes

# Arguments of ATen ops that say where and how a tensor lies, not what it holds.
_PLACES = ("layout", "device", "pin_memory", "memory_format", "non_blocking", "generator")
# Calls that check what the program was exported for, and make nothing.
_CHECKS = ("aten._assert_tensor_metadata.default", "aten._assert_scalar.default",
           "aten._assert_async.msg", "aten.sym_constrain_range_for_size.default")  # fmt: skip
# How torch names the code that it makes of a graph.
_MADE = "<eval_with_key>"
_FRAME = re.compile(r'File "(.+?)", line (\d+)')


def type_of(value: Any) -> TensorType | str:
    """The type of a fake tensor, or why poot has none."""
    for axis, extent in enumerate(value.shape):
        if type(extent) is not int:
            return f"dimension {axis} of {tuple(map(str, value.shape))} is dynamic ({extent})"
    dtype = dtype_name(value.dtype)
    if dtype is None:
        return f"a value of {str(value.dtype).removeprefix('torch.')}, which poot has not"
    return TensorType(dtype, tuple(value.shape))


def line_of(node: Any) -> str:
    """file:line of the innermost call outside of torch that a node comes from."""
    trace = node.meta.get("stack_trace") or ""
    frames = _FRAME.findall(trace)
    torchs = (str(Path(importlib.import_module("torch").__file__ or "").parent) + os.sep, _MADE)
    own = [f for f in frames if not f[0].startswith(torchs)] or frames
    return f"{own[-1][0]}:{own[-1][1]}" if own else ""


@dataclass(slots=True)
class Nodes:
    """The calls of an fx graph, read one by one. `refs` has each node's value: a Ref, a tuple of
    Refs, or a number that is known; `unread` why a node that was given has none; `sources` the node
    of each call. Where a `device` is named, what lies elsewhere can't be read."""

    refs: dict[Any, Any] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    known: Known = field(default_factory=Known)
    unread: dict[Any, str] = field(default_factory=dict)
    sources: list[Any] = field(default_factory=list)
    device: str = ""

    def read(self, node: Any) -> None:
        """Adds a call_function node."""
        if node.target is operator.getitem:
            self.refs[node] = self.refs[node.args[0]][node.args[1]]
            return
        if str(node.target) not in _CHECKS:
            self._call(node)

    def _call(self, node: Any) -> None:
        value = node.meta.get("val")
        if isinstance(value, (int, float, bool)):  # a size that is known
            self.refs[node] = value
            return
        is_many = isinstance(value, (tuple, list))
        values = [v for v in (value if is_many else [value]) if v is not None]
        problem, types, results = "", [], []
        for n, v in enumerate(values):
            type = type_of(v) if hasattr(v, "shape") else "a result that is no tensor"
            problem = type if isinstance(type, str) else problem or self._elsewhere(v)
            types.append(TensorType("f32", (0,)) if isinstance(type, str) else type)
            results.append(Ref(f"{node.name}.{n}" if is_many else node.name))
        if problem and not is_many:
            self.unread[node] = f"operand {node.name} is {problem}"
        else:
            self.refs[node] = tuple(results) if is_many else next(iter(results), None)
        if not hasattr(node.target, "_schema"):
            problem = problem or "it is no ATen op"
        args = () if problem else self._arguments(node)
        unread = next((a.why for a in _flat(args) if isinstance(a, _Unread)), "")
        wide = frozenset(r for r, v in zip(results, values, strict=True) if is_wide(v))
        call = Call(
            _name(node.target), () if unread else args, tuple(results), tuple(types),
            line_of(node), problem=problem or unread,
            wide=frozenset() if wide and is_cut_index(node) else wide,
            known=partial(self.known.arrays, node) if node in self.known else None,
        )  # fmt: skip
        self.calls.append(call)
        self.sources.append(node)

    def _elsewhere(self, value: Any) -> str:
        is_here = not self.device or str(value.device) == self.device
        return "" if is_here else f"a result on {value.device}, where the graph is on {self.device}"

    def _arguments(self, node: Any) -> tuple[object, ...]:
        """The arguments in the order of the op's schema, defaults among them."""
        out: list[object] = []
        for n, declared in enumerate(node.target._schema.arguments):
            if declared.name in _PLACES:
                continue
            if n < len(node.args):
                out.append(self.argument(node.args[n]))
            elif declared.name in node.kwargs:
                out.append(self.argument(node.kwargs[declared.name]))
            else:
                out.append(self.argument(declared.default_value))
        return tuple(out)

    def argument(self, value: Any) -> object:
        if _is_node(value):
            unread = _Unread(self.unread.get(value, f"an operand {value} that is no tensor"))
            return self.refs.get(value, unread)
        if isinstance(value, (tuple, list)):
            return tuple(self.argument(v) for v in value)
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        dtype = dtype_name(value)
        return dtype if dtype is not None else _Unread(f"an argument {value!r}")


@dataclass(frozen=True, slots=True)
class _Unread:
    why: str


def _flat(value: object) -> Iterable[object]:
    if isinstance(value, tuple):
        for part in value:
            yield from _flat(part)
    else:
        yield value


def _is_node(value: Any) -> bool:
    return hasattr(value, "op") and hasattr(value, "meta")


def is_wide(value: Any) -> bool:
    """Whether a tensor holds integers of 64 bits."""
    return str(getattr(value, "dtype", "")) == "torch.int64"


# Calls that take an index, by the place of their argument that it is.
_INDEXED = {
    "aten.embedding.default": 1, "aten.index.Tensor": 1, "aten.index_select.default": 2,
    "aten.gather.default": 2,
}  # fmt: skip
# Calls through which numbers stay as they are.
MOVES = (
    "aten.view.default", "aten.reshape.default", "aten.unsqueeze.default", "aten.squeeze.dims",
    "aten.alias.default", "aten.clone.default", "aten._to_copy.default", "aten.expand.default",
    "aten.permute.default", "aten.detach.default",
)  # fmt: skip


def is_cut_index(node: Any) -> bool:
    """Whether a node casts floats to integers, for use as an index alone, or within bounds: there
    a number cut to 32 bits is as good as itself."""
    if str(node.target) != "aten._to_copy.default":
        return False
    return node.args[0].meta["val"].dtype.is_floating_point and _is_index(node)


def _is_index(node: Any) -> bool:
    return bool(node.users) and all(_takes_index(user, node) for user in node.users)


def _takes_index(user: Any, node: Any) -> bool:
    name = str(user.target)
    if name in _INDEXED:
        at = _INDEXED[name]
        return not any(a is node for n, a in enumerate(user.args) if n != at)
    if name == "aten.clamp.default":
        return len(user.args) == 3 and None not in user.args
    return name in MOVES and is_wide(user.meta.get("val")) and _is_index(user)


def _name(target: Any) -> str:
    return str(target) if hasattr(target, "_schema") else getattr(target, "__name__", str(target))


def read_graph(
    graph: Any, weights: frozenset[str], consts: Mapping[str, np.ndarray] | None = None
) -> Foreign:
    """An fx graph without a signature, whose placeholders hold fake tensors: those named in
    `weights` are Weights, those in `consts` what stands there, the others slots. Its results are a
    tuple."""
    nodes, givens = Nodes(), []
    outputs: object = ()
    for node in graph.nodes:
        if node.op == "placeholder":
            type = type_of(node.meta["val"])
            if isinstance(type, str):
                raise TraceError(f"a graph needs static shapes: {node.name!r}: {type}")
            ref = nodes.refs[node] = Ref(node.name)
            storage: Storage = Weight() if node.name in weights else Slot()
            if consts is not None and node.name in consts:
                storage = Const(device_bytes(consts[node.name], node.name)[1])
            wide = is_wide(node.meta["val"])
            givens.append(Given(ref, node.name, type, storage, is_wide=wide))
        elif node.op == "call_function":
            nodes.read(node)
        elif node.op == "output":
            outputs = nodes.argument(node.args[0])
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        else:
            raise TraceError(f"a graph needs calls of functions: it holds {node.op} {node}")
    return Foreign(tuple(givens), tuple(nodes.calls), outputs)


def _is_mask(array: np.ndarray) -> bool:
    """Whether floats are a plane of zeros and ones, as models keep their masks."""
    if array.ndim < 2 or array.shape[-2] < 2:
        return False
    is_one = array == 1
    return bool(is_one.any() and ((array == 0) | is_one).all())


# Exported programs.


def read_exported(program: Any) -> Foreign:
    """The program as a Foreign. Raises TraceError on what is no exported program, and on an input
    whose extent is dynamic, naming the dimension."""
    if not all(hasattr(program, name) for name in ("graph_signature", "graph_module", "call_spec")):
        kind = type(program).__name__
        remedy = "Give it torch.export.export(model.eval(), args, kwargs)"
        raise TraceError(f"from_torch needs a torch.export.ExportedProgram: got {kind}. {remedy}")
    return _Reader(program).foreign()


class _Reader:
    """One exported program at work."""

    def __init__(self, program: Any) -> None:
        self.program = program
        self.signature = program.graph_signature
        self.nodes = Nodes()
        self.givens: list[Given] = []
        self.by_memory: dict[object, Ref] = {}
        self.placed = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}

    def foreign(self) -> Foreign:
        written = self._written()
        for spec in self.signature.input_specs:
            self._input(spec, written)
        for node in self.program.graph.nodes:
            if node.op == "call_function":
                self.nodes.read(node)
            elif node.op == "get_attr":
                self.nodes.unread[node] = f"a graph {node.target} of its own"
            elif node.op not in ("placeholder", "output"):
                raise TraceError(f"from_torch needs a graph of calls: it holds {node.op} {node}")
        outputs, states = self._outputs(written)
        return Foreign(tuple(self.givens), tuple(self.nodes.calls), outputs, states)

    def _written(self) -> dict[str, str]:
        """For each buffer's name and each input's that the program writes: the name of the State
        that it becomes."""
        out: dict[str, str] = {}
        for spec in self.signature.output_specs:
            kind = spec.kind.name
            if kind in ("BUFFER_MUTATION", "USER_INPUT_MUTATION"):
                out[spec.target] = spec.target
            elif kind != "USER_OUTPUT":
                raise TraceError(f"from_torch needs a program for inference: it gives a {kind}")
        return out

    def _input(self, spec: Any, written: dict[str, str]) -> None:
        kind, node = spec.kind.name, self.placed.get(getattr(spec.arg, "name", ""))
        if kind == "USER_INPUT" and spec.arg.__class__.__name__ == "ConstantArgument":
            if node is not None:
                self.nodes.refs[node] = spec.arg.value
            return
        if node is None or kind not in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR", "USER_INPUT"):
            raise TraceError(f"from_torch has no place for an input of kind {kind}: {spec.arg}")
        type = type_of(node.meta["val"])
        if isinstance(type, str):
            if dtype_name(node.meta["val"].dtype) is None:
                remedy = "Convert it to float32 or int32 before the export"
                raise TraceError(
                    f"from_torch needs dtypes of poot: {node.name!r} is {type}. {remedy}"
                )
            remedy = "Export it with extents that are known: one program for each size"
            raise TraceError(
                f"from_torch needs static shapes: input {node.name!r}: {type}. {remedy}"
            )
        if kind == "USER_INPUT":
            storage: Storage = State() if node.name in written else Slot()
            self._add(node, node.name, type, storage, None)
        else:
            self._held(node, spec, type, spec.target in written)

    def _held(self, node: Any, spec: Any, type: TensorType, is_written: bool) -> None:
        """A parameter, a buffer or a constant, which come with their elements."""
        tensor = self._tensor(spec)
        array = as_numpy(tensor, spec.target)
        if is_written:
            self._add(node, spec.target, type, State(), array if array.any() else None)
            return
        place = (tensor.data_ptr(), type, tuple(tensor.stride())) if tensor.numel() else node
        if place in self.by_memory:  # weights that are tied
            self.nodes.refs[node] = self.by_memory[place]
            return
        is_known = array.dtype.kind in "iub" or spec.kind.name == "CONSTANT_TENSOR"
        is_known = is_known or (spec.kind.name == "BUFFER" and _is_mask(array))
        if is_known:
            self.nodes.known.add(node, tensor)
        if is_known or not np.isfinite(array.astype(np.float32)).all():
            _, data = device_bytes(array, spec.target)
            self._add(node, spec.target, type, Const(data), None)
        else:
            self._add(node, spec.target, type, Weight(), array)
        self.by_memory[place] = self.nodes.refs[node]

    def _tensor(self, spec: Any) -> Any:
        if spec.target in self.program.state_dict:
            return self.program.state_dict[spec.target]
        return self.program.constants[spec.target]

    def _add(
        self, node: Any, name: str, type: TensorType, storage: Storage, array: np.ndarray | None
    ) -> None:
        ref = Ref(node.name)
        self.nodes.refs[node] = ref
        wide = is_wide(node.meta["val"])
        self.givens.append(Given(ref, name, type, storage, array, is_wide=wide))

    def _outputs(self, written: dict[str, str]) -> tuple[object, tuple[tuple[str, Ref], ...]]:
        (out,) = (n for n in self.program.graph.nodes if n.op == "output")
        values = [self.nodes.argument(v) for v in out.args[0]]
        leaves: list[object] = []
        states: list[tuple[str, Ref]] = []
        for spec, value in zip(self.signature.output_specs, values, strict=True):
            if spec.target in written and spec.kind.name != "USER_OUTPUT":
                assert isinstance(value, Ref)
                states.append((written[spec.target], value))
            else:
                leaves.append(value)
        return nested(self.program.call_spec.out_spec, iter(leaves).__next__), tuple(states)


def nested(spec: Any, take: Callable[[], object]) -> object:
    """The leaves as a pytree spec nests them, in tuples, lists and dicts: a class of named results
    becomes a dict of them."""
    if spec.is_leaf():
        return take()
    children = [nested(child, take) for child in spec.children()]
    keys = spec.context
    if isinstance(keys, (list, tuple)) and len(keys) == 2 and isinstance(keys[0], (list, tuple)):
        keys = keys[0]
    if spec.type is list:
        return children
    names = isinstance(keys, (list, tuple)) and all(isinstance(k, str) for k in keys)
    if names and len(keys) == len(children) and spec.type is not tuple:
        return dict(zip(keys, children, strict=True))
    return None if spec.type is type(None) else tuple(children)
