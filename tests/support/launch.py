"""Runs a step's kernels: from a body's text to a request, through the simulator, to arrays."""

from __future__ import annotations

from collections.abc import Container, Sequence

import numpy as np

from poot.codegen.gen.lower import lower
from poot.codegen.gen.lowered import KernelCall, Lowered
from poot.codegen.kir.sim.run import simulate
from poot.codegen.kir.sim.team import TensorMap
from poot.codegen.kir.sim.values import NUMPY
from poot.codegen.kir.verify import check_arrays, verify
from poot.device_bytes import from_device, to_device
from poot.ir.build import Builder
from poot.ir.graph import Graph, Slot, TensorType
from poot.ir.text import parse
from poot.limits import PROFILES, DeviceLimits
from poot.oracle import run
from poot.planner.layouts import pack
from poot.planner.request import Request, Schedule
from poot.planner.schedules import choose
from poot.planner.steps import canonical_body
from tests.support.graphs import random_inputs

LAVAPIPE = PROFILES["lavapipe"]
BASELINE = PROFILES["webgpu-baseline"]
Updates = tuple[tuple[int, int], ...]


def body_of(op: str, *types: TensorType, **attrs: object) -> Graph:
    """One op on inputs of these types."""
    b = Builder()
    ins = [b.input(t, f"x{n}", Slot()) for n, t in enumerate(types)]
    return b.graph(b.emit(op, *ins, **attrs))


def request_of(
    body: Graph | str,
    anchor: str,
    updates: Updates = (),
    limits: DeviceLimits = LAVAPIPE,
    schedule: Schedule | None = None,
    bound: Container[int] = (),
) -> Request:
    """The request of a body, with the chosen schedule or this one. `bound` holds the numbers of
    the inputs that are Weights."""
    graph = canonical_body(parse(body) if isinstance(body, str) else body, bound)
    choice = choose(graph, anchor, updates, limits)
    return Request(
        graph, anchor, updates, choice.layouts, schedule or choice.schedule, choice.scratch
    )


def device_buffers(
    request: Request, ins: Sequence[np.ndarray]
) -> dict[tuple[str, int], np.ndarray]:
    """Bytes of every buffer of a step: outputs and scratch full of what no kernel should leave
    there."""
    body = request.body
    rows = zip(body.inputs, ins, request.layouts, strict=True)
    buffers = {
        ("in", n): to_device(pack(x, layout), i.var.type).copy()
        for n, (i, x, layout) in enumerate(rows)
    }
    updates = dict(request.updates)
    for n, v in enumerate(body.outputs):
        if n in updates:
            buffers["out", n] = buffers["in", updates[n]]
        else:
            buffers["out", n] = np.full(-(-v.type.nbytes // 4) * 4, 0xA5, np.uint8)
    for n, s in enumerate(request.scratch):
        nbytes = TensorType(s.dtype, (s.elems,)).nbytes
        buffers["scratch", n] = np.full(nbytes, 0xFF, np.uint8)
    return buffers


def simulate_lowered(lowered: Lowered, buffers: dict[tuple[str, int], np.ndarray]) -> None:
    """Verifies each kernel and runs it over the buffers, looking for lanes that meet in one."""
    for call in lowered.calls:
        verify(call.kernel)
        check_arrays(call.kernel)
        arrays = {
            p.name: buffers[arg].view(NUMPY["u32" if p.dtype == "bool" else p.dtype])
            for p, arg in zip(call.kernel.params, call.args, strict=True)
        }
        simulate(call.kernel, arrays, call.grid, imms=call.imms, blobs=tensor_maps(call),
                 buffer_races=True)  # fmt: skip


def loads_of(request: Request, ins: Sequence[np.ndarray], limits: DeviceLimits, number: int) -> int:
    """How many elements of an input the step's first launch loads."""
    buffers = device_buffers(request, ins)
    call = lower(request, limits).calls[0]
    arrays = {
        p.name: buffers[arg].view(NUMPY[p.dtype])
        for p, arg in zip(call.kernel.params, call.args, strict=True)
    }
    stats = simulate(call.kernel, arrays, call.grid)
    return stats.loads[f"in{number}"]


def tensor_maps(call: KernelCall) -> dict[str, TensorMap]:
    """What the call's tensor maps view, for the simulator."""
    names = dict(zip(call.args, (p.name for p in call.kernel.params), strict=True))
    return {
        blob.name: TensorMap(names[arg], view.dims, view.strides)
        for blob, (arg, view) in zip(call.kernel.blobs, call.maps, strict=True)
    }


def run_request(
    request: Request, ins: Sequence[np.ndarray], limits: DeviceLimits = LAVAPIPE
) -> list[np.ndarray]:
    """The step's outputs, by the simulator."""
    buffers = device_buffers(request, ins)
    simulate_lowered(lower(request, limits), buffers)
    for n, s in enumerate(request.scratch):
        assert not s.at_rest or (buffers["scratch", n] == 0xFF).all(), f"scratch {n} is not at rest"
    return outputs_of(request, buffers)


def outputs_of(request: Request, buffers: dict[tuple[str, int], np.ndarray]) -> list[np.ndarray]:
    return [from_device(buffers["out", n], v.type) for n, v in enumerate(request.body.outputs)]


def wanted(request: Request, ins: Sequence[np.ndarray], *, f64: bool = False) -> list[np.ndarray]:
    """The same outputs by the oracle."""
    feed = {i.name: x for i, x in zip(request.body.inputs, ins, strict=True)}
    return list(run(request.body, feed, f64=f64).outputs)


def inputs_of(request: Request, seed: int = 0, *, edges: bool = False) -> list[np.ndarray]:
    """Random inputs; the rows of a scatter_update name no row twice, and some none."""
    feed = random_inputs(request.body, seed, edges=edges)
    rng = np.random.default_rng(seed)
    ins = {i.var.id: np.asarray(feed[i.name]) for i in request.body.inputs}
    for eqn in request.body.eqns:
        if eqn.op == "scatter_update" and eqn.ins[2].id in ins:
            rows, extent = eqn.ins[2].type.elems, eqn.ins[0].type.shape[0]
            named = rng.permutation(np.arange(-1, max(extent, rows)))[:rows]
            ins[eqn.ins[2].id] = named.astype(np.int32)
    return list(ins.values())


def assert_close(got: np.ndarray, want: np.ndarray, within: float) -> None:
    """Equal shapes and dtypes; integers equal; floats to `within` of the wanted size and
    absolutely, NaN like NaN."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    if want.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want)
        return
    with np.errstate(invalid="ignore"):  # a signalling NaN is quieted by the cast
        ours, theirs = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(ours, theirs, rtol=within, atol=within)


def check_step(
    body: Graph | str,
    anchor: str,
    updates: Updates = (),
    *,
    limits: DeviceLimits = LAVAPIPE,
    schedule: Schedule | None = None,
    ins: Sequence[np.ndarray] | None = None,
    within: float = 1e-6,
    seed: int = 0,
    edges: bool = False,
    bound: Container[int] = (),
) -> Request:
    """Simulates the step and compares each output with the oracle's. Returns the request."""
    request = request_of(body, anchor, updates, limits, schedule, bound)
    given = list(ins) if ins is not None else inputs_of(request, seed, edges=edges)
    for got, want in zip(run_request(request, given, limits), wanted(request, given), strict=True):
        assert_close(got, want, within)
    return request
