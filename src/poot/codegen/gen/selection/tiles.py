"""Schedule "selected": a group attends a tile of query rows over the slots that they visit.

A tile is `heads` query heads that share a list, at one query row, or at `rows` of them over the
union of their lists (`union.py`). For each `block` slots the lanes stage the slots' keys, share out
the dot products by slots and parts of the width, make one softmax step a row, and add the weighted
values: a lane owns channels of every row, in registers. A key and a value are read once a tile.
With `splits` each takes a share of the slots and leaves a partial state, merged as in "split_kv".
"""

from __future__ import annotations

from poot.codegen.gen.attention.finish import finish
from poot.codegen.gen.attention.fold import Folded
from poot.codegen.gen.attention.parts import Parts, attention_eqn, parts_of
from poot.codegen.gen.attention.split_kv import combine, state_type
from poot.codegen.gen.grid import each_group
from poot.codegen.gen.index import Index
from poot.codegen.gen.job import needed_by, open_job
from poot.codegen.gen.lowered import KernelCall, Lowered
from poot.codegen.gen.memory import Memory
from poot.codegen.gen.selection.step import attend
from poot.codegen.gen.selection.tile import States, Tile, declare, open_states, stage
from poot.codegen.gen.selection.union import Union, lower_union
from poot.codegen.gen.selection.visits import list_head, slots_of
from poot.codegen.gen.sinks import Sink, open_sinks
from poot.codegen.gen.spill import lower_spilled
from poot.codegen.kir.build import Val
from poot.limits import DeviceLimits
from poot.planner.request import Request

# Lanes that a compute unit is to hold: 128 registers each on NVIDIA's. Without a bound ptxas takes
# 32 and spills one or two.
LANES_HELD = 512


def lower_selected(request: Request, limits: DeviceLimits) -> Lowered:
    """The union of lists where rows share a tile, the attention, and the merge of splits."""
    parts = parts_of(attention_eqn(request.body))
    calls: list[KernelCall] = []
    if request.schedule.get("rows") > 1:
        calls.append(lower_union(request, limits, parts))
    calls.append(_call(request, limits, parts))
    if request.schedule.get("splits") > 1:
        calls.append(combine(request, limits, parts))
    return Lowered((*calls, *lower_spilled(request, limits)))


def _call(request: Request, limits: DeviceLimits, parts: Parts) -> KernelCall:
    get = request.schedule.get
    lanes, heads, rows, splits = get("lanes"), get("heads"), get("rows"), get("splits")
    job = open_job(request, limits, "attention_selected", lanes)
    job.k.residents = max(1, LANES_HELD // lanes)
    unread = {parts.at["ids"].id} if rows > 1 else ()
    job.bind_inputs(vector=4, only=needed_by(request.body, request.body.outputs, unread))
    sinks: list[Sink] = []
    states: Memory | None = None
    if splits == 1:
        sinks = open_sinks(job)
    else:
        number, type = state_type(request)
        states = job.memory("states", type, "w", ("scratch", number))
    union = Union.opened(job, parts, "r") if rows > 1 else None
    tiles, row_tiles = parts.repeat // heads, -(-parts.rows // rows)
    shape = (parts.batch, parts.kv_heads, tiles, row_tiles, splits)
    count = parts.batch * parts.kv_heads * tiles * row_tiles * splits
    ix = job.indexer
    with each_group(job.k, count, limits) as number:
        b, kv, part, row_tile, split = ix.split(ix.atom(number, count), shape)
        first = kv * parts.repeat + part * heads
        tile = Tile(job, parts, b, kv, first, row_tile * rows)
        declare(tile, splits)
        which = list_head(parts, kv, first)
        if union is None:
            slots = slots_of(job, parts, b, which, row_tile, lanes)
        else:
            slots = union.slots(b, which, row_tile)
        stage(tile)
        sums = open_states(tile)
        attend(tile, slots, sums, split, splits)
        for n in range(tile.members):
            if states is None:
                _store_row(tile, n, sums, sinks)
            else:
                _store_state(tile, n, sums, states, split, splits)
    return job.call(count)


def _store_row(tile: Tile, n: int, sums: States, sinks: list[Sink]) -> None:
    """Row n's results. Each lane hands its channels over to itself."""
    job, k = tile.job, tile.job.k
    where, is_there = tile.where(Index((), n))
    with job.when(is_there):
        for m, total in enumerate(sums.sums[n]):
            channel, has = sums.channel(m)
            with job.when(has):
                k.store("out", job.indexer.value(channel), total)

        def channel_of(c: Index) -> Val:
            return k.load("out", job.indexer.value(c))

        folded = Folded(k.load("peaks", n), k.load("sums", n), channel_of)
        finish(job, tile.parts, where, folded, tile.lanes, sinks)


def _store_state(
    tile: Tile, n: int, sums: States, states: Memory, split: Index, splits: int
) -> None:
    """Row n's partial state as `split_kv` lays it: dv values, the maximum, the sum."""
    job, k, parts = tile.job, tile.job.k, tile.parts
    (b, head, row), is_there = tile.where(Index((), n))
    width = parts.value_width
    with job.when(is_there):
        flat = (b * parts.heads + head) * parts.rows + row
        base = (flat * splits + split) * (width + 2)
        for m, total in enumerate(sums.sums[n]):
            channel, has = sums.channel(m)
            with job.when(has):
                states.store(base + channel, k.copy(total))
        with k.if_(k.lane().eq(0)):
            states.store(base + width, k.load("peaks", n))
            states.store(base + (width + 1), k.load("sums", n))
