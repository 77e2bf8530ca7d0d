"""Chooses each step's schedule: the loops a generator will write, their numbers, and why.

One function an anchor, found by target in a table (a target without a row of its own takes the
portable one). A choice depends on the body's shapes and the device's limits alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from poot.errors import AttentionLds, CapabilityError
from poot.ir.attrs import int_attr, ints_attr
from poot.ir.graph import Eqn, Graph
from poot.limits import DeviceLimits
from poot.planner.request import Choice, Layout, Schedule
from poot.planner.spills import new_part, spill_scratch

Updates = tuple[tuple[int, int], ...]
Row = Callable[[Graph, Updates, DeviceLimits], tuple[Schedule, str]]

ELEMENTWISE_THREADS = 64
REDUCE_LANES = 64
# A row this short is folded by one lane.
SHORT_ROW = 8
LONG_ROW = 8192


def power_of_two_below(n: int) -> int:
    """The largest power of two that is at most n (n >= 1)."""
    return 1 << (n.bit_length() - 1)


def _one(body: Graph, op: str) -> Eqn:
    found = [e for e in body.eqns if e.op == op]
    if not found:
        raise CapabilityError(f"a step anchored by {op} has none")
    return found[0]


def choose_elementwise(body: Graph, updates: Updates, limits: DeviceLimits) -> tuple[Schedule, str]:
    """A few elements a lane; four where that still leaves groups for every compute unit."""
    ranks = [e for e in body.eqns if e.op in ("topk", "argmax")]
    if ranks:
        return _choose_rank(ranks[0], limits)
    threads = min(ELEMENTWISE_THREADS, power_of_two_below(limits.threads))
    elems = max(
        (new_part(body, updates, n).type.elems for n in range(len(body.outputs))), default=1
    )
    per = 4 if elems >= 4 * threads * limits.compute_units * 4 else 1
    return Schedule("elementwise", (("per", per), ("threads", threads))), f"{elems} elements"


def _choose_rank(eqn: Eqn, limits: DeviceLimits) -> tuple[Schedule, str]:
    shape = eqn.ins[0].type.shape
    axis = int_attr(eqn, "axis") if eqn.op == "argmax" else len(shape) - 1
    lanes = _lanes_for(shape[axis], limits)
    reason = f"{lanes} lanes a row of {shape[axis]}"
    return Schedule(eqn.op, (("lanes", lanes), ("threads", lanes))), reason


def _lanes_for(cols: int, limits: DeviceLimits) -> int:
    most = 256 if cols >= LONG_ROW else REDUCE_LANES
    return power_of_two_below(max(1, min(most, limits.threads, cols)))


def choose_reduce(body: Graph, updates: Updates, limits: DeviceLimits) -> tuple[Schedule, str]:
    """Lanes share a long row; a short one, or columns apart in memory with rows to spare, has one
    lane."""
    reduce = _one(body, "reduce")
    shape, axes = reduce.ins[0].type.shape, ints_attr(reduce, "axis")
    cols = math.prod(shape[a] for a in axes)
    rows = math.prod(shape) // cols if cols else math.prod(reduce.out.type.shape)
    is_trailing = list(axes) == list(range(len(shape) - len(axes), len(shape)))
    threads = min(REDUCE_LANES, power_of_two_below(limits.threads))
    enough = threads * limits.compute_units
    lanes = _lanes_for(max(cols, 1), limits)
    if cols <= SHORT_ROW or (not is_trailing and rows >= enough):
        lanes = 1
    schedule = Schedule("reduce", (("lanes", lanes), ("threads", max(lanes, threads))))
    return schedule, f"{rows} rows of {cols}, {lanes} lanes a row"


STREAMING_LANES = 64


def streaming_lanes(dv: int, limits: DeviceLimits) -> int:
    """The widest power of two, at most 64, of lanes whose states (dv + 2 floats each) fit the
    workgroup memory. Raises AttentionLds where one lane's does not."""
    one = (dv + 2) * 4
    if one > limits.workgroup_nbytes:
        raise AttentionLds(
            f"attention with values {dv} wide needs {one} bytes of workgroup memory for one lane, "
            f"and {limits.name} has {limits.workgroup_nbytes}; split the value's width"
        )
    most = min(STREAMING_LANES, limits.threads, limits.workgroup_nbytes // one)
    return power_of_two_below(most)


def choose_attention(body: Graph, updates: Updates, limits: DeviceLimits) -> tuple[Schedule, str]:
    """The seed's streaming schedule: a group of lanes for each query row."""
    eqn = _one(body, "attention")
    width, value_width = eqn.ins[0].type.shape[-1], eqn.outs[0].type.shape[-1]
    lanes = streaming_lanes(value_width, limits)
    nbytes = (lanes * (value_width + 2) + width) * 4
    stage_q = int(nbytes <= limits.workgroup_nbytes)
    schedule = Schedule("streaming", (("lanes", lanes), ("stage_q", stage_q)))
    return schedule, f"{lanes} lanes a query row"


PORTABLE: dict[str, Row] = {
    "none": choose_elementwise,
    "reduce": choose_reduce,
    "attention": choose_attention,
}
# target -> anchor -> row, where a target has its own.
TARGETS: dict[str, dict[str, Row]] = {}


def choose(body: Graph, anchor: str, updates: Updates, limits: DeviceLimits) -> Choice:
    """The schedule, layouts and scratch of a step. Raises AttentionLds, GridLimit,
    CapabilityError."""
    row = TARGETS.get(limits.target, {}).get(anchor) or PORTABLE[anchor]
    schedule, reason = row(body, updates, limits)
    scratch = spill_scratch(body, anchor, updates, limits)
    return Choice(schedule, (Layout(),) * len(body.inputs), scratch, reason)
