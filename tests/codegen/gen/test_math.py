"""Elementary functions: their polynomials refitted, their errors measured, their edges."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from poot.codegen.gen import math as kmath
from poot.codegen.kir.build import KernelBuilder, Val
from poot.codegen.kir.sim.run import simulate

Fn = Callable[[KernelBuilder, Val], Val]


def run(fn: Fn, x: np.ndarray) -> np.ndarray:
    """fn of each element, through a kernel."""
    k = KernelBuilder("f", threads=1)
    k.param("x", "f32", x.size, "r")
    k.param("y", "f32", x.size, "w")
    i = k.group_id(0)
    k.store("y", i, fn(k, k.load("x", i)))
    y = np.zeros(x.size, np.float32)
    simulate(k.kernel(), {"x": x.astype(np.float32), "y": y}, (x.size, 1, 1))
    return y


def ulp_error(got: np.ndarray, want: np.ndarray) -> float:
    return float(
        np.max(np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(want).astype(np.float32)))
    )


def minimax(
    fn: Callable[[float], float],
    lo: float,
    hi: float,
    degree: int,
    weight: Callable[[float], float],
) -> np.ndarray:
    """Coefficients, lowest first, of a nearly minimax polynomial: Lawson's iteration on Chebyshev
    nodes."""
    n = 4000
    x = (lo + hi) / 2 + (hi - lo) / 2 * np.cos(np.pi * (np.arange(n) + 0.5) / n)
    y, w = np.array([fn(t) for t in x]), np.array([weight(t) for t in x])
    lawson, powers = np.ones(n), np.vander(x, degree + 1, increasing=True)
    coefficients = np.zeros(degree + 1)
    for _ in range(60):
        s = np.sqrt(lawson) * w
        coefficients = np.linalg.lstsq(powers * s[:, None], y * s, rcond=None)[0]
        error = np.abs((powers @ coefficients - y) * w)
        lawson = lawson * (error / error.max() + 1e-3)
        lawson /= lawson.sum()
    return coefficients


def series(term: Callable[[int], float], z: float, count: int) -> float:
    return sum(term(n) * z**n for n in range(count))


def tanh_tail(z: float) -> float:
    if z < 1e-3:
        return -1 / 3 + 2 / 15 * z - 17 / 315 * z * z
    x = math.sqrt(z)
    return (math.tanh(x) - x) / x**3


def erf_over_x(z: float) -> float:
    return (
        2
        / math.sqrt(math.pi)
        * series(lambda n: (-1) ** n / (math.factorial(n) * (2 * n + 1)), z, 40)
    )


QUARTER = (math.pi / 4) ** 2 * 1.001
FITS = {
    "EXP": (lambda r: series(lambda n: 1 / math.factorial(n + 2), r, 25), -0.35, 0.35,
            lambda r: r * r * math.exp(-r)),
    "LOG": (lambda f: series(lambda n: (-1) ** n / (n + 3), f, 400), -0.2930, 0.4143,
            lambda f: abs(f) ** 3 / abs(math.log1p(f))),
    "SIN": (lambda z: series(lambda n: (-1) ** (n + 1) / math.factorial(2 * n + 3), z, 20), 0,
            QUARTER, lambda z: z),
    "COS": (lambda z: series(lambda n: (-1) ** n / math.factorial(2 * n + 4), z, 20), 0, QUARTER,
            lambda z: z * z),
    "TANH": (tanh_tail, 0, 0.625**2, lambda z: z),
    "ERF": (erf_over_x, 0, 0.85, lambda z: 1 / erf_over_x(z)),
    "ERFC": (lambda x: -math.log(math.erfc(x)), 0.9, 4.0, math.erfc),
}  # fmt: skip


@pytest.mark.parametrize("name", FITS)
def test_each_polynomial_is_the_minimax_fit_of_its_function(name):
    fn, lo, hi, weight = FITS[name]
    kept = np.array(getattr(kmath, name))
    fitted = minimax(fn, lo, hi, len(kept) - 1, weight)
    x = np.linspace(lo + 1e-9, hi, 500)
    w = np.array([weight(t) for t in x])
    apart = np.abs(np.polyval(kept[::-1], x) - np.polyval(fitted[::-1], x)) * w
    assert apart.max() < 2**-24


def pi_times(scale: int) -> int:
    """pi * scale, by Machin's formula."""

    def arctan_inverse(n: int) -> int:
        term = total = scale // n
        k = 1
        while term:
            term, k = term // (n * n), k + 2
            total += term // k if k % 4 == 1 else -(term // k)
        return total

    return 4 * (4 * arctan_inverse(5) - arctan_inverse(239))


def test_two_over_pi_is_its_first_230_digits():
    scale = 10**100

    pi = pi_times(scale)
    digits = (2 * scale << 230) // pi
    assert tuple(digits >> (32 * (7 - i)) & 0xFFFFFFFF for i in range(8)) == kmath.TWO_OVER_PI


def spread(lo: float, hi: float, n: int = 20000) -> np.ndarray:
    return np.random.default_rng(0).uniform(lo, hi, n).astype(np.float32)


