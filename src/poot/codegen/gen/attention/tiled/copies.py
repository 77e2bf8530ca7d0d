"""The role that copies: three subgroups, one lane each, for keys, values and queries."""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.attention.blocks import block_of
from poot.codegen.gen.attention.grouped.team import quotient
from poot.codegen.gen.attention.tiled.shape import PANEL, ROWS, STAGES, Form
from poot.codegen.gen.attention.tiled.turns import Draw, Turns, slot_of
from poot.codegen.gen.job import Job
from poot.codegen.kir.build import BOOL, I32, Val
from poot.ir.dtypes import DTYPES


@dataclass(frozen=True, slots=True)
class Ring:
    """Tiles of keys or values in workgroup memory: `array` in STAGES slots, `full` and `empty` one
    mbarrier a slot, `map` the tensor map."""

    array: str
    full: str
    empty: str
    map: str


KEYS = Ring("sk", "kfull", "kempty", "mk")
SHARED_KEY_MAP = "mks"
VALUES = Ring("sv", "vfull", "vempty", "mv")
QUERIES, QUERIES_FULL, QUERIES_EMPTY, QUERY_MAP = "sq", "qfull", "qempty", "mq"
_SWIZZLE = "128B"
# Subgroups that fill a tile of a paged cache together.
FILLERS = 2


def declare(job: Job, form: Form) -> None:
    """Workgroup memory and tensor maps."""
    k = job.k
    k.shared(QUERIES, form.dtype, form.buffers * form.consumers * form.query_elems, 1024)
    for ring, elems in ((KEYS, form.key_elems), (VALUES, form.value_elems)):
        k.shared(ring.array, form.dtype, STAGES * elems, 1024)
    for ring in (KEYS, VALUES):
        k.shared(ring.full, "mbar", STAGES, 8)
        k.shared(ring.empty, "mbar", STAGES, 8)
        if not form.is_paged:
            k.blob(ring.map, form.dtype, (PANEL, form.tile, 1), _SWIZZLE)
    if form.parts.shared:
        k.blob(SHARED_KEY_MAP, form.dtype, (PANEL, form.tile, 1), _SWIZZLE)
    for name in (QUERIES_FULL, QUERIES_EMPTY):
        k.shared(name, "mbar", form.buffers * form.consumers, 8)
    k.blob(QUERY_MAP, form.dtype, (PANEL, ROWS, 1), _SWIZZLE)


def start(job: Job, form: Form, turns: Turns) -> None:
    """One lane makes the barriers: a slot is full with one arrival and its bytes, and empty when
    every subgroup of the consumers has let go of it."""
    k = job.k
    with k.if_(k.lane().eq(0)):
        for ring in (KEYS, VALUES):
            for stage in range(STAGES):
                k.do("mbar_init", stage, mem=ring.full, count=FILLERS if form.is_paged else 1)
                k.do("mbar_init", stage, mem=ring.empty, count=4 * form.consumers)
        for place in range(form.buffers * form.consumers):
            k.do("mbar_init", place, mem=QUERIES_FULL, count=1)
            k.do("mbar_init", place, mem=QUERIES_EMPTY, count=4)
        turns.start(2 * FILLERS - 1 if form.is_paged else 2)
    k.barrier()


def produce(job: Job, form: Form, turns: Turns) -> None:
    """The role's body: each of the three lanes goes through all blocks by itself."""
    k = job.k
    chosen = k.op("elect", type=BOOL)
    warp = k.lane() >> 5
    with k.if_(warp.eq(0) & chosen):
        filled = k.var(k.lit(0, I32), I32)

        def keys(number: Val, draw: Draw) -> None:
            _fill(job, form, KEYS, number, filled, draw)

        turns.lead(keys)
    with k.if_(warp.eq(1) & chosen):
        filled = k.var(k.lit(0, I32), I32)
        turns.follow(lambda number, turn: _fill(job, form, VALUES, number, filled, None))
    with k.if_(warp.eq(2) & chosen):
        turns.follow(lambda number, turn: copy_queries(job, form, number, turn))


def _fill(
    job: Job,
    form: Form,
    ring: Ring,
    number: Val,
    filled: Val,
    draw: Draw | None,
) -> None:
    """Every tile of a block; `filled` counts tiles over all blocks."""
    k, parts = job.k, form.parts
    block = block_of(job, form.tiling, number)
    lane = block.row * parts.kv_heads + quotient(k, block.head, parts.repeat)
    base = k.copy(filled)
    elems = form.key_elems if ring is KEYS else form.value_elems
    own = form.own_width if ring is KEYS else form.value_width
    nbytes = elems * DTYPES[form.dtype].nbytes
    with k.for_(0, block.count, unroll=1) as n:
        if draw is not None:
            draw(n, block.count)
        stage, parity = slot_of(base + n, STAGES)
        k.do("mbar_wait", stage, parity ^ 1, mem=ring.empty)
        k.do("mbar_arrive", stage, mem=ring.full, expect=nbytes)
        first = (block.last - n) * form.tile
        for panel in range(elems // (form.tile * PANEL)):
            to, channel = stage * elems + panel * form.tile * PANEL, panel * PANEL
            if channel < own:
                k.do("tma_load", to, stage, channel, first, lane, blob=ring.map,
                     dst=ring.array, mem=ring.full)  # fmt: skip
            else:  # what all heads of a batch row share
                k.do("tma_load", to, stage, channel - own, first, block.row, blob=SHARED_KEY_MAP,
                     dst=ring.array, mem=ring.full)  # fmt: skip
    k.set(filled, base + block.count)


def copy_queries(job: Job, form: Form, number: Val, turn: Val) -> None:
    """The queries of a block, a buffer of them a turn."""
    k, parts = job.k, form.parts
    block = block_of(job, form.tiling, number)
    flat = block.row * parts.heads + block.head
    slot, parity = slot_of(turn, form.buffers)
    nbytes = form.query_elems * DTYPES[form.dtype].nbytes
    for own in range(form.consumers):
        place = slot * form.consumers + own
        k.do("mbar_wait", place, parity ^ 1, mem=QUERIES_EMPTY)
        k.do("mbar_arrive", place, mem=QUERIES_FULL, expect=nbytes)
        for panel in range(form.panels):
            to = place * form.query_elems + panel * ROWS * PANEL
            k.do("tma_load", to, place, panel * PANEL, block.first_query + own * ROWS, flat,
                 blob=QUERY_MAP, dst=QUERIES, mem=QUERIES_FULL)  # fmt: skip
