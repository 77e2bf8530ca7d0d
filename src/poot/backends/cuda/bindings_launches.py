"""What cuda-bindings is told of launches: arguments in memory that stays, configurations, graph
nodes, tensor maps. Every function gives the library's own objects."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsInt

from poot.backends.cuda.loader import cu
from poot.backends.cuda.provider import Call
from poot.codegen.attributes import ONE, TensorView
from poot.codegen.kir.nodes import ELEMENT_BYTES, Blob

Answer = tuple[Any, ...]  # what a call of the library gives: its code, then its values
# Names in CUtensorMapDataType.
_MAP_DTYPES = {
    "f32": "FLOAT32", "f16": "FLOAT16", "bf16": "BFLOAT16", "f8e4m3": "UINT8", "i8": "UINT8",
    "u8": "UINT8", "i32": "INT32", "u32": "UINT32", "bool": "UINT32", "i64": "INT64",
    "u64": "UINT64",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel with the module that holds it."""

    name: str
    module: SupportsInt
    handle: object


@dataclass(frozen=True, slots=True)
class Bound:
    """Calls with their arguments in memory that stays: `pointers` is the address of the array of
    argument addresses of each, `configs` the launch configuration of those with attributes.
    """

    calls: tuple[Call, ...]
    pointers: tuple[int, ...]
    memory: tuple[object, ...]
    configs: tuple[object, ...]

    def rows(self) -> zip[tuple[Call, int, object]]:
        """Call, pointers and configuration of each launch."""
        return zip(self.calls, self.pointers, self.configs, strict=True)


def bind(calls: Sequence[Call], stream: object) -> Bound:
    """The calls laid out, to be launched on that stream or in a graph."""
    pointers: list[int] = []
    memory: list[object] = []
    for call in calls:
        raw = ctypes.create_string_buffer(call.arguments, max(1, len(call.arguments)))
        start = ctypes.addressof(raw)
        count = len(call.offsets)
        table = (ctypes.c_void_p * max(1, count))(*(start + at for at in call.offsets))
        pointers.append(ctypes.addressof(table))
        memory += [raw, table]
    configs = (_config(call, stream) for call in calls)
    return Bound(tuple(calls), tuple(pointers), tuple(memory), tuple(configs))


def _config(call: Call, stream: object) -> object:
    """The launch's configuration where it has attributes that the driver is told, else None."""
    asked = call.attributes
    if asked.cluster == ONE and not asked.overlap:
        return None
    assert isinstance(call.function, Function)
    config = cu.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = call.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = call.threads, 1, 1
    config.sharedMemBytes = call.dynamic_nbytes
    config.hStream = stream
    rows: list[object] = []
    kinds = cu.CUlaunchAttributeID
    if asked.overlap:
        row = cu.CUlaunchAttribute()
        row.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        row.value.programmaticStreamSerializationAllowed = 1
        rows.append(row)
    if asked.cluster != ONE:
        row = cu.CUlaunchAttribute()
        row.id = kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dim = row.value.clusterDim
        dim.x, dim.y, dim.z = asked.cluster
        rows.append(row)
    config.attrs, config.numAttrs = rows, len(rows)
    return config


def on_stream(config: object, stream: object) -> object:
    """The configuration, for a launch on that stream."""
    known: Any = config
    known.hStream = stream
    return known


def node_of(call: Call, pointers: int) -> object:
    """A kernel node's parameters."""
    assert isinstance(call.function, Function)
    node = cu.CUDA_KERNEL_NODE_PARAMS()
    node.func = call.function.handle
    node.gridDimX, node.gridDimY, node.gridDimZ = call.grid
    node.blockDimX, node.blockDimY, node.blockDimZ = call.threads, 1, 1
    node.sharedMemBytes = call.dynamic_nbytes
    node.kernelParams = pointers
    return node


def cluster_value(cluster: tuple[int, int, int]) -> tuple[object, object]:
    """A kernel node's attribute, and its value, for clusters of that many groups."""
    value = cu.CUkernelNodeAttrValue()
    dim = value.clusterDim
    dim.x, dim.y, dim.z = cluster
    return cu.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value


def add_early_edge(graph: object, before: Sequence[object], node: object) -> Answer:
    """An edge to a node that may begin where all groups of the one before have let it (CUDA Driver
    API, CUgraphEdgeData)."""
    edge = cu.CUgraphEdgeData()
    edge.from_port = cu.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
    edge.type = cu.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
    # Before CUDA 13 the function that takes edges with data has a name of its own.
    add = getattr(cu, "cuGraphAddDependencies_v2", None) or cu.cuGraphAddDependencies
    return add(graph, list(before), [node], [edge], 1)


def encode_map(pointer: int, view: TensorView, blob: Blob) -> Answer:
    """A tensor map of the kernel's blob over the tensor at that address."""
    kinds, nbytes = cu.CUtensorMapDataType, ELEMENT_BYTES[blob.dtype]
    dtype = getattr(kinds, f"CU_TENSOR_MAP_DATA_TYPE_{_MAP_DTYPES[blob.dtype]}")
    swizzle = cu.CUtensorMapSwizzle
    return cu.cuTensorMapEncodeTiled(
        dtype,
        len(view.dims),
        pointer,
        [cu.cuuint64_t(n) for n in view.dims],
        [cu.cuuint64_t(n * nbytes) for n in view.strides[1:]],
        [cu.cuuint32_t(n) for n in blob.box],
        [cu.cuuint32_t(1) for _ in blob.box],
        cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        swizzle.CU_TENSOR_MAP_SWIZZLE_128B
        if blob.swizzle == "128B"
        else swizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
        cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