@pytest.mark.parametrize(
    "fn, want, lo, hi, bound",
    [
        (kmath.exp, np.exp, -87, 88.7, 2.0),
        (kmath.exp, np.exp, -1, 1, 2.0),
        (kmath.log, np.log, 1e-30, 1e-3, 2.0),
        (kmath.log, np.log, 0.5, 2.0, 2.0),
        (kmath.log, np.log, 1.0, 3e38, 2.0),
        (kmath.tanh, np.tanh, -1, 1, 2.0),
        (kmath.tanh, np.tanh, -12, 12, 2.0),
        (kmath.sin, np.sin, -0.78, 0.78, 2.0),
        (kmath.cos, np.cos, -0.78, 0.78, 2.0),
    ],
)
def test_errors_stay_within_their_ulps(fn, want, lo, hi, bound):
    x = spread(lo, hi)
    assert ulp_error(run(fn, x), want(x.astype(np.float64))) <= bound


def test_erf_stays_within_3_ulp():
    x = spread(-4.5, 4.5)
    want = np.array([math.erf(v) for v in x.astype(np.float64)])
    assert ulp_error(run(kmath.erf, x), want) <= 3.0


@pytest.mark.parametrize("size", [10.0, 2.0**20, 1e9, 1e30, 3e38])
def test_sine_and_cosine_are_right_at_every_size(size):
    x = spread(-size, size, 4000)
    exact = x.astype(np.longdouble) if size <= 2.0**20 else None
    if exact is None:
        for fn in (kmath.sin, kmath.cos):
            np.testing.assert_allclose(run(fn, x), exact_trig(fn, x), atol=1.2e-7)
        return
    np.testing.assert_allclose(run(kmath.sin, x), np.sin(exact).astype(np.float64), atol=1.2e-7)
    np.testing.assert_allclose(run(kmath.cos, x), np.cos(exact).astype(np.float64), atol=1.2e-7)


def exact_trig(fn: Fn, x: np.ndarray) -> np.ndarray:
    """Sine or cosine after an exact reduction by a 1200-bit 2 pi."""
    scale = 1 << 1200
    turn = 2 * pi_times(scale)
    out = []
    for v in x.astype(np.float64):
        num, den = float(v).as_integer_ratio()
        angle = float(((num * scale // den) % turn) >> 1100) / float(1 << 100)
        out.append(math.sin(angle) if fn is kmath.sin else math.cos(angle))
    return np.array(out)


EDGES = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, 1e-40, 3.4e38, -3.4e38, 200.0, -200.0], np.float32
)


@pytest.mark.parametrize(
    "fn, want",
    [
        (kmath.exp, np.exp),
        (kmath.log, np.log),
        (kmath.sin, np.sin),
        (kmath.cos, np.cos),
        (kmath.tanh, np.tanh),
    ],
)
def test_edges_are_numpys(fn, want):
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            run(fn, EDGES),
            want(EDGES.astype(np.float64)).astype(np.float32),
            rtol=3e-7,
            atol=1.2e-7,
        )


def test_exp_of_minus_infinity_is_exactly_zero():
    assert run(kmath.exp, np.array([-np.inf, -110.0, -1e30], np.float32)).tolist() == [
        0.0,
        0.0,
        0.0,
    ]


def run_pair(
    fn: Callable[[KernelBuilder, Val, Val], Val], a: np.ndarray, b: np.ndarray, dtype: str
) -> np.ndarray:
    k = KernelBuilder("f", threads=1)
    for name in ("a", "b"):
        k.param(name, dtype, a.size, "r")
    k.param("y", dtype, a.size, "w")
    i = k.group_id(0)
    k.store("y", i, fn(k, k.load("a", i), k.load("b", i)))
    y = np.zeros_like(a)
    simulate(k.kernel(), {"a": a, "b": b, "y": y}, (a.size, 1, 1))
    return y


def test_integer_division_truncates_and_by_zero_gives_zero():
    least = -(2**31)
    a = np.array([7, -7, 7, -7, 5, least, least, 0], np.int32)
    b = np.array([2, 2, -2, -2, 0, -1, 0, 3], np.int32)
    assert run_pair(kmath.int_div, a, b, "i32").tolist() == [3, -3, -3, 3, 0, least, 0, 0]
    assert run_pair(kmath.int_rem, a, b, "i32").tolist() == [1, -1, 1, -1, 0, 0, 0, 0]


def test_float_remainder_has_the_dividends_sign():
    rng = np.random.default_rng(1)
    a, b = (rng.normal(0, s, 5000).astype(np.float32) for s in (1000, 3))
    np.testing.assert_array_equal(run_pair(kmath.float_rem, a, b, "f32"), np.fmod(a, b))
    a = np.array([1, -1, np.inf, 2, np.nan, 0.0, 5.5], np.float32)
    b = np.array([0, np.inf, 2, -np.inf, 1, 3, -2], np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(run_pair(kmath.float_rem, a, b, "f32"), np.fmod(a, b))
