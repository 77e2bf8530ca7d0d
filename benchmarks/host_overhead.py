"""What a replayed step costs the host in Python, against a stand-in for cuda-bindings that returns
at once: no GPU is needed, and nothing of the driver's own time is in it.

    PYTHONPATH=src:. python benchmarks/host_overhead.py --out results.json

The program has SmolLM2's slots (tokens i32[1], pos i32[]). `direct` is `session.step` with its
outputs left on the device, launch by launch, `replayed` the same by the captured step, `whole` with
logits of 49,152 floats on the host. Medians of microseconds.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import poot
from benchmarks.record import save
from poot import ops
from poot.backends.cuda import bindings_launches, cuda_bindings
from poot.backends.cuda.cuda_bindings import BindingsDriver
from poot.backends.cuda.device import CudaDevice
from poot.backends.cuda.provider import Facts
from poot.limits import profile
from poot.session import Session

CAPACITY = 128
VOCABULARY = 49152


class Handle(int):
    """A stream, context or node of the driver."""


class Blank(SimpleNamespace):
    """A structure of the driver, of any fields."""

    def __getattr__(self, name: str) -> Blank:
        return self.__dict__.setdefault(name, Blank())


class Still:
    """`cuda.bindings.driver` that does nothing: every call succeeds at once. A graph's first node
    takes its slots as it is launched."""

    CUstream = Handle
    CUjit_option = SimpleNamespace(CU_JIT_ERROR_LOG_BUFFER=0, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES=1)
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
    CUDA_KERNEL_NODE_PARAMS = SimpleNamespace
    CUlaunchConfig = CUlaunchAttribute = CUgraphEdgeData = CUkernelNodeAttrValue = Blank
    CUlaunchAttributeID = CUgraphDependencyType = CUkernelNodeAttrID = Blank()
    CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC = 1

    def __init__(self) -> None:
        self.host: list[np.ndarray] = []
        self.next = 1 << 40
        self.taken: ctypes.c_uint32 | None = None

    def add_node(self, graph: object, before: object, count: int, node: SimpleNamespace):
        if self.taken is None:  # the node that takes slots: first comes the ring's address
            at = ctypes.c_void_p.from_address(node.kernelParams).value or 0
            self.taken = ctypes.c_uint32.from_address(ctypes.c_uint64.from_address(at).value)
        return 0, Handle(9)

    def launch_graph(self, graph: object, stream: object) -> tuple[int]:
        if self.taken is not None:
            self.taken.value += 1
        return (0,)

    def allocate(self, nbytes: int) -> tuple[int, int]:
        self.next += nbytes + 512
        return 0, self.next

    def host_memory(self, nbytes: int) -> tuple[int, int]:
        self.host.append(np.zeros(nbytes, np.uint8))
        return 0, self.host[-1].ctypes.data

    def __getattr__(self, name: str) -> Callable[..., tuple[object, ...]]:
        one = (0, Handle(9))
        found = {
            "cuMemAlloc": self.allocate, "cuMemAllocHost": self.host_memory,
            "cuGraphAddKernelNode": self.add_node, "cuGraphLaunch": self.launch_graph,
        }.get(name)  # fmt: skip
        made = found or (lambda *args: one)
        setattr(self, name, made)
        return made


def small_program(device: CudaDevice) -> Session:
    """A cache of CAPACITY rows that a token's row is written to, and its sum over a vocabulary."""

    def step(cache, w, tokens, pos):
        row = ops.gather(w, tokens, axis=0, mode="clamp")
        cache = ops.dynamic_update_slice(cache, row, pos, axis=0)
        return cache.sum(axis=0) @ w.transpose((1, 0)), cache

    specs = (
        poot.state((CAPACITY, 4)),
        poot.weight((VOCABULARY, 4)),
        poot.slot((1,), "i32", kind="tokens", range=(0, VOCABULARY)),
        poot.slot((), "i32", kind="pos", range=(0, CAPACITY)),
    )
    program = poot.compile({"decode": poot.trace(step, specs)}, device)
    return program.bind({"w": np.zeros((VOCABULARY, 4), np.float32)})


def median_us(body: Callable[[int], object], runs: int) -> float:
    times: list[float] = []
    for n in range(runs):
        start = time.perf_counter()
        body(n)
        times.append(time.perf_counter() - start)
    return round(1e6 * statistics.median(times), 2)


def measure(runs: int) -> dict[str, float]:
    still = Still()
    for module in (cuda_bindings, bindings_launches):
        module.cu = still
    device = CudaDevice(BindingsDriver(0, None), Facts("nothing", profile("h200")))
    session = small_program(device)

    def slots(n: int) -> dict[str, object]:
        return {"tokens": np.array([n], np.int32), "pos": np.int32(n % CAPACITY)}

    given = [slots(n) for n in range(runs)]
    direct = median_us(lambda n: session.step("decode", device_outputs=True, **given[n]), runs)
    replay = session.capture("decode")
    return {
        "direct": direct,
        "replayed": median_us(lambda n: replay(device_outputs=True, **given[n]), runs),
        "same slots": median_us(lambda n: replay(device_outputs=True, **given[0]), runs),
        "whole": median_us(lambda n: replay(**given[n]), runs),
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args(argv)
    found = measure(options.runs)
    for name, us in found.items():
        print(f"{name:<12} {us:>8} us")
    if options.out is not None:
        save(options.out, found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
