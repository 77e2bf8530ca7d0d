"""Rotary positions: pairs, widths, bands, tables. Cases 66, 67 and 68."""

from __future__ import annotations

import math

import numpy as np
import pytest

import poot
from poot import ops
from poot.errors import TraceError, TypeRuleError
from poot.ir.dtypes import DTYPES
from tests.support.traced import graph_of, normal, value

LLAMA3 = ops.Llama3Scaling(32.0, 1.0, 4.0, 8192)
POSITION_ONE = np.asarray([1], np.int32)


def turned(
    x: np.ndarray, positions: np.ndarray, inverse: np.ndarray, interleaved: bool, size: float = 1.0
) -> np.ndarray:
    """x [..., L, D] turned in f64 by complex multiplication, positions broadcasting to [..., L]."""
    half = len(inverse)
    wide = x[..., : 2 * half].astype(np.float64)
    a, b = (
        (wide[..., 0::2], wide[..., 1::2]) if interleaved else (wide[..., :half], wide[..., half:])
    )
    z = (a + 1j * b) * size * np.exp(1j * positions[..., None] * inverse)
    parts = np.stack([z.real, z.imag], -1) if interleaved else np.stack([z.real, z.imag], -2)
    return np.concatenate([parts.reshape(wide.shape), x[..., 2 * half :]], -1)


def test_case_66_adjacent_and_half_split_pairs_differ():
    x = np.float32([[1, 2, 3, 4]])
    theta = 1e4
    c, s, d, t = math.cos(1), math.sin(1), math.cos(0.01), math.sin(0.01)
    adjacent = [[c - 2 * s, 2 * c + s, 3 * d - 4 * t, 4 * d + 3 * t]]
    half = [[c - 3 * s, 2 * d - 4 * t, 3 * c + s, 4 * d + 2 * t]]
    got = value(lambda x, p: ops.rope(x, p, theta, interleaved=True), x, POSITION_ONE)
    np.testing.assert_allclose(got, adjacent, rtol=1e-6)
    got = value(lambda x, p: ops.rope(x, p, theta), x, POSITION_ONE)
    np.testing.assert_allclose(got, half, rtol=1e-6)


@pytest.mark.parametrize("interleaved", [False, True])
def test_case_66_position_zero_is_the_identity(interleaved: bool):
    x = normal(0, 2, 3, 1, 8)
    got = value(lambda x, p: ops.rope(x, p, 1e4, None, interleaved), x, np.zeros(1, np.int32))
    np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize("interleaved", [False, True])
def test_case_67_a_partial_rotation_leaves_the_rest(interleaved: bool):
    x = normal(0, 1, 2, 5, 80)
    positions = np.asarray([0, 3, 7, 100, 1000], np.int32)
    got = value(lambda x, p: ops.rope(x, p, 1e4, 32, interleaved), x, positions)
    np.testing.assert_array_equal(got[..., 32:], x[..., 32:])
    norms = [np.linalg.norm(y[..., :32].astype(np.float64), axis=-1) for y in (got, x)]
    np.testing.assert_allclose(*norms, rtol=1e-6)
    inverse = 1e4 ** (-np.arange(0, 32, 2) / 32)
    np.testing.assert_allclose(got, turned(x, positions, inverse, interleaved), atol=3e-4)


def test_case_68_llama3_bands_are_kept_blended_and_divided():
    plain, scaled = ops.frequencies(5e5, 64), ops.frequencies(5e5, 64, LLAMA3)
    np.testing.assert_array_equal(scaled[:15], plain[:15])
    np.testing.assert_allclose(scaled[18:], plain[18:] / 32, rtol=1e-15)
    assert plain[15] == pytest.approx(0.00213112, rel=3e-6)
    assert scaled[15] == pytest.approx(0.00129055, rel=3e-6)
    for pair in (15, 16, 17):
        assert plain[pair] / 32 < scaled[pair] < plain[pair]


def test_case_68_the_bands_show_at_a_far_position():
    """f32 angles: the error is half a unit of the angle, 30000 radians at the most."""
    x = normal(0, 1, 2, 1, 64)
    far = np.asarray([30000], np.int32)
    got = value(lambda x, p: ops.rope(x, p, 5e5, scaling=LLAMA3), x, far)
    want = turned(x, far, ops.frequencies(5e5, 64, LLAMA3), False)
    unscaled = turned(x, far, ops.frequencies(5e5, 64), False)
    assert np.abs(got - want).max() < 1e-2
    assert np.abs(got - unscaled).max() > 1


@pytest.mark.parametrize(
    "scaling, theta, factor, wanted",
    [
        (
            ops.YarnScaling(32.0, 4096, truncate=False),
            150000.0,
            1.3465735902799727,
            {
                0: 1.0,
                8: 0.050813273,
                10: 0.019335,
                12: 0.0067949593,
                16: 0.00045648392,
                31: 3.0235114e-7,
            },
        ),
        (
            ops.YarnScaling(40.0, 4096),
            10000.0,
            1.3688879454113936,
            {0: 1.0, 8: 0.1, 10: 0.056234129, 12: 0.026879361, 20: 0.00079056941, 31: 3.3338035e-6},
        ),
        (
            ops.YarnScaling(4.0, 4096, attention_factor=1.0),
            10000.0,
            1.0,
            {0: 1.0, 31: 1e4 ** (-62 / 64) / 4},
        ),
        (
            LLAMA3,
            5e5,
            1.0,
            {14: 0.0032114461, 16: 0.00042955671, 17: 9.7082862e-5, 31: 9.4183065e-8},
        ),
        (ops.LinearScaling(4.0), 10000.0, 1.0, {0: 0.25, 16: 0.0025}),
    ],
)
def test_scaled_frequencies_are_those_of_other_implementations(
    scaling: ops.Scaling, theta: float, factor: float, wanted: dict[int, float]
):
    """Numbers as transformers 5 computes them for a head of 64."""
    got = ops.frequencies(theta, 64, scaling)
    for pair, frequency in wanted.items():
        assert got[pair] == pytest.approx(frequency, rel=1e-6), pair
    assert ops.amplitude(scaling) == pytest.approx(factor, rel=1e-12)


