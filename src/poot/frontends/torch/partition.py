# pyright: basic
"""Which nodes of an fx graph poot can do, and the graph with each run of them as one call.

The graph is read whole, so that what is known of a value (what its integers can be, whether it is
a constant) is known of it wherever it goes. A node that its row refuses stays torch's.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from poot.errors import TraceError
from poot.frontends.foreign import Foreign, Given, Ref
from poot.frontends.narrow import Tried, narrowed
from poot.frontends.torch.read import Nodes, is_wide, type_of
from poot.frontends.torch.table import ATEN
from poot.frontends.torch.tensors import as_numpy
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Const, Slot, Storage
from poot.ops.record import device_bytes

_PREFIX = "poot_part_"


@dataclass(frozen=True, slots=True)
class Left:
    """What stays torch's, why, and its line."""

    op: str
    why: str
    loc: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of nodes as a module of its own, by its name in the graph: the nodes that its
    placeholders are given, `limits` of the integers among them and constants, by the placeholders'
    names."""

    name: str
    module: Any
    given: tuple[Any, ...]
    limits: Mapping[str, tuple[int, int]]
    consts: Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Partition:
    """The graph with its pieces as calls of modules, and what is left."""

    module: Any
    pieces: tuple[Piece, ...]
    left: tuple[Left, ...]


class _Whole:
    """A graph, read: what is tried, and for each node whether it is done."""

    def __init__(self, module: Any, device: str) -> None:
        self.module, self.device = module, device
        self.nodes = Nodes(device=device)
        givens: list[Given] = []
        for node in module.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                givens += self._given(node)
            elif node.op == "call_function":
                self.nodes.read(node)
        self.tried: Tried = narrowed(Foreign(tuple(givens), tuple(self.nodes.calls), ()), ATEN)
        by_call = {id(c): n for c, n in zip(self.nodes.calls, self.nodes.sources, strict=True)}
        self.misses = {by_call[id(m.call)]: m for m in self.tried.misses}

    def _given(self, node: Any) -> list[Given]:
        if node.op == "get_attr" and "val" not in node.meta:
            node.meta["val"] = getattr(self.module, node.target)
        value = node.meta.get("val")
        type = type_of(value) if hasattr(value, "shape") else "no tensor"
        if not isinstance(type, str) and str(value.device) != self.device:
            type = f"on {value.device}, where the graph is on {self.device}"
        if isinstance(type, str):
            self.nodes.unread[node] = f"operand {node.name} is {type}"
            return []
        storage: Storage = Slot()
        if node.op == "get_attr":
            tensor = getattr(self.module, node.target)
            self.nodes.known.add(node, tensor)
            if _is_const(node):
                try:
                    array = as_numpy(tensor, node.name)
                except TraceError as e:  # integers past 32 bits: what needs them is torch's
                    self.nodes.unread[node] = e.message
                    return []
                storage = Const(device_bytes(array, node.name)[1])
        ref = self.nodes.refs[node] = Ref(node.name)
        return [Given(ref, node.name, type, storage, is_wide=is_wide(value))]

    def ref_id(self, node: Any) -> str:
        ref = self.nodes.refs.get(node)
        return ref.id if isinstance(ref, Ref) else ""

    def is_done(self, node: Any) -> bool:
        if node.op != "call_function":
            return False
        if node.target is operator.getitem:
            return self.is_done(node.args[0])
        if node not in self.nodes.refs or node in self.misses:
            return False
        refs = self.nodes.refs[node]
        parts = refs if isinstance(refs, tuple) else (refs,)
        return not any(isinstance(r, Ref) and r.id in self.tried.unheld for r in parts)

    def limits(self, node: Any) -> tuple[int, int] | None:
        """What the integers of 64 bits that a node gives are known to be, hi excluded."""
        if not is_wide(node.meta.get("val")):
            return None
        known = self.tried.intervals.get(self.ref_id(node))
        return None if known is None else (known.lo, known.hi + 1)


def _is_const(node: Any) -> bool:
    """Whether a node that holds a tensor is a Const of poot: integers and bools, which proofs may
    need."""
    type = type_of(node.meta["val"])
    return not isinstance(type, str) and DTYPES[type.dtype].kind != "float"


def partitioned(module: Any, device: str = "cpu") -> Partition:
    """The module, of tensors on that device, with each part that poot does as one submodule. Its
    constants are read as they are, whatever modes torch traces in."""
    fake = importlib.import_module("torch._subclasses.fake_tensor")
    with fake.unset_fake_temporarily():
        return _partitioned(module, device)


def _partitioned(module: Any, device: str) -> Partition:
    whole = _Whole(module, device)
    _fold(whole)
    infra = importlib.import_module("torch.fx.passes.infra.partitioner")
    support = importlib.import_module("torch.fx.passes.operator_support")
    done = {n for n in module.graph.nodes if whole.is_done(n)}
    limits = {n.name: found for n in module.graph.nodes if (found := whole.limits(n)) is not None}
    partitioner = infra.CapabilityBasedPartitioner(
        module,
        support.create_op_support(lambda submodules, node: node in done),
        allows_single_node_partition=True,
    )
    fused = partitioner.fuse_partitions(partitioner.propose_partitions(), prefix=_PREFIX)
    calls = [n for n in fused.graph.nodes if n.op == "call_module"]
    pieces = [_piece(fused, n, limits) for n in calls if str(n.target).startswith(_PREFIX)]
    left = [Left(m.call.op, m.why, m.call.loc) for m in whole.misses.values()]
    return Partition(fused, tuple(pieces), tuple(dict.fromkeys(left)))


def _piece(fused: Any, call: Any, limits: Mapping[str, tuple[int, int]]) -> Piece:
    module = getattr(fused, call.target)
    own = [n for n in module.graph.nodes if n.op == "placeholder"]
    pairs = list(zip(own, call.args, strict=True))
    consts = {
        o.name: as_numpy(getattr(fused, given.target), o.name)
        for o, given in pairs
        if given.op == "get_attr" and _is_const(given)
    }
    known = {o.name: limits[given.name] for o, given in pairs if given.name in limits}
    return Piece(str(call.target), module, tuple(call.args), known, consts)


def _fold(whole: _Whole) -> None:
    """Puts what was taken as a constant in the place of the nodes that make it."""
    graph, known = whole.module.graph, whole.nodes.known
    for node in list(graph.nodes):
        if node.op != "call_function" or whole.ref_id(node) not in whole.tried.known:
            continue
        name = f"poot_known_{node.name}"
        whole.module.register_buffer(name, known.tensor(node), persistent=False)
        with graph.inserting_before(node):
            held = graph.get_attr(name)
        held.meta = dict(node.meta)
        whole.nodes.refs[held] = whole.nodes.refs[node]
        node.replace_all_uses_with(held)
    graph.eliminate_dead_code()
    whole.module.recompile()
