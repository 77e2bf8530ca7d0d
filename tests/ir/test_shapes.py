"""Shapes' common axes: the finest pairing of runs."""

from __future__ import annotations

import math
from random import Random

from poot.ir.shapes import shape_groups


def pairs(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[tuple[int, ...], ...]]:
    return [(tuple(old[i] for i in a), tuple(new[j] for j in b)) for a, b in shape_groups(old, new)]


def test_equal_axes_pair_one_by_one():
    assert pairs((2, 3, 4), (2, 3, 4)) == [((2,), (2,)), ((3,), (3,)), ((4,), (4,))]


def test_a_split_and_a_merge_stay_apart():
    assert pairs((2, 12, 5), (2, 3, 4, 5)) == [((2,), (2,)), ((12,), (3, 4)), ((5,), (5,))]
    assert pairs((2, 3, 4), (6, 4)) == [((2, 3), (6,)), ((4,), (4,))]


def test_axes_of_one_and_of_nothing_are_placed():
    assert pairs((1, 6), (2, 3)) == [((1, 6), (2, 3))]
    assert pairs((3,), (3, 1)) == [((3,), (3,)), ((), (1,))]
    assert pairs((), (1, 1)) == [((), (1,)), ((), (1,))]
    assert pairs((2, 0), (0, 7)) == [((2, 0), (0, 7))]


def test_every_axis_stands_in_one_group_and_counts_agree():
    rng = Random(0)
    for _ in range(200):
        old = tuple(rng.choice((1, 2, 3, 4, 6)) for _ in range(rng.randint(0, 4)))
        new = tuple(rng.sample(old, len(old)))
        groups = shape_groups(old, new)
        assert [i for a, _ in groups for i in a] == list(range(len(old)))
        assert [j for _, b in groups for j in b] == list(range(len(new)))
        for a, b in groups:
            assert math.prod(old[i] for i in a) == math.prod(new[j] for j in b)
