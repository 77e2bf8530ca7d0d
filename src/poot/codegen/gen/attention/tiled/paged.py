"""The copying role of a paged cache: rows of a pool by a map of slots, a subgroup for keys and one
for values.

A tensor map can't follow a map of slots, so the lanes copy 16 bytes each (`cp.async`), to where the
swizzle of the tensor maps would have put them. Lane i of a subgroup reads the slots of rows i,
32 + i, .. of a tile; rows are handed on by shuffles.
"""

from __future__ import annotations

from poot.codegen.gen.attention.grouped.team import quotient, remainder
from poot.codegen.gen.attention.tiled.copies import KEYS, VALUES, Ring, copy_queries
from poot.codegen.gen.attention.tiled.shape import PANEL, STAGES, WARP, Block, Form, block_of
from poot.codegen.gen.attention.tiled.turns import Draw, Turns, slot_of
from poot.codegen.gen.job import Job
from poot.codegen.kir.build import BOOL, I32, TOKEN, Val

_CHUNK = 8  # elements of 16 bits in 16 bytes


def produce_paged(job: Job, form: Form, turns: Turns) -> None:
    """The role's body: whole subgroups go through all blocks for keys and for values, one lane for
    queries."""
    k = job.k
    chosen = k.op("elect", type=BOOL)
    warp, lane = k.lane() >> 5, k.op("subgroup_lane", type=I32)
    leads = lane.eq(0)
    with k.if_(warp.eq(0)):
        filled = k.var(k.lit(0, I32), I32)

        def keys(number: Val, draw: Draw) -> None:
            _fill(job, form, KEYS, number, filled, draw)

        turns.lead(keys, leads=leads)
    with k.if_(warp.eq(1)):
        filled = k.var(k.lit(0, I32), I32)
        turns.follow(
            lambda number, turn: _fill(job, form, VALUES, number, filled, None), leads=leads
        )
    with k.if_(warp.eq(2) & chosen):
        turns.follow(lambda number, turn: copy_queries(job, form, number, turn))


def _fill(job: Job, form: Form, ring: Ring, number: Val, filled: Val, draw: Draw | None) -> None:
    """Every tile of a block; `filled` counts tiles over all blocks."""
    k = job.k
    block = block_of(job, form, number)
    base, lane = k.copy(filled), k.op("subgroup_lane", type=I32)
    with k.for_(0, block.count, unroll=1) as n:
        if draw is not None:
            draw(n, block.count)
        first = (block.last - n) * form.tile
        slots = [_slot(job, form, block, first + (lane + i)) for i in range(0, form.tile, WARP)]
        stage, parity = slot_of(base + n, STAGES)
        k.do("mbar_wait", stage, parity ^ 1, mem=ring.empty)
        _copy(job, form, ring, block, stage * form.key_elems, slots)
        token = k.op("async_commit", type=TOKEN)
        k.do("wait", token, pending=0)
        k.do("fence", scope="async")
        k.barrier("subgroup")
        with k.if_(lane.eq(0)):
            k.do("mbar_arrive", stage, mem=ring.full)
    k.set(filled, base + block.count)


def _slot(job: Job, form: Form, block: Block, key: Val) -> Val:
    """The pool's slot of a key; keys past the length repeat the last."""
    k, parts, ix = job.k, form.parts, job.indexer
    there = k.op("max", k.op("min", key, block.length - 1), 0)
    row = ix.atom(block.row, parts.batch)
    found = job.pull.value(parts.at["read"], (row, ix.atom(there, parts.keys)))
    return ix.value(ix.clamp(found, parts.at["k"].type.shape[0]))


def _copy(job: Job, form: Form, ring: Ring, block: Block, target: Val, slots: list[Val]) -> None:
    k, parts = job.k, form.parts
    lane = k.op("subgroup_lane", type=I32)
    chunks = form.width // _CHUNK
    rows = WARP // chunks  # of a turn of all lanes
    own, chunk = quotient(k, lane, chunks), remainder(k, lane, chunks)
    head = quotient(k, block.head, parts.repeat)
    name = f"in{[i.var.id for i in job.request.body.inputs].index(_pool(form, ring))}"
    panel = (chunk >> 3) * (form.tile * PANEL)
    for turn in range(form.tile // rows):
        first = turn * rows
        slot = k.op("shuffle", slots[first // WARP], own + first % WARP)
        source = (slot * parts.kv_heads + head) * form.width + chunk * _CHUNK
        turned = ((chunk & 7) ^ ((own + first) & 7)) * _CHUNK
        to = target + (panel + turned + own * PANEL) + first * PANEL
        k.do("cp_async", to, source, dst=ring.array, mem=name, nbytes=16, bypass=True)


def _pool(form: Form, ring: Ring) -> int:
    return form.parts.at["k" if ring is KEYS else "v"].id
