"""Chooses each step's schedule: the loops a generator will write, their numbers, and why.

One function an anchor, found by target in a table (a target without a row of its own takes the
portable one). A choice depends on the body's shapes and the device's limits alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from poot.errors import AttentionLds, CapabilityError
from poot.ir.attrs import int_attr, ints_attr
from poot.ir.graph import Eqn, Graph
from poot.limits import DeviceLimits
from poot.planner.begins import begin_of
from poot.planner.grouped import choose_grouped
from poot.planner.grouped_split import grouped_split
from poot.planner.key_blocks import choose_key_blocks
from poot.planner.matrix import left_scratch
from poot.planner.operands import keys_of, operands_of
from poot.planner.panels import choose_panels
from poot.planner.powers import power_of_two_below
from poot.planner.products import choose_matmul
from poot.planner.request import Choice, Layout, Schedule, Scratch
from poot.planner.selected import choose_best_blocks, choose_block_scores, choose_selected
from poot.planner.shared_key import LEAST_CHUNK, MOST_SPLITS, shared_key
from poot.planner.spills import new_part, spill_scratch
from poot.planner.subgroup_tiles import choose_subgroup_tiles
from poot.planner.tiled import choose_on_card

Updates = tuple[tuple[int, int], ...]
Row = Callable[[Graph, Updates, DeviceLimits], tuple[Schedule, str]]

ELEMENTWISE_THREADS = 64
REDUCE_LANES = 64
# A topk of more takes no round for each.
MOST_ROUNDS = 16
# A row this short is folded by one lane.
SHORT_ROW = 8
LONG_ROW = 8192


def _one(body: Graph, op: str) -> Eqn:
    found = [e for e in body.eqns if e.op == op]
    if not found:
        raise CapabilityError(f"a step anchored by {op} has none")
    return found[0]


def choose_elementwise(body: Graph, updates: Updates, limits: DeviceLimits) -> tuple[Schedule, str]:
    """A few elements a lane; four where that still leaves groups for every compute unit."""
    scores = [e for e in body.eqns if e.op == "block_scores"]
    if scores:
        return choose_block_scores(scores[0], limits)
    best = [e for e in body.eqns if e.op == "block_topk"]
    if best:
        return choose_best_blocks(best[0], limits)
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
    if eqn.op == "topk" and int_attr(eqn, "k") > MOST_ROUNDS:
        ranked = _ranked(shape[axis], int_attr(eqn, "k"), limits)
        if ranked is not None:
            return ranked, f"{reason}, {int_attr(eqn, 'k')} of them by their bits"
    return Schedule(eqn.op, (("lanes", lanes), ("threads", lanes))), reason


def _ranked(cols: int, many: int, limits: DeviceLimits) -> Schedule | None:
    """The schedule that takes no round for each of the k largest, where its list fits workgroup
    memory and its loops a device that cuts long ones short."""
    lanes = _lanes_for(max(cols, many), limits)
    need = 4 * (256 + 16 + 2 * many + 2 * (lanes + -(-lanes // 16)))
    trips = -(-many // lanes) * many + 8 * -(-cols // lanes) + 1024
    if need > limits.workgroup_nbytes or (limits.loop_trips and trips > limits.loop_trips // 2):
        return None
    stage = int(need + 4 * cols <= limits.workgroup_nbytes)
    return Schedule("ranked_topk", (("lanes", lanes), ("stage", stage), ("threads", lanes)))


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
    may_be_alone = not limits.loop_trips or cols < limits.loop_trips // 2
    if cols <= SHORT_ROW or (not is_trailing and rows >= enough and may_be_alone):
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
    """Several query rows take a matrix unit where subgroups have one. With subgroups to count on, a
    decode's query heads share their key heads' rows. Heads that share a part of the key share a
    group. Else the seed's schedules: a group of lanes for each query row; for a decode of few rows,
    one for each of several chunks of its keys."""
    eqn = _one(body, "attention")
    if eqn.ins[0].type.shape[2] != 1 and limits.matrix_dtypes:
        tiles = choose_subgroup_tiles(body, limits)
        if isinstance(tiles, Choice):
            return tiles.schedule, tiles.reason
        schedule, reason = _by_rows(body, eqn, limits)
        return schedule, f"{reason}; {tiles}"
    return _by_rows(body, eqn, limits)


def _by_rows(body: Graph, eqn: Eqn, limits: DeviceLimits) -> tuple[Schedule, str]:
    found = grouped_split(body, limits)
    if isinstance(found, Schedule):
        return found, f"{found.get('splits')} parts of a unit's keys, in registers"
    shared = _shared_key(eqn, limits)
    if shared is not None:
        return shared
    width, value_width = eqn.ins[0].type.shape[-1], eqn.outs[0].type.shape[-1]
    lanes = streaming_lanes(value_width, limits)
    nbytes = (lanes * (value_width + 2) + width) * 4
    stage_q = int(nbytes <= limits.workgroup_nbytes)
    numbers = (("lanes", lanes), ("stage_q", stage_q))
    batch, heads, rows, _ = eqn.ins[0].type.shape
    trips = -(-keys_of(operands_of(eqn)) // lanes) * trips_a_key(eqn) + 4 * (lanes + value_width)
    splits, reason = kv_splits(eqn, limits, batch * heads * rows, trips)
    if splits == 1:
        return Schedule("streaming", numbers), f"{lanes} lanes a query row; {reason}"
    schedule = Schedule("split_kv", (*numbers, ("splits", splits)))
    return schedule, f"{lanes} lanes a query row; {reason}"


def _shared_key(eqn: Eqn, limits: DeviceLimits) -> tuple[Schedule, str] | None:
    """The schedule that reads the shared part of a split key once for many heads, or None where
    there is no such part, no room, or a device would cut its loops short."""
    got = shared_key(eqn, limits)
    if got is None:
        return None
    splits, reason = kv_splits(eqn, limits, got.groups, got.trips)
    if limits.loop_trips and -(-got.trips // splits) > limits.loop_trips:
        return None
    numbers = {
        "block": got.block, "heads": got.heads, "lanes": got.lanes, "splits": splits,
        "stage_q": got.stage_q,
    }  # fmt: skip
    reason = f"{got.heads} query heads share a reading of the shared part; {reason}"
    return Schedule("shared_key", tuple(sorted(numbers.items()))), reason


def trips_a_key(eqn: Eqn) -> int:
    """How often a lane goes round loops for one key: blocks of four products and of four channels,
    and the loops around them."""
    widths = (eqn.ins[0].type.shape[-1], eqn.outs[0].type.shape[-1])
    return 4 + sum(-(-width // 4) for width in widths)


def kv_splits(eqn: Eqn, limits: DeviceLimits, groups: int, trips: int) -> tuple[int, str]:
    """Into how many chunks a decode's keys are cut, and why: only one query row a head, only where
    the groups don't fill the compute units or a lane's trips through loops would be cut short, at
    most 16, of 128 keys or more, and only where the partial states fit a buffer and the launch the
    grid."""
    keys = keys_of(operands_of(eqn))
    if eqn.ins[0].type.shape[2] != 1:
        return 1, "several query rows"
    needed = -(-trips // limits.loop_trips) if limits.loop_trips else 1
    if groups >= limits.compute_units and needed == 1:
        return 1, f"{groups} rows fill {limits.compute_units} compute units"
    wanted = max(needed, -(-limits.compute_units // max(groups, 1)))
    splits = min(MOST_SPLITS, wanted, keys // LEAST_CHUNK)
    if splits < 2:
        return 1, f"{keys} keys are too few to split"
    nbytes = split_scratch(eqn, splits).elems * 4
    if nbytes > min(limits.buffer_nbytes, limits.binding_nbytes):
        return 1, f"partial states of {nbytes} bytes pass the largest buffer"
    if groups * splits > limits.grid[0] * limits.grid[1]:
        return 1, f"{groups * splits} groups pass the grid"
    return splits, f"{splits} splits of {keys} keys for {groups} rows"


def split_scratch(eqn: Eqn, splits: int) -> Scratch:
    """Partial states: dv values, a maximum and a sum for each row and split."""
    batch, heads, rows, width = eqn.outs[0].type.shape
    return Scratch("f32", batch * heads * rows * splits * (width + 2))


PORTABLE: dict[str, Row] = {
    "none": choose_elementwise,
    "reduce": choose_reduce,
    "matmul": choose_matmul,
    "attention": choose_attention,
}
# Schedules whose groups leave partial states where they split keys.
SPLIT = ("split_kv", "grouped_split", "shared_key")
# target -> anchor -> row, where a target has its own.
TARGETS: dict[str, dict[str, Row]] = {}
# The same for rows that choose layouts and scratch too; None leaves the step to the other tables,
# and so does a text, which says why.
WHOLE: dict[str, dict[str, Callable[[Graph, DeviceLimits], Choice | str | None]]] = {
    "ptx": {"attention": choose_on_card},
    "llvm": {"matmul": choose_panels, "attention": choose_key_blocks},
}


def choose(body: Graph, anchor: str, updates: Updates, limits: DeviceLimits) -> Choice:
    """The schedule, layouts and scratch of a step. Raises AttentionLds, GridLimit,
    CapabilityError."""
    choice = _choose(body, anchor, updates, limits)
    if any(begin_of(body, eqn) for eqn in body.eqns):
        said = f"{choice.reason}; keys before the limit that the mask is of are not visited"
        return replace(choice, reason=said)
    return choice


def _choose(body: Graph, anchor: str, updates: Updates, limits: DeviceLimits) -> Choice:
    selected = next((e for e in body.eqns if e.op == "selected_attention"), None)
    blocks = limits.target == "llvm" and selected is not None
    of_blocks = choose_key_blocks(body, limits) if blocks else None
    if of_blocks is not None:
        return of_blocks
    if selected is not None:
        on_card = choose_grouped(body, limits) if limits.target == "ptx" else ""
        if isinstance(on_card, Choice):
            return on_card
        schedule, scratch, reason = choose_selected(body, selected, limits)
        reason = f"{reason}; {on_card}" if on_card else reason
        scratch = (*spill_scratch(body, anchor, updates, limits), *scratch)
        return Choice(schedule, (Layout(),) * len(body.inputs), scratch, reason)
    whole = WHOLE.get(limits.target, {}).get(anchor)
    choice = whole(body, limits) if whole is not None else None
    if isinstance(choice, Choice):
        return choice
    row = TARGETS.get(limits.target, {}).get(anchor) or PORTABLE[anchor]
    schedule, reason = row(body, updates, limits)
    scratch = spill_scratch(body, anchor, updates, limits)
    splits = schedule.get("splits") if schedule.name in SPLIT else 1
    if splits > 1 or schedule.name == "grouped_split":
        scratch = (*scratch, split_scratch(_one(body, "attention"), splits))
    if schedule.name in ("matrix", "matrix_ring"):
        scratch = (*scratch, *left_scratch(body))
    if choice:
        reason = f"{reason}; {choice}"
    return Choice(schedule, (Layout(),) * len(body.inputs), scratch, reason)
