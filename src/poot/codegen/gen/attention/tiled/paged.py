"""The copying role of a paged cache: rows of a pool by a map of slots.

A tensor map can't follow a map of slots, so the lanes copy 16 bytes each (`cp.async`), to where the
swizzle of the tensor maps would have put them. Lane i of a subgroup reads the slots of rows i and
32 + i of its half of a tile; rows are handed on by shuffles.
"""

from __future__ import annotations

from poot.codegen.gen.attention.blocks import Block, block_of
from poot.codegen.gen.attention.grouped.team import quotient, remainder
from poot.codegen.gen.attention.tiled.copies import FILLERS, KEYS, VALUES, Ring, copy_queries
from poot.codegen.gen.attention.tiled.shape import PANEL, STAGES, WARP, Form
from poot.codegen.gen.attention.tiled.turns import Draw, Turns, slot_of
from poot.codegen.gen.job import Job
from poot.codegen.kir.build import I32, TOKEN, Val

_CHUNK = 8  # elements of 16 bits in 16 bytes
# Copies of the loop over rows: the role has few registers.
_COPIES = 4


def produce_paged(job: Job, form: Form, turns: Turns) -> None:
    """The role's body: two subgroups for keys and two for values, half a tile each; the second's
    first lane copies the queries of a block before its keys."""
    k = job.k
    warp, lane = k.lane() >> 5, k.op("subgroup_lane", type=I32)
    leads = lane.eq(0)
    filled = k.var(k.lit(0, I32), I32)
    with k.if_(warp.eq(0)):

        def keys(number: Val, draw: Draw) -> None:
            _fill(job, form, KEYS, number, filled, draw)

        turns.lead(keys, leads=leads)
    with k.if_(warp.eq(1)):

        def queries_and_keys(number: Val, turn: Val) -> None:
            with k.if_(leads):
                copy_queries(job, form, number, turn)
            k.barrier("subgroup")
            _fill(job, form, KEYS, number, filled, None)

        turns.follow(queries_and_keys, leads=leads)
    with k.if_(warp >= 2):
        turns.follow(
            lambda number, turn: _fill(job, form, VALUES, number, filled, None), leads=leads
        )


def _fill(job: Job, form: Form, ring: Ring, number: Val, filled: Val, draw: Draw | None) -> None:
    """The subgroup's half of every tile of a block; `filled` counts tiles over all blocks."""
    k = job.k
    block = block_of(job, form.tiling, number)
    base, lane = k.copy(filled), k.op("subgroup_lane", type=I32)
    half = form.tile // FILLERS
    mine = ((k.lane() >> 5) & (FILLERS - 1)) * half
    with k.for_(0, block.count, unroll=1) as n:
        if draw is not None:
            draw(n, block.count)
        first = (block.last - n) * form.tile + mine
        slots = [_slot(job, form, block, first + (lane + i)) for i in range(0, half, WARP)]
        stage, parity = slot_of(base + n, STAGES)
        k.do("mbar_wait", stage, parity ^ 1, mem=ring.empty)
        _copy(job, form, ring, block, stage * form.key_elems + mine * PANEL, slots)
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
    pools = parts.kv_heads * form.width
    origin = head * form.width + chunk * _CHUNK
    for n, held in enumerate(slots):
        start = target + (panel + n * WARP * PANEL)
        with k.for_(0, WARP // rows, unroll=_COPIES) as turn:
            within = own + turn * rows
            slot = k.op("shuffle", held, within)
            turned = ((chunk & 7) ^ (within & 7)) * _CHUNK
            to = start + (within * PANEL + turned)
            k.do("cp_async", to, slot * pools + origin, dst=ring.array, mem=name, nbytes=16,
                 bypass=True)  # fmt: skip


def _pool(form: Form, ring: Ring) -> int:
    return form.parts.at["k" if ring is KEYS else "v"].id
