"""What every part of a grouped decode uses: division, lengths, reductions over some lanes."""

import numpy as np
import pytest

from poot.codegen.gen.attention.grouped.team import input_name, quotient, remainder
from poot.codegen.kir.build import I32, KernelBuilder
from poot.codegen.kir.sim import simulate
from tests.support.grouped import decode, open_team


@pytest.mark.parametrize("d", [1, 3, 7, 8, 132, 264, 1000])
def test_division_by_a_number_is_exact(d: int):
    k = KernelBuilder("divide", 64)
    x, q, r = (k.param(n, "i32", 64, a) for n, a in (("x", "r"), ("q", "w"), ("r", "w")))
    value = k.load(x, k.lane())
    k.store(q, k.lane(), quotient(k, value, d))
    k.store(r, k.lane(), remainder(k, value, d))
    rng = np.random.default_rng(d)
    near = np.concatenate([np.arange(5) * d, np.arange(1, 6) * d - 1])
    xs = np.concatenate([near, rng.integers(0, (1 << 31) // d, 54)])[:64].astype(np.int32)
    outs = {"x": xs, "q": np.zeros(64, np.int32), "r": np.zeros(64, np.int32)}
    simulate(k.kernel(), outs, 1)
    np.testing.assert_array_equal(outs["q"], xs // d)
    np.testing.assert_array_equal(outs["r"], xs % d)


def test_division_by_a_register_is_exact():
    k = KernelBuilder("divide", 64)
    x, d, q = (k.param(n, "i32", 64, a) for n, a in (("x", "r"), ("d", "r"), ("q", "w")))
    k.store(q, k.lane(), quotient(k, k.load(x, k.lane()), k.load(d, k.lane())))
    rng = np.random.default_rng(0)
    ds = rng.integers(1, 5000, 64).astype(np.int32)
    xs = (ds * rng.integers(0, 300, 64) + rng.integers(-1, 2, 64)).clip(0).astype(np.int32)
    outs = {"x": xs, "d": ds, "q": np.zeros(64, np.int32)}
    simulate(k.kernel(), outs, 1)
    np.testing.assert_array_equal(outs["q"], xs // ds)


def test_a_length_is_clamped_and_has_one_tile_at_least():
    job, team = open_team(decode(3, 8, 2, 64, 128, live=True), 4)
    k = job.k
    out = k.param("got", "i32", 6, "w")
    with k.if_(k.lane() < 3):
        length = team.length(k.lane())
        k.store(out, k.lane() * 2, length)
        k.store(out, k.lane() * 2 + 1, team.tiles(length))
    got = np.zeros(6, np.int32)
    buffers = {p.name: np.zeros(p.elems, np.uint16) for p in k.kernel().params}
    lengths = np.array([-5, 17, 99], np.int32)
    kernel = k.kernel()
    types = {"i32": np.int32}
    for p in kernel.params:
        buffers[p.name] = np.zeros(p.elems, types.get(p.dtype) or _bf16())
    buffers |= {"got": got, "in3": lengths}
    simulate(kernel, buffers, 1)
    assert got.tolist() == [0, 1, 17, 2, 64, 4]


def _bf16():
    from poot.ir.dtypes import DTYPES

    return DTYPES["bf16"].numpy


def test_only_inputs_have_a_parameter_to_load_from():
    job, team = open_team(decode(3, 8, 2, 64, 128, live=True), 4)
    assert input_name(job, team.form.parts.at["q"]) == "in0"
    assert input_name(job, team.form.parts.out) is None
    assert team.k.lit(3, I32).literal == 3