def test_yarn_scales_cos_and_sin():
    scaling = ops.YarnScaling(32.0, 4096, truncate=False)
    x, p = normal(0, 2, 3, 64), np.asarray([0, 5, 9], np.int32)
    got = value(lambda x, p: ops.rope(x, p, 150000.0, scaling=scaling), x, p)
    inverse = ops.frequencies(150000.0, 64, scaling)
    np.testing.assert_allclose(got, turned(x, p, inverse, False, ops.amplitude(scaling)), atol=3e-6)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_positions_are_a_start_a_row_or_rows_of_a_batch(rank: int, interleaved: bool):
    x = normal(0, *(3, 2, 4, 8)[4 - rank :])
    inverse = 100.0 ** (-np.arange(0, 8, 2) / 8)
    row = np.asarray([3, 1, 4, 1], np.int32)
    start = np.asarray(5, np.int32)

    def fn(x: object, p: object) -> object:
        return ops.rope(x, p, 100.0, interleaved=interleaved)

    want = turned(x, row, inverse, interleaved)
    np.testing.assert_allclose(value(fn, x, row), want, atol=3e-6)
    want = turned(x, 5 + np.arange(4), inverse, interleaved)
    np.testing.assert_allclose(value(fn, x, start), want, atol=3e-6)
    if rank > 2:
        rows = np.random.default_rng(1).integers(0, 9, (x.shape[0], 4)).astype(np.int32)
        spread = rows.reshape(x.shape[0], *(1,) * (rank - 3), 4)
        want = turned(x, spread, inverse, interleaved)
        np.testing.assert_allclose(value(fn, x, rows), want, atol=3e-6)


@pytest.mark.parametrize("interleaved", [False, True])
def test_tables_turn_as_computed_angles_do(interleaved: bool):
    x, p = normal(0, 2, 3, 5, 16), np.asarray([0, 9, 31, 4, 2], np.int32)
    cos, sin = ops.rope_tables(32, 1e4, 12, LLAMA3)
    assert cos.shape == sin.shape == (32, 6)

    def fn(x: object, p: object) -> object:
        return ops.rotate(x, ops.take(cos, p), ops.take(sin, p), interleaved)

    want = value(lambda x, p: ops.rope(x, p, 1e4, 12, interleaved, LLAMA3), x, p)
    np.testing.assert_allclose(value(fn, x, p), want, atol=3e-6)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_16_bits_stay_16_bits(dtype: str):
    x = normal(0, 2, 3, 8, dtype=dtype)
    got = value(lambda x, p: ops.rope(x, p, 1e4), x, np.arange(3, dtype=np.int32))
    assert got.dtype == DTYPES[dtype].numpy
    want = turned(x, np.arange(3), 1e4 ** (-np.arange(0, 8, 2) / 8), False)
    np.testing.assert_allclose(got.astype(np.float64), want, atol=4e-3 if dtype == "f16" else 3e-2)


def test_every_layer_shares_one_table_of_frequencies():
    def fn(x: object, p: object) -> object:
        return ops.rope(ops.rope(x, p, 1e4), p, 1e4)

    graph = graph_of(fn, normal(0, 2, 8), np.arange(2, dtype=np.int32))
    assert [i.name for i in graph.inputs] == ["x", "p", "const#0"]


@pytest.mark.parametrize(
    "fn, message",
    [
        (lambda x, p: ops.rope(x, p, 1e4, 7), "an even width above 0"),
        (lambda x, p: ops.rope(x, p, 0.0), "theta above 0"),
        (lambda x, p: ops.rope(x, p, 1e4, 10), "at most half as wide as x"),
        (lambda x, p: ops.rope(x, p[:2], 1e4), r"positions \[\], \[L\] or \[B, L\]"),
        (lambda x, p: ops.rope(x, p.astype("f32"), 1e4), "i32 positions"),
        (lambda x, p: ops.rope(x[0, 0], p, 1e4), r"x \[..., L, D\]"),
    ],
)
def test_what_cannot_be_turned_is_refused(fn: object, message: str):
    assert callable(fn)
    with pytest.raises(TypeRuleError, match=message):
        poot.trace(fn, (poot.weight((2, 3, 8)), poot.slot((3,))))


def test_longrope_divides_each_pairs_frequency_and_scales_cos_and_sin():
    scaling = ops.FactorScaling((1.0, 2.0, 4.0, 8.0), 1.25)
    plain = ops.frequencies(1e4, 8)
    np.testing.assert_allclose(ops.frequencies(1e4, 8, scaling), plain / [1, 2, 4, 8])
    cos, _ = ops.rope_tables(3, 1e4, 8, scaling)
    np.testing.assert_allclose(cos[0], 1.25)
    with pytest.raises(TypeRuleError, match="a factor for each pair"):
        ops.frequencies(1e4, 6, scaling)


@pytest.mark.parametrize("factors", [(), (1.0, 0.0), (1.0, math.inf), (math.nan,)])
def test_factors_that_are_no_numbers_above_zero_are_refused(factors: tuple[float, ...]):
    with pytest.raises(TraceError, match="FactorScaling needs factors above 0"):
        ops.FactorScaling(factors)
