"""The score of a query row and a key: dot product, scale, softcap, bias, mask, in f32 and in that
order."""

from __future__ import annotations

from collections.abc import Callable

from poot.codegen.gen.attention.keys import Keys
from poot.codegen.gen.attention.parts import Parts
from poot.codegen.gen.index import ZERO, Index
from poot.codegen.gen.job import Job
from poot.codegen.gen.math import tanh
from poot.codegen.kir.build import Val

BLOCK = 4


def each_block(job: Job, extent: int, body: Callable[[list[Index]], None]) -> None:
    """Runs body for runs of up to BLOCK neighbouring whole numbers that cover 0 .. extent - 1."""
    k = job.k
    blocks = extent // BLOCK
    if blocks == 1:
        body([Index((), i) for i in range(BLOCK)])
    elif blocks > 1:
        with k.for_(0, blocks, name="d") as block:
            base = job.indexer.atom(block, blocks) * BLOCK
            body([base + i for i in range(BLOCK)])
    if extent % BLOCK:
        body([Index((), i) for i in range(blocks * BLOCK, extent)])


def dot(job: Job, parts: Parts, query: Callable[[Index], Val], keys: Keys, key: Index) -> Val:
    """q . k of one key, summed in f32."""
    k = job.k
    total = k.var(k.lit(0.0), name="dot")
    own = parts.width - parts.shared

    def add(ds: list[Index], offset: int, element: Callable[[Index, Index], Val]) -> None:
        part = query(ds[0] + offset) * element(key, ds[0])
        for d in ds[1:]:
            part = k.fma(query(d + offset), element(key, d), part)
        k.set(total, total + part)

    each_block(job, own, lambda ds: add(ds, 0, keys.key))
    if parts.shared:
        each_block(job, parts.shared, lambda ds: add(ds, own, keys.shared))
    return k.copy(total)


def score(
    job: Job, parts: Parts, product: Val, where: tuple[Index, Index, Index], key: Index
) -> Val:
    """Scale, softcap, bias and mask of a product; `where` is (batch row, query head, query row)."""
    k = job.k
    value = product * parts.scale
    if parts.softcap is not None:
        value = tanh(k, value / parts.softcap) * parts.softcap
    for name in ("bias", "mask"):
        if name not in parts.at:
            continue
        mask = parts.at[name]
        coords = tuple(
            ZERO if n == 1 else c for n, c in zip(mask.type.shape, (*where, key), strict=True)
        )
        plane = job.pull.value(mask, coords)
        is_added = name == "bias" or parts.mask_fill is None
        value = value + plane if is_added else k.select(plane, value, k.lit(parts.mask_fill or 0.0))
    return value
