"""The role that copies: three subgroups, one lane each, for keys, values and queries."""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.attention.grouped.team import quotient
from poot.codegen.gen.attention.tiled.shape import PANEL, ROWS, STAGES, Block, Form
from poot.codegen.gen.job import Job
from poot.codegen.kir.build import BOOL, Val
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
VALUES = Ring("sv", "vfull", "vempty", "mv")
QUERIES, QUERIES_FULL, QUERY_MAP = "sq", "qfull", "mq"
_SWIZZLE = "128B"


def declare(job: Job, form: Form) -> None:
    """Workgroup memory and tensor maps."""
    k = job.k
    k.shared(QUERIES, form.dtype, form.consumers * form.query_elems, 1024)
    for ring in (KEYS, VALUES):
        k.shared(ring.array, form.dtype, STAGES * form.key_elems, 1024)
    for ring in (KEYS, VALUES):
        k.shared(ring.full, "mbar", STAGES, 8)
        k.shared(ring.empty, "mbar", STAGES, 8)
        k.blob(ring.map, form.dtype, (PANEL, form.tile, 1), _SWIZZLE)
    k.shared(QUERIES_FULL, "mbar", form.consumers, 8)
    k.blob(QUERY_MAP, form.dtype, (PANEL, ROWS, 1), _SWIZZLE)


def start(job: Job, form: Form) -> None:
    """One lane makes the barriers: a slot is full with one arrival and its bytes, and empty when
    every subgroup of the consumers has let go of it."""
    k = job.k
    with k.if_(k.lane().eq(0)):
        for ring in (KEYS, VALUES):
            for stage in range(STAGES):
                k.do("mbar_init", stage, mem=ring.full, count=1)
                k.do("mbar_init", stage, mem=ring.empty, count=4 * form.consumers)
        for own in range(form.consumers):
            k.do("mbar_init", own, mem=QUERIES_FULL, count=1)
    k.barrier()


def stage_of(job: Job, number: Val) -> tuple[Val, Val]:
    """(slot, parity) of the number-th tile of a ring."""
    return number & (STAGES - 1), (number >> (STAGES.bit_length() - 1)) & 1


def produce(job: Job, form: Form, block: Block) -> None:
    """The role's body."""
    k, parts = job.k, form.parts
    chosen = k.op("elect", type=BOOL)
    warp = k.lane() >> 5
    kv_heads = parts.kv_heads
    own_head = quotient(k, block.head, parts.repeat)
    lane_of = block.row * kv_heads + own_head
    for number, ring in enumerate((KEYS, VALUES)):
        with k.if_(warp.eq(number) & chosen), k.for_(0, block.count, unroll=1) as n:
            stage, parity = stage_of(job, n)
            k.do("mbar_wait", stage, parity ^ 1, mem=ring.empty)
            nbytes = form.key_elems * DTYPES[form.dtype].nbytes
            k.do("mbar_arrive", stage, mem=ring.full, expect=nbytes)
            first = (block.last - n) * form.tile
            for panel in range(form.panels):
                to = stage * form.key_elems + panel * form.tile * PANEL
                k.do("tma_load", to, stage, panel * PANEL, first, lane_of, blob=ring.map,
                     dst=ring.array, mem=ring.full)  # fmt: skip
    with k.if_(warp.eq(2) & chosen):
        flat = block.row * parts.heads + block.head
        for own in range(form.consumers):
            nbytes = form.query_elems * DTYPES[form.dtype].nbytes
            k.do("mbar_arrive", own, mem=QUERIES_FULL, expect=nbytes)
            for panel in range(form.panels):
                to = own * form.query_elems + panel * ROWS * PANEL
                k.do("tma_load", to, own, panel * PANEL, block.first_query + own * ROWS, flat,
                     blob=QUERY_MAP, dst=QUERIES, mem=QUERIES_FULL)  # fmt: skip
