"""Which tiles of keys a group visits, and in which of them it looks for hidden keys."""

import numpy as np
import pytest

from poot.codegen.gen.attention.blocks import block_of
from poot.codegen.gen.attention.tiled.shape import Form
from poot.codegen.gen.job import open_job
from poot.codegen.kir.sim import simulate
from poot.ir.dtypes import DTYPES
from tests.support.tiled import H200, prefill, request_for

_FIELDS = 8


def blocks(form) -> tuple[Form, list[list[int]]]:
    """Of each group: row, head, first query, last tile, count, masked, tail, length."""
    request = request_for(form)
    shape = Form.of(request)
    job = open_job(request, H200, "blocks", 32)
    job.bind_inputs()
    k = job.k
    out = k.param("got", "i32", shape.groups * _FIELDS, "w")
    b = block_of(job, shape.tiling, k.group_id(0))
    with k.if_(k.lane().eq(0)):
        values = (b.row, b.head, b.first_query, b.last, b.count, b.masked, b.tail, b.length)
        for n, value in enumerate(values):
            k.store(out, k.group_id(0) * _FIELDS + n, value)
    kernel = k.kernel()
    arrays = {p.name: np.zeros(p.elems, DTYPES[p.dtype].numpy) for p in kernel.params}
    simulate(kernel, arrays, shape.groups)
    return shape, arrays["got"].reshape(-1, _FIELDS).tolist()


@pytest.mark.parametrize(
    "form",
    [
        prefill(300, 700),
        prefill(300, 700, causal=400),
        prefill(300, 300, causal=0),
        prefill(300, 700, causal=-100),
        prefill(300, 700, causal=400, window=90),
        prefill(300, 700, 128, causal=400, window=5),
        prefill(300, 300, 128, heads=6, kv_heads=3, batch=2, causal=0),
    ],
    ids=str,
)
def test_every_visible_key_is_in_a_visited_tile_and_plain_tiles_hide_none(form):
    shape, found = blocks(form)
    seen = set()
    for row, head, first, last, count, masked, tail, length in found:
        seen.add((row, head, first))
        assert count >= 1
        assert masked <= tail <= count
        for query in range(first, min(first + shape.rows, form.rows)):
            end = length if form.causal is None else min(length, query + form.causal + 1)
            begin = 0 if form.window is None else max(0, query + form.causal + 1 - form.window)
            if end <= begin:
                continue
            assert last * shape.tile < length
            assert (last - count + 1) * shape.tile <= begin
            assert end <= (last + 1) * shape.tile
            for j in range(masked, tail):
                low = (last - j) * shape.tile
                assert begin <= low
                assert low + shape.tile <= end
    assert len(seen) == shape.groups == form.batch * form.heads * shape.tiling.row_tiles


def test_the_longest_tiles_of_queries_come_first_in_a_section():
    _, found = blocks(prefill(700, 700, causal=0))
    firsts = [b[2] for b in found]
    assert firsts == sorted(firsts, reverse=True)
