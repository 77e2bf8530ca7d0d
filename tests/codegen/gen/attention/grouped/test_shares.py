"""Every tile of every unit belongs to one group, whatever the lengths."""

import numpy as np
import pytest

from poot.codegen.gen.attention.grouped.shares import Segment, Shares
from poot.codegen.kir.sim import simulate
from poot.codegen.kir.sim.values import NUMPY
from poot.codegen.kir.verify import verify
from poot.planner.grouped import HEADS_FIRST, ROWS_FIRST
from tests.support.grouped import decode, open_team

_MOST = 40  # segments of a group
_FIELDS = 8


def segments(
    form, compute_units: int, lengths: list[int], order: int = ROWS_FIRST
) -> tuple[list[list[list[int]]], int]:
    """Each group's segments as [row, head, first, end, tiles, low, high, step], and the tile's
    keys."""
    job, team = open_team(form, compute_units, order)
    k, shares = job.k, Shares(team)
    groups = team.form.groups
    out = k.param("got", "i32", groups * _MOST * _FIELDS, "w")
    segment, count = Segment.fresh(team), team.count(0)
    more = team.flag(shares.deal(segment))
    with k.block_() as head:
        goes_on = k.copy(more)
    with k.while_(head, goes_on):
        low, high = shares.owners(segment)
        with k.if_(k.lane().eq(0)):
            at = (team.group * _MOST + count) * _FIELDS
            values = (segment.row, segment.head, segment.first, segment.end, segment.tiles, low,
                      high, shares.step)  # fmt: skip
            for n, value in enumerate(values):
                k.store(out, at + n, value)
        k.set(count, count + 1)
        k.set(more, shares.next(segment) if shares.may_go_on else False)
    kernel = k.kernel()
    verify(kernel)
    buffers = {p.name: np.zeros(p.elems, NUMPY[p.dtype]) for p in kernel.params}
    buffers["got"] = np.full(groups * _MOST * _FIELDS, -1, np.int32)
    if "in3" in buffers:
        buffers["in3"] = np.array(lengths, np.int32)
    simulate(kernel, buffers, groups)
    rows = buffers["got"].reshape(groups, _MOST, _FIELDS)
    found = [[r.tolist() for r in group if r[0] >= 0] for group in rows]
    return found, team.form.tile


def check(
    form, compute_units: int, lengths: list[int], order: int = ROWS_FIRST
) -> list[list[list[int]]]:
    """Asserts that each tile is in one segment, and who merges; the segments."""
    found, tile = segments(form, compute_units, lengths, order)
    taken: dict[tuple[int, int], list[int]] = {}
    owners: dict[tuple[int, int], set[int]] = {}
    for group, own in enumerate(found):
        partial = 0
        for row, head, first, end, tiles, low, high, step in own:
            if step == 8 or step == 4:
                taken.setdefault((row, head), []).extend(range(first, end))
            assert tiles == max(1, -(-lengths[row] // tile))
            assert low <= group <= high
            owners.setdefault((row, head), set()).add(group)
            partial += group != high
            owners.setdefault((row, head), set())
            if (first, end) == (0, tiles) and step in (4, 8):
                assert low == high == group
        assert partial <= 1, "a group leaves one part at most"
    for row, length in enumerate(lengths):
        for head in range(form.kv_heads):
            tiles = max(1, -(-length // tile))
            if (row, head) in taken:
                assert sorted(taken[row, head]) == list(range(tiles))
            assert (row, head) in owners
    return found


@pytest.mark.parametrize("order", [ROWS_FIRST, HEADS_FIRST])
@pytest.mark.parametrize("seed", range(6))
def test_ragged_lengths_are_cut_into_equal_shares(seed: int, order: int):
    rng = np.random.default_rng(seed)
    batch = int(rng.integers(2, 40))
    lengths = rng.integers(1, 400, batch).tolist()
    form = decode(batch, 8, 2, 400, 64, live=True)
    found = check(form, 3 + 2 * seed, lengths, order)
    cost = [sum(s[3] - s[2] + 12 for s in own) for own in found if own]
    assert max(cost) <= 3 * (sum(cost) // len(cost) + 40)


def test_equal_rows_share_by_turns_or_by_closed_form():
    check(decode(3, 8, 2, 400, 64, live=True), 3, [160, 160, 160])
    check(decode(7, 8, 2, 400, 64, live=True), 5, [160] * 7)
    check(decode(7, 8, 2, 400, 64), 5, [400] * 7)


def test_shares_may_run_over_the_rows_of_a_head_first():
    form = decode(7, 8, 2, 400, 64, live=True)
    found = check(form, 5, [160] * 7, HEADS_FIRST)
    whole = [(s[1], s[0]) for own in found for s in own if s[2:4] == [0, s[4]]]
    assert whole == sorted(whole)
    check(decode(7, 8, 2, 400, 64), 5, [400] * 7, HEADS_FIRST)
    check(decode(40, 8, 2, 400, 64, live=True), 5, [1, 399] * 20, HEADS_FIRST)


def test_a_row_without_keys_is_a_unit_of_one_tile():
    check(decode(4, 8, 2, 64, 64, live=True), 3, [0, 64, 0, 1])


def test_fewer_tiles_than_groups_leave_groups_without_work():
    found = check(decode(2, 1, 1, 64, 64, live=True), 40, [3, 20])
    assert sum(1 for own in found if own) < len(found)


def test_a_share_begins_with_the_unit_that_it_only_begins():
    found = check(decode(3, 8, 1, 4000, 64, live=True), 2, [3000, 2500, 1000])
    for group, own in enumerate(found):
        parts = [n for n, s in enumerate(own) if s[6] != group]
        assert parts in ([], [0])
