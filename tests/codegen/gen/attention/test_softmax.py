"""The running softmax at its edges."""

import numpy as np

from poot.codegen.gen.attention.softmax import step
from poot.codegen.kir.build import KernelBuilder
from poot.codegen.kir.sim.run import simulate

INF, NAN = np.inf, np.nan
PEAKS = np.float32([-INF, -INF, 0.0, 1.0, 2.0, -INF, 1.0, NAN, 5.0])
SCORES = np.float32([-INF, 1.0, 1.0, 0.0, -INF, NAN, NAN, 1.0, 5.0])


def run_steps() -> dict[str, np.ndarray]:
    k = KernelBuilder("steps", threads=len(PEAKS))
    names = ("peak", "shrink", "weight")
    k.param("old", "f32", len(PEAKS), "r")
    k.param("score", "f32", len(PEAKS), "r")
    for name in names:
        k.param(name, "f32", len(PEAKS), "w")
    i = k.lane()
    got = step(k, k.load("old", i), k.load("score", i))
    for name in names:
        k.store(name, i, getattr(got, name))
    arrays = {"old": PEAKS.copy(), "score": SCORES.copy()}
    arrays |= {name: np.zeros(len(PEAKS), np.float32) for name in names}
    simulate(k.kernel(), arrays, (1, 1, 1))
    return arrays


def test_a_score_of_minus_infinity_weighs_exactly_nothing():
    got = run_steps()
    np.testing.assert_array_equal(got["weight"][[0, 4]], [0, 0])
    np.testing.assert_array_equal(got["peak"][[0, 4]], [-INF, 2.0])
    np.testing.assert_array_equal(got["shrink"][[0, 4]], [1, 1])


def test_the_first_visible_key_shrinks_what_was_nothing_to_nothing():
    got = run_steps()
    assert (got["peak"][1], got["shrink"][1], got["weight"][1]) == (1.0, 0.0, 1.0)


def test_a_larger_score_shrinks_and_a_smaller_one_weighs_less():
    got = run_steps()
    np.testing.assert_allclose(got["shrink"][2:4], [np.exp(-1), 1], rtol=1e-6)
    np.testing.assert_allclose(got["weight"][2:4], [1, np.exp(-1)], rtol=1e-6)
    assert (got["shrink"][8], got["weight"][8]) == (1.0, 1.0)


def test_a_nan_stays():
    got = run_steps()
    assert np.isnan(got["peak"][5:8]).all()
    assert np.isnan(got["weight"][5:8]).all()
