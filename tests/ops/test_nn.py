"""Layers against numpy in f64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from poot import ops
from poot.errors import TypeRuleError
from poot.ir.dtypes import DTYPES
from tests.support.traced import graph_of, normal, value

X = normal(0, 4, 6)
W = normal(1, 6)
B = normal(2, 6)
WIDE = X.astype(np.float64)


def close(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("axis", [-1, 0])
def test_softmax_sums_to_one_and_takes_large_scores(axis: int):
    e = np.exp(WIDE - WIDE.max(axis, keepdims=True))
    close(value(lambda x: ops.softmax(x, axis), X), e / e.sum(axis, keepdims=True))
    big = np.float32([[0, 89, 151.29, 1e4, 1e30]])
    assert value(ops.softmax, big).tolist() == [[0, 0, 0, 0, 1]]


def test_a_row_of_minus_infinity_is_nan_and_no_other():
    x = np.float32([[-np.inf, -np.inf], [0, -np.inf]])
    np.testing.assert_array_equal(value(ops.softmax, x), [[np.nan, np.nan], [1, 0]])


def test_log_softmax_is_the_log_of_softmax():
    shifted = WIDE - WIDE.max(-1, keepdims=True)
    close(value(ops.log_softmax, X), shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


@pytest.mark.parametrize("plus_one", [False, True])
def test_rms_norm_is_its_formula(plus_one: bool):
    want = WIDE / np.sqrt((WIDE**2).mean(-1, keepdims=True) + 1e-5) * (W + plus_one)
    close(value(lambda x, w: ops.rms_norm(x, w, 1e-5, plus_one), X, W), want)


def test_layer_norm_is_its_formula():
    centred = WIDE - WIDE.mean(-1, keepdims=True)
    want = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    close(value(lambda x, w, b: ops.layer_norm(x, w, b, 1e-5), X, W, B), want * W + B)
    close(value(lambda x, w: ops.layer_norm(x, w, None, 1e-5), X, W), want * W)
    close(value(lambda x, b: ops.layer_norm(x, None, b, 1e-5), X, B), want + B)
    close(value(lambda x: ops.layer_norm(x, None, None, 1e-5), X), want)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_norms_of_16_bits_round_once(dtype: str):
    """Squares of 300 pass f16's largest number; their mean root does not."""
    x = (X * 300).astype(DTYPES[dtype].numpy)
    wide, gain = x.astype(np.float64), W.astype(DTYPES[dtype].numpy)
    want = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * gain.astype(np.float64)
    for g in (gain, gain.astype(np.float32)):
        got = value(lambda x, w: ops.rms_norm(x, w, 1e-5), x, g)
        assert got.dtype == x.dtype
        unit = float(np.finfo(np.float16).eps) if dtype == "f16" else 2.0**-7
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=unit, atol=1e-6)


def test_norm_parameters_fit_the_width_and_the_dtype():
    for bad in (W[:5], W.astype(np.float16)):
        with pytest.raises(TypeRuleError, match=r"rms_norm needs parameters \[width\]"):
            graph_of(lambda x, w: ops.rms_norm(x, w, 1e-5), X, bad)


def test_activations_are_their_formulas():
    gate = 1 / (1 + np.exp(-WIDE))
    erf = np.vectorize(math.erf)
    close(value(ops.sigmoid, X), gate)
    close(value(ops.silu, X), WIDE * gate)
    close(value(ops.relu, X), np.maximum(X, 0))
    close(value(ops.gelu, X), WIDE * (1 + erf(WIDE / math.sqrt(2))) / 2)
    tanh = WIDE * (1 + np.tanh(math.sqrt(2 / math.pi) * (WIDE + 0.044715 * WIDE**3))) / 2
    close(value(ops.gelu_tanh, X), tanh)
    close(value(lambda x: ops.swiglu(x, x + 1), X), WIDE * gate * (WIDE + 1))
    close(value(lambda x: ops.geglu(x, x + 1), X), tanh * (WIDE + 1))


@pytest.mark.parametrize("name", ["sigmoid", "silu", "gelu", "gelu_tanh", "relu"])
def test_activations_of_huge_numbers_are_finite(name: str):
    x = np.float32([-1e4, -200.0, 200.0, 1e4])
    got = value(getattr(ops, name), x)
    right = np.float32([1, 1]) if name == "sigmoid" else x[2:]
    np.testing.assert_array_equal(got, [0, 0, *right])


def test_relu_keeps_nan():
    np.testing.assert_array_equal(value(ops.relu, np.float32([np.nan, -1])), [np.nan, 0])


@pytest.mark.parametrize("lead", [(), (4,), (2, 4)])
def test_linear_takes_weights_as_out_by_in(lead: tuple[int, ...]):
    x, w, b = normal(3, *lead, 6), normal(4, 5, 6), normal(5, 5)
    close(value(ops.linear, x, w), x @ w.T)
    close(value(ops.linear, x, w, b), x @ w.T + b)


def test_linear_wants_a_matrix_of_its_width():
    with pytest.raises(TypeRuleError, match=r"linear needs x \[..., in\] and w \[out, in\]"):
        graph_of(lambda x, w: ops.linear(x, w), X, normal(4, 6, 5))


def test_embedding_reads_proved_rows():
    ids = np.asarray([[2, 0], [3, 3]], np.int32)
    np.testing.assert_array_equal(value(ops.embedding, X, ids), X[ids])
    with pytest.raises(TypeRuleError, match=r"take needs an index proved in 0..3"):
        graph_of(lambda t, i: ops.embedding(t, i + 1), X, ids)
    got = value(lambda t, i: ops.embedding(t, i + 1, mode="clamp"), X, ids)
    np.testing.assert_array_equal(got, X[np.minimum(ids + 1, 3)])


def test_softcap_bounds_smoothly():
    close(value(lambda x: ops.softcap(x * 100, 30.0), X), 30 * np.tanh(WIDE * 100 / 30))
    for cap in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(TypeRuleError, match="softcap needs a finite cap above 0"):
            graph_of(lambda x, c=cap: ops.softcap(x, c), X)
