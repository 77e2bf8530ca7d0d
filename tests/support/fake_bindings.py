"""`cuda.bindings.driver` without a driver: what was called, and results that a test sets."""

from __future__ import annotations

import ctypes
import enum
from types import SimpleNamespace

import pytest

from poot.backends.cuda import bindings_launches, cuda_bindings


class Result(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_INVALID_PTX = 218
    CUDA_ERROR_ILLEGAL_ADDRESS = 700


class Handle(int):
    """A stream, context or module of the driver."""


class Names:
    """Members of an enumeration: each its own name."""

    def __getattr__(self, name: str) -> str:
        return name


class Attribute:
    """A launch attribute: an id, and a union of values."""

    def __init__(self) -> None:
        self.id = ""
        self.value = Value()


class Value:
    """The union of a launch attribute's values."""

    def __init__(self) -> None:
        self.clusterDim = SimpleNamespace()
        self.programmaticStreamSerializationAllowed = 0


class FakeBindings:
    """Any `cu...` is a function that notes its call and gives what `gives` says, else success and
    numbers in turn. `fails` maps a function to its result."""

    CUstream = Handle
    CUjit_option = SimpleNamespace(
        CU_JIT_ERROR_LOG_BUFFER="log", CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES="size"
    )
    CUfunction_attribute = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="most", CU_FUNC_ATTRIBUTE_NUM_REGS="regs",
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES="shared", CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES="local",
    )  # fmt: skip
    CUDA_KERNEL_NODE_PARAMS = CUlaunchConfig = CUgraphEdgeData = SimpleNamespace
    CUlaunchAttribute, CUkernelNodeAttrValue = Attribute, Value
    CUlaunchAttributeID = CUkernelNodeAttrID = CUgraphDependencyType = Names()
    CUtensorMapDataType = CUtensorMapSwizzle = CUtensorMapInterleave = Names()
    CUtensorMapL2promotion = CUtensorMapFloatOOBfill = Names()
    CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC = 1
    cuuint64_t = cuuint32_t = int

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[object, ...]]] = []
        self.fails: dict[str, Result] = {}
        self.gives: dict[str, tuple[object, ...]] = {
            "cuDeviceGetCount": (1,),
            "cuDriverGetVersion": (13000,),
            "cuDeviceGetName": (b"a card\0\0",),
            "cuDeviceTotalMem": (1 << 30,),
            "cuMemGetInfo": (100, 200),
            "cuEventElapsedTime": (0.25,),
            "cuTensorMapEncodeTiled": (SimpleNamespace(opaque=list(range(16))),),
        }
        self.number = 100
        self.host: list[ctypes.Array[ctypes.c_char]] = []  # page-locked memory, for as long as this

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def __getattr__(self, name: str):
        if name == "CUdevice_attribute":
            return self
        if name.startswith("CU_DEVICE_ATTRIBUTE_"):
            return name
        if not name.startswith("cu") or name.endswith("_v2"):
            raise AttributeError(name)

        def call(*args: object) -> tuple[object, ...]:
            self.calls.append((name, args))
            if name in self.fails:
                return (self.fails[name], *[None] * 2)
            if name == "cuGetErrorString":
                return (Result.CUDA_SUCCESS, b"the driver's words")
            if name == "cuDeviceGetAttribute":
                major = {"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": 9}
                return (Result.CUDA_SUCCESS, major.get(str(args[0]), 0))
            if name == "cuMemAllocHost":
                self.host.append(ctypes.create_string_buffer(int(str(args[0]))))
                return (Result.CUDA_SUCCESS, ctypes.addressof(self.host[-1]))
            if name in self.gives:
                return (Result.CUDA_SUCCESS, *self.gives[name])
            self.number += 1
            return (Result.CUDA_SUCCESS, Handle(self.number))

        return call


def stand_in(monkeypatch: pytest.MonkeyPatch) -> FakeBindings:
    """The fake in place of the library, in every module that calls it."""
    fake = FakeBindings()
    for module in (cuda_bindings, bindings_launches):
        monkeypatch.setattr(module, "cu", fake)
    monkeypatch.setattr(cuda_bindings, "NO_BINDINGS", "")
    return fake
