# pyright: basic
"""Which nodes of an fx graph poot can do, and the graph with each run of them as one call.

A node is tried by its row, on the types that its operands have; what its row refuses stays
torch's. Nodes that only check what the graph was traced for go with their neighbours.
"""

from __future__ import annotations

import importlib
import operator
from dataclasses import dataclass
from typing import Any

from poot.frontends.foreign import Call, Ref
from poot.frontends.lower import refusal
from poot.frontends.torch.read import Nodes, type_of
from poot.frontends.torch.table import ATEN
from poot.ir.graph import TensorType


@dataclass(frozen=True, slots=True)
class Left:
    """A node that stays torch's, why, and its line."""

    op: str
    why: str
    loc: str


def refused(node: Any) -> Left | None:
    """Why poot can't do a call_function node, or None where it can."""
    if node.target is operator.getitem:
        source = node.args[0]
        return refused(source) if source.op == "call_function" else None
    nodes, types = Nodes(), dict[str, TensorType]()
    for given in node.all_input_nodes:
        value = given.meta.get("val")
        parts = value if isinstance(value, (tuple, list)) else [value]
        refs: list[Ref] = []
        for n, part in enumerate(parts):
            type = type_of(part) if hasattr(part, "shape") else f"operand {given} is no tensor"
            if isinstance(type, str):
                return Left(str(node.target), type, "")
            refs.append(Ref(f"{given.name}.{n}"))
            types[refs[-1].id] = type
        nodes.refs[given] = tuple(refs) if isinstance(value, (tuple, list)) else refs[0]
    nodes.read(node)
    calls: list[Call] = nodes.calls
    if not calls:
        return None
    why = refusal(calls[0], ATEN, types)
    return Left(calls[0].op, why, calls[0].loc) if why else None


def partitioned(module: Any) -> tuple[Any, list[str], list[Left]]:
    """(the module with each part that poot does as one submodule, their names, what is left)."""
    left: list[Left] = []
    infra = importlib.import_module("torch.fx.passes.infra.partitioner")
    support = importlib.import_module("torch.fx.passes.operator_support")

    def is_supported(submodules: Any, node: Any) -> bool:
        if node.op != "call_function":
            return False
        why = refused(node)
        if why is not None and why not in left:
            left.append(why)
        return why is None

    partitioner = infra.CapabilityBasedPartitioner(
        module, support.create_op_support(is_supported), allows_single_node_partition=True
    )
    fused = partitioner.fuse_partitions(partitioner.propose_partitions(), prefix="poot_part_")
    names = [n.target for n in fused.graph.nodes if n.op == "call_module"]
    return fused, [name for name in names if str(name).startswith("poot_part_")], left
