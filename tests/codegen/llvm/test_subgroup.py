"""Subgroup ops: a workgroup of one subgroup and of several, on both widths, against numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from poot.codegen.kir.build import KernelBuilder, Val
from poot.codegen.kir.nodes import Ty
from tests.support.cpu import WIDTHS, cpu
from tests.support.gpu import launch_arrays

Build = Callable[[KernelBuilder, Val], Val]


def run(build: Build, dtype: str, width: str, subgroups: int, meets: bool) -> np.ndarray:
    """[subgroup, lane] of what build makes of each lane's own number (f32)."""
    size = cpu(width).limits.subgroup
    threads = size * subgroups
    k = KernelBuilder("sub", threads, subgroup=size)
    y = k.param("y", dtype, threads, "w")
    if meets:
        k.barrier()
    k.store(y, k.lane(), build(k, k.cast(k.lane() * 3 % 11, "f32")))
    return launch_arrays(cpu(width), k.kernel(), {})["y"].reshape(subgroups, size)


def lanes(width: str, subgroups: int) -> np.ndarray:
    size = cpu(width).limits.subgroup
    return (np.arange(size * subgroups) * 3 % 11).astype(np.float32).reshape(subgroups, size)


SHAPES = pytest.mark.parametrize(
    "width, subgroups, meets",
    [(w, n, m) for w in WIDTHS for n, m in ((1, False), (3, False), (4, True))],
)


@SHAPES
@pytest.mark.parametrize("kind, fold", [("add", np.sum), ("max", np.max), ("min", np.min)])
def test_reductions_fold_runs_of_every_width(kind, fold, width, subgroups, meets):
    x = lanes(width, subgroups)
    size, run_of = x.shape[1], 1
    while run_of <= size:
        got = run(
            lambda k, v, n=run_of: k.op("subgroup_reduce", v, kind=kind, width=n),
            "f32", width, subgroups, meets,
        )  # fmt: skip
        want = fold(x.reshape(subgroups, -1, run_of), axis=2).repeat(run_of, axis=1)
        np.testing.assert_array_equal(got, want)
        run_of *= 2


@SHAPES
def test_values_move_between_lanes(width, subgroups, meets):
    x = lanes(width, subgroups)
    size = x.shape[1]
    places = np.arange(size)
    args = ("f32", width, subgroups, meets)
    got = run(lambda k, v: k.op("shuffle_xor", v, mask=2), *args)
    np.testing.assert_array_equal(got, x[:, places ^ 2])
    got = run(lambda k, v: k.op("subgroup_broadcast", v, lane=1), *args)
    np.testing.assert_array_equal(got, x[:, [1] * size])
    got = run(lambda k, v: k.op("shuffle", v, (k.lane() * 5 + 1) % size), *args)
    own = np.arange(subgroups * size).reshape(subgroups, size)
    np.testing.assert_array_equal(got, np.take_along_axis(x, (own * 5 + 1) % size, axis=1))


@SHAPES
def test_votes_and_ballots_see_their_subgroup_alone(width, subgroups, meets):
    x = lanes(width, subgroups)
    args = ("i32", width, subgroups, meets)
    got = run(lambda k, v: k.cast(k.op("vote_any", v > 9.0), "i32"), *args)
    np.testing.assert_array_equal(got[:, 0], (x > 9).any(1))
    got = run(lambda k, v: k.cast(k.op("vote_all", v < 10.0), "i32"), *args)
    np.testing.assert_array_equal(got[:, 0], (x < 10).all(1))
    got = run(lambda k, v: k.op("ballot", v > 5.0, type=Ty("u32")), "u32", *args[1:])
    bits = ((x > 5) << np.arange(x.shape[1])).sum(1)
    np.testing.assert_array_equal(got, np.broadcast_to(bits[:, None], got.shape))


@SHAPES
def test_a_lane_knows_its_subgroup(width, subgroups, meets):
    args = ("i32", width, subgroups, meets)
    size = cpu(width).limits.subgroup
    got = run(lambda k, v: k.op("subgroup_id", type=Ty("i32")), *args)
    np.testing.assert_array_equal(got, np.arange(subgroups)[:, None].repeat(size, 1))
    got = run(lambda k, v: k.op("subgroup_lane", type=Ty("i32")), *args)
    np.testing.assert_array_equal(got, np.arange(size)[None].repeat(subgroups, 0))
