"""exp2 and log2: their polynomials refitted, their errors and edges measured."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from poot.codegen.kir.build import KernelBuilder
from poot.codegen.llvm import math as lmath
from tests.support.cpu import WIDTHS, cpu
from tests.support.gpu import launch_arrays

Fn = Callable[[np.ndarray], np.ndarray]


def fitted(fn: Fn, low: float, high: float, degree: int, weight: Fn) -> np.ndarray:
    """Coefficients, lowest first, of a nearly minimax polynomial: Lawson's iteration."""
    nodes = np.cos(np.pi * (np.arange(2000) + 0.5) / 2000)
    x = (low + high) / 2 + (high - low) / 2 * nodes
    y, scale = fn(x), weight(x)
    powers, lawson = np.vander(x, degree + 1, increasing=True), np.ones(x.size)
    found = np.zeros(degree + 1)
    for _ in range(400):
        s = np.sqrt(lawson) * scale
        found = np.linalg.lstsq(powers * s[:, None], y * s, rcond=None)[0]
        lawson = lawson * np.abs((powers @ found - y) * scale)
        lawson /= lawson.sum()
    return found


@pytest.mark.parametrize(
    "own, fn, low, high, weight",
    [
        (lmath.EXP2, lambda x: np.expm1(x * np.log(2)) / x, -0.5, 0.5,
         lambda x: np.abs(x) / np.exp2(x)),
        (lmath.LOG2, lambda x: np.log1p(x) / x / np.log(2), 0.5**0.5 - 1, 2**0.5 - 1,
         np.ones_like),
    ],
)  # fmt: skip
def test_each_polynomial_is_the_minimax_fit_of_its_function(own, fn, low, high, weight):
    best = fitted(fn, low, high, len(own) - 1, weight)
    x = np.linspace(low, high, 4001)[1:-1]
    x = x[np.abs(x) > 1e-6]
    mine = np.polynomial.polynomial.polyval(x, own)
    theirs = np.polynomial.polynomial.polyval(x, best)
    scale = weight(x)
    assert np.max(np.abs(mine - fn(x)) * scale) < 2 * np.max(np.abs(theirs - fn(x)) * scale)


def run(op: str, x: np.ndarray, width: str) -> np.ndarray:
    k = KernelBuilder(op, 64)
    k.param("x", "f32", x.size, "r")
    k.param("y", "f32", x.size, "w")
    i = k.group_id(0) * 64 + k.lane()
    k.store("y", i, k.op(op, k.load("x", i)))
    return launch_arrays(cpu(width), k.kernel(), {"x": x}, (x.size // 64, 1, 1))["y"]


@pytest.mark.parametrize("width", WIDTHS)
def test_exp2_keeps_its_bound_and_edges(width):
    x = np.linspace(-126, 127.99, 1 << 16).astype(np.float32)
    error = np.abs(run("exp2", x, width) / np.exp2(x.astype(np.float64)) - 1)
    assert error.max() <= 2.0**-21
    edges = np.zeros(64, np.float32)
    edges[:7] = [-np.inf, np.inf, np.nan, 128, -127, 0, -150]
    got = run("exp2", edges, width)[:7]
    assert got[4] in (0, np.float32(2.0**-127))
    want = np.array([0, np.inf, np.nan, np.inf, got[4], 1, 0], np.float32)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("width", WIDTHS)
def test_log2_keeps_its_bound_and_edges(width):
    near = np.linspace(0.5, 2, 1 << 15)
    far = 2.0 ** np.linspace(-125, 127, 1 << 15)
    x = np.concatenate([near, far]).astype(np.float32)
    want = np.log2(x.astype(np.float64))
    error = np.abs(run("log2", x, width) - want) / np.maximum(1, np.abs(want))
    assert error.max() <= 2.0**-21
    edges = np.ones(64, np.float32)
    edges[:5] = [0, np.inf, np.nan, -1, 1]
    expected = np.array([-np.inf, np.inf, np.nan, np.nan, 0], np.float32)
    np.testing.assert_array_equal(run("log2", edges, width)[:5], expected)
