"""A group's sums and bins, alone: kernels of one call, simulated."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.gen.job import Job, open_job
from poot.codegen.gen.selection.crew import WARP, Crew
from poot.codegen.kir.build import U32
from poot.codegen.kir.sim.run import simulate
from poot.codegen.kir.verify import verify
from poot.limits import profile
from tests.support.launch import request_of

BODY = """in v0: i32[4]
          v1: i32[4] = neg(v0)
          out v1"""


def crew(lanes: int) -> tuple[Job, Crew]:
    """An empty kernel over u32 words x[lanes] and results y[3 * lanes]."""
    job = open_job(request_of(BODY, "none"), profile("h200"), "part", lanes)
    job.k.subgroup = WARP
    job.k.param("x", "u32", lanes, "r")
    job.k.param("y", "i32", 3 * lanes, "w")
    return job, Crew(job, lanes)


def run(job: Job, x: np.ndarray) -> np.ndarray:
    kernel = job.k.kernel()
    verify(kernel)
    out = np.full(3 * len(x), -7, np.int32)
    simulate(kernel, {"x": x.astype(np.uint32), "y": out}, (1, 1, 1))
    return out.reshape(3, -1)


@pytest.mark.parametrize("lanes", [32, 128, 1024])
def test_sums_before_each_lane_and_over_all(lanes: int):
    job, team = crew(lanes)
    k = job.k
    found = team.scanned(k.bitcast(k.load("x", k.lane()), team.number(0).ty))
    k.store("y", k.lane(), found.before)
    k.store("y", k.lane() + lanes, found.all)
    x = np.random.default_rng(0).integers(0, 30, lanes)
    before, all_, _ = run(job, x)
    np.testing.assert_array_equal(before, np.cumsum(x) - x)
    np.testing.assert_array_equal(all_, np.full(lanes, x.sum()))


@pytest.mark.parametrize("lanes", [64, 1024])
def test_the_ends_of_all_lanes(lanes: int):
    job, team = crew(lanes)
    k = job.k
    value = k.bitcast(k.load("x", k.lane()), team.number(0).ty)
    low, high = team.ends(value, value)
    k.store("y", k.lane(), low)
    k.store("y", k.lane() + lanes, high)
    x = np.random.default_rng(0).integers(0, 1 << 32, lanes)
    low, high, _ = run(job, x)
    signed = x.astype(np.uint32).view(np.int32)
    assert set(low) == {signed.min()}
    assert set(high) == {signed.max()}


WORDS = {
    "wide": lambda rng, n: rng.integers(0, 1 << 32, n),
    "close": lambda rng, n: (1 << 31) + rng.integers(0, 50, n),
    "equal": lambda rng, n: np.full(n, 12345),
    "ends": lambda rng, n: np.where(rng.random(n) < 0.5, 0, (1 << 32) - 1),
}


@pytest.mark.parametrize("kind", WORDS)
@pytest.mark.parametrize("lanes, wanted", [(32, 1), (128, 128), (1024, 300)])
def test_the_nth_largest_word_is_found_whatever_the_words_are(kind: str, lanes: int, wanted: int):
    job, team = crew(lanes)
    k = job.k
    word = k.load("x", k.lane())
    team.clear()
    k.barrier()
    high = k.lit((1 << 32) - 1, U32)
    found = team.narrowed(lambda count: count(word), k.lit(0, U32), high, team.number(wanted))
    k.store("y", k.lane(), k.bitcast(found.word, team.number(0).ty))
    k.store("y", k.lane() + lanes, found.left)
    k.store("y", k.lane() + 2 * lanes, found.same)
    x = WORDS[kind](np.random.default_rng(1), lanes)
    got, left, same = run(job, x)
    want = np.sort(x)[::-1][wanted - 1]
    assert set(got.view(np.uint32)) == {want}
    assert set(left) == {wanted - (x > want).sum()}
    assert set(same) == {(x == want).sum()}
