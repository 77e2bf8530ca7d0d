"""Index arithmetic: ranges decide divisions, and what was split comes back whole."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from poot.codegen.gen.index import ZERO, Index, Indexer, flat, strides_of
from poot.codegen.kir.build import I32, KernelBuilder
from poot.codegen.kir.nodes import Ins
from poot.codegen.kir.sim.run import simulate
from tests.support.shaper import factored


def start(extent: int) -> tuple[KernelBuilder, Indexer, Index]:
    k = KernelBuilder("index", threads=1)
    ix = Indexer(k)
    return k, ix, ix.atom(k.group_id(0), extent)


def ops(k: KernelBuilder) -> list[str]:
    return [s.op for s in k.kernel().body if isinstance(s, Ins)]


def test_what_is_split_by_a_shape_and_merged_again_is_the_same_index():
    _, ix, i = start(2 * 5 * 9)
    coords = ix.split(i, (2, 5, 9))
    assert flat(coords, (2, 5, 9)) == i
    assert ix.reshape(coords, (2, 5, 9), (10, 9))[0] == ix.divmod(i, 9)[0]


def test_a_sum_of_rows_and_columns_divides_without_a_division():
    k, ix, row = start(7)
    col = ix.atom(k.lane(), 64)
    assert ix.divmod(row * 64 + col, 64) == (row, col)
    assert "div" not in ops(k)


def test_neighbours_share_their_words():
    _, ix, q = start(10)
    places = [ix.divmod(q * 8 + u, 8) for u in range(8)]
    assert all(word == q for word, _ in places)
    assert [rest.literal for _, rest in places] == list(range(8))


def test_rows_of_a_block_come_back_where_blocks_do_not_end_at_an_axis():
    k, ix, i = start(8)
    blocks = ix.divmod(i, 2)
    for u in range(4):
        coords = (blocks[0], blocks[1] * 4 + u)
        merged = flat(coords, (4, 8))
        assert merged == i * 4 + u
        assert ix.split(merged, (4, 8)) == coords
    assert ops(k) == ["group_id", "shr", "and"]


def test_a_power_of_two_is_a_shift_and_a_mask():
    k, ix, i = start(100)
    ix.divmod(i, 16)
    assert ops(k) == ["group_id", "shr", "and"]


def test_ranges_answer_comparisons():
    _, ix, i = start(10)
    assert ix.below(i, 10).literal is True
    assert ix.below(i + 10, 10).literal is False
    assert ix.below(i, 9).literal is None
    assert ix.bounded(i, 10) is i
    assert ix.clamp(ix.k.lit(-3, I32), 4) == ZERO


def test_an_axis_of_one_has_no_coordinate():
    _, ix, i = start(6)
    assert ix.split(i, (1, 6, 1)) == (ZERO, i, ZERO)
    assert strides_of((2, 3, 4)) == (12, 4, 1)


@pytest.mark.parametrize("seed", range(30))
def test_random_splits_compute_the_right_numbers(seed):
    rng = Random(seed)
    extent = rng.randint(1, 200)
    k, ix, i = start(extent)
    k.param("out", "i32", 2 * extent, "w")
    e = i * rng.randint(1, 7) + rng.randint(0, 9)
    divisor = rng.randint(1, 24)
    quotient, rest = ix.divmod(e, divisor)
    k.store("out", ix.value(i * 2), ix.value(quotient))
    k.store("out", ix.value(i * 2 + 1), ix.value(rest))
    out = np.zeros(2 * extent, np.int32)
    simulate(k.kernel(), {"out": out}, extent)
    factor = e.terms[0][1] if e.terms else 0
    want = np.arange(extent) * factor + e.const
    np.testing.assert_array_equal(out.reshape(-1, 2).T, np.divmod(want, divisor))
    assert quotient.high >= max(want // divisor)
    assert rest.high <= divisor - 1


@pytest.mark.parametrize("seed", range(60))
def test_a_row_is_its_own_by_whatever_shapes_its_elements_take(seed):
    """Elements of rows go through shapes that begin and end anywhere; the row's part of one that is
    whole rows again names the row."""
    rng = Random(seed)
    rows, cols = (rng.choice((2, 3, 4, 6, 8, 12, 30)) for _ in range(2))
    k = KernelBuilder("index", threads=1)
    ix = Indexer(k)
    row, col = ix.atom(k.group_id(0), rows), ix.atom(k.lane(), cols)
    shape = factored(rng, rows * cols, 5)
    coords = ix.split(row * cols + col, shape)
    for _ in range(rng.randint(0, 6)):
        new = factored(rng, rows * cols, 5)
        coords, shape = ix.reshape(coords, shape, new), new
    lead, tail = factored(rng, rows, 4), factored(rng, cols, 3)
    coords = ix.reshape(coords, shape, (*lead, *tail))
    kept = coords[: len(lead)]
    for _ in range(rng.randint(0, 3)):  # the row's part is reshaped, as a fold's result is
        new = factored(rng, rows, 4)
        kept, lead = ix.reshape(kept, lead, new), new
    assert ix.number(kept, lead) == row


def test_the_row_of_a_group_of_columns_takes_no_division_by_the_whole():
    k, ix, row = start(4)
    col = ix.atom(k.lane(), 12)
    quotient, rest = ix.divmod(row * 12 + col, 24)
    assert (quotient, rest) == (ix.divmod(row, 2)[0], ix.divmod(row, 2)[1] * 12 + col)
    assert ops(k) == ["group_id", "lane", "shr", "and"]
