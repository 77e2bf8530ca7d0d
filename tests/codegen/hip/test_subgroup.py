"""What the lanes of a wave do together, in waves of 32 and of 64, against the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.kir.build import BOOL, I32, U32, KernelBuilder
from poot.codegen.kir.nodes import Ty
from poot.codegen.kir.sim.values import NUMPY
from poot.codegen.kir.text import parse
from poot.codegen.kir.verify import verify
from tests.codegen.hip.test_memory import array_of
from tests.support.hip.both import agree, body_of, by_fibers
from tests.support.hip.fiber_device import fiber_limits
from tests.support.kernels import kernel_text

LANES = 128
pytestmark = pytest.mark.parametrize("wave", [32, 64])
# Sums of a wave in another order, of values of size 1.
WITHIN = {"f32": 1e-5, "f16": 2e-2, "bf16": 0.1}


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i32", "u32"])
def test_reductions_of_every_width(wave: int, dtype: str):
    k = KernelBuilder(f"reduce_{dtype}", LANES, wave)
    x = k.param("x", dtype, LANES, "r")
    value = k.load(x, k.lane())
    for kind in ("add", "max", "min"):
        for width in (1, 2, 8, 32, wave):
            y = k.param(f"{kind}{width}", dtype, LANES, "w") if width != 32 or wave != 32 else ""
            if y:
                k.store(y, k.lane(), k.op("subgroup_reduce", value, kind=kind, width=width))
    within = WITHIN.get(dtype, 0.0)
    agree(k.kernel(), {"x": array_of(dtype, LANES)}, within=within)


def test_every_lane_of_a_run_has_the_same_bits(wave: int):
    k = KernelBuilder("same", LANES, wave)
    x, y = k.param("x", "f32", LANES, "r"), k.param("y", "f32", LANES, "w")
    k.store(y, k.lane(), k.op("subgroup_reduce", k.load(x, k.lane()), kind="add", width=wave))
    got = by_fibers(k.kernel(), {"x": array_of("f32", LANES)})["y"].reshape(-1, wave)
    assert (got == got[:, :1]).all()


@pytest.mark.parametrize("dtype", ["f32", "f16", "i32", "u32", "i64", "u64"])
def test_exchanges(wave: int, dtype: str):
    k = KernelBuilder(f"exchange_{dtype}", LANES, wave)
    x = k.param("x", dtype, LANES, "r")
    value, lane = k.load(x, k.lane()), k.op("subgroup_lane", type=I32)
    back = k.op("sub", k.lit(wave - 1, I32), lane)
    made = {
        "back": k.op("shuffle", value, back, type=Ty(dtype)),
        "flipped": k.op("shuffle_xor", value, mask=5, type=Ty(dtype)),
        "third": k.op("subgroup_broadcast", value, lane=3, type=Ty(dtype)),
        "last": k.op("subgroup_broadcast", value, lane=wave - 1, type=Ty(dtype)),
    }
    for name, result in made.items():
        k.store(k.param(name, dtype, LANES, "w"), k.lane(), result)
    agree(k.kernel(), {"x": array_of(dtype, LANES)})


def test_votes_and_bools(wave: int):
    k = KernelBuilder("votes", LANES, wave)
    x = k.param("x", "i32", LANES, "r")
    value = k.load(x, k.lane())
    truths = {"some": value.eq(40), "most": value.ne(40), "none": value < 0, "all": value >= 0}
    for name, truth in truths.items():
        for op in ("vote_any", "vote_all"):
            y = k.param(f"{op}_{name}", "bool", LANES, "w")
            k.store(y, k.lane(), k.op(op, truth, type=BOOL))
    flipped = k.op("shuffle_xor", truths["some"], mask=1, type=BOOL)
    k.store(k.param("flipped", "bool", LANES, "w"), k.lane(), flipped)
    agree(k.kernel(), {"x": np.arange(LANES, dtype=np.int32)})


def test_ballots_of_32_lanes(wave: int):
    if wave == 64:
        k = KernelBuilder("ballot", LANES, wave)
        k.op("ballot", k.lane() < 5, type=U32)
        with pytest.raises(Exception, match="a subgroup of at most 32 lanes"):
            verify(k.kernel())
        return
    k = KernelBuilder("ballot", LANES, wave)
    y = k.param("y", "u32", LANES, "w")
    k.store(y, k.lane(), k.op("ballot", (k.lane() * 7 % 5).eq(0), type=U32))
    agree(k.kernel(), {})


def test_ids_within_the_group(wave: int):
    k = KernelBuilder("ids", LANES, wave)
    y = k.param("y", "i32", LANES, "w")
    own, lane = k.op("subgroup_id", type=I32), k.op("subgroup_lane", type=I32)
    one = k.select(k.op("elect", type=BOOL), k.lit(1, I32), k.lit(0, I32))
    k.store(y, k.lane(), own * 1000 + lane * 10 + one)
    got = by_fibers(k.kernel(), {})["y"]
    at = np.arange(LANES)
    np.testing.assert_array_equal(got, at // wave * 1000 + at % wave * 10 + (at % wave == 0))


def test_a_barrier_of_the_wave_shows_what_was_written(wave: int):
    k = KernelBuilder("wave_barrier", LANES, wave)
    x, y = k.param("x", "f32", LANES, "r"), k.param("y", "f32", LANES, "w")
    held = k.shared("held", "f32", LANES)
    k.store(held, k.lane(), k.load(x, k.lane()))
    k.barrier("subgroup")
    k.store(y, k.lane(), k.load(held, k.lane() ^ 1))
    assert "wave_barrier();" in body_of(k.kernel(), fiber_limits(wave))
    agree(k.kernel(), {"x": array_of("f32", LANES)})


def test_the_hand_written_sum_of_a_wave(wave: int):
    kernel = parse(kernel_text(f"sum_wave{wave}"))
    rng = np.random.default_rng(0)
    arrays = {
        p.name: rng.standard_normal(p.elems).astype(NUMPY[p.dtype])
        for p in kernel.params
        if p.access != "w"
    }
    agree(kernel, arrays, within=1e-5)
