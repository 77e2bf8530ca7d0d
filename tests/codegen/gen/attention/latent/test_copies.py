"""Where copies put latent rows and queries: as the swizzle of warpgroup products has them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.codegen.gen.attention.latent.copies import QUERIES, TILES, Copies
from poot.codegen.gen.attention.latent.shape import THREADS, Form, part_of
from poot.codegen.gen.job import open_job
from poot.codegen.kir.frags import swizzle
from poot.codegen.kir.sim import simulate
from tests.support import latent
from tests.support.latent import H200, request_for

KEYS = 70


def _copied(given: latent.Form, first: int) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """(queries, a tile) in workgroup memory, [64, width] each, and the feed."""
    request = request_for(given, replace(H200, compute_units=1))
    form = Form.of(request)
    job = open_job(request, H200, "copies", THREADS)
    job.bind_inputs()
    k = job.k
    sizes = {QUERIES: form.query_elems, TILES: form.tile_elems}
    for name, elems in sizes.items():
        k.param(f"seen_{name}", form.dtype, elems, "w")
    copies = Copies(job, form, part_of(job, form))
    copies.queries()
    copies.find(k.lit(first, k.lane().ty))
    copies.tile(k.lit(0, k.lane().ty))
    k.do("wait", copies.token, pending=0)
    k.barrier()
    for name, elems in sizes.items():
        with k.for_(k.lane(), elems, THREADS, unroll=1) as n:
            k.store(f"seen_{name}", n, k.load(name, n))
    _, feed = latent.latent_text(given)
    arrays = {f"in{n}": x.reshape(-1) for n, x in enumerate(feed)}
    arrays = {p.name: arrays[p.name] for p in k.kernel().params if p.name in arrays}
    for name, elems in sizes.items():
        arrays[f"seen_{name}"] = np.zeros(elems, feed[0].dtype)
    simulate(k.kernel(), arrays, (1, 1, 1))
    rows, columns = np.arange(64)[:, None], np.arange(given.width)[None, :]
    inside = rows * 64 + columns % 64
    at = columns // 64 * (64 * 64) + swizzle("128B", inside, 64, 2)
    queries, tile = (arrays[f"seen_{n}"].astype(np.float32)[at] for n in (QUERIES, TILES))
    return queries, tile, feed


@pytest.mark.parametrize("kind", ["joined", "gathered", "split", "paged"])
@pytest.mark.parametrize("first", [0, 64])
def test_a_tile_holds_rows_in_order_and_repeats_the_last(kind, first):
    given = latent.Form(kind, keys=KEYS)
    _, tile, feed = _copied(given, first)
    parts = feed[1 : 3 if kind in ("split", "paged") else 2]
    rows = np.concatenate([x.reshape(-1, x.shape[-1]) for x in parts], -1)
    if kind in ("gathered", "paged"):
        rows = rows[feed[-1].reshape(-1)]
    want = rows[np.minimum(np.arange(first, first + 64), KEYS - 1)]
    np.testing.assert_array_equal(tile, want.astype(np.float32))


@pytest.mark.parametrize("is_made", [False, True])
def test_queries_are_a_row_a_head_and_repeat_the_last(is_made):
    given = latent.Form(keys=KEYS, heads=5, is_made=is_made)
    queries, _, feed = _copied(given, 0)
    want = feed[0].astype(np.float32)[0, np.minimum(np.arange(64), 4), 0]
    np.testing.assert_array_equal(queries, -want if is_made else want)
