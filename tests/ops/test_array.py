"""The Array: what it knows, its methods, its dtypes, and what is proved of its indices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import poot
from poot import ops
from poot.errors import TraceError, TypeRuleError
from poot.ir.ranges import Interval
from poot.ops import Array
from tests.support.traced import evaluate, graph_of, normal, value

X = normal(0, 2, 3, 4)
W = poot.weight((2, 3, 4))


def seen(fn: Callable[[Array], object]) -> object:
    """What fn gives for a traced [2,3,4], which need not be traced itself."""
    kept: list[object] = []

    def keep(x: Array) -> Array:
        kept.append(fn(x))
        return x

    poot.trace(keep, (W,))
    return kept[0]


def test_an_array_knows_its_type():
    assert seen(lambda x: (x.shape, x.dtype, x.ndim, x.size)) == ((2, 3, 4), "f32", 3, 24)
    assert seen(len) == 2
    assert seen(repr) == "Array(v0: f32[2,3,4])"


def test_rows_can_be_unrolled():
    np.testing.assert_array_equal(value(lambda x: sum(row for row in x), X), X[0] + X[1])
    first, second = X
    got = evaluate(lambda x: list(x), X)
    assert isinstance(got, list)
    np.testing.assert_array_equal(got, [first, second])


def test_a_value_without_axes_has_no_rows():
    for fn in (iter, len):
        with pytest.raises(TraceError, match="axis"):
            seen(lambda x, fn=fn: fn(x[0, 0, 0]))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.reshape(6, 4),
        lambda x: x.reshape((4, -1)),
        lambda x: x.reshape(-1),
        lambda x: x.transpose(),
        lambda x: x.transpose(1, 0, 2),
        lambda x: x.transpose((-1, 0, 1)),
        lambda x: x.T,
        lambda x: x.swapaxes(0, -1),
        lambda x: x @ x.swapaxes(1, 2),
        lambda x: x**3,
        lambda x: x**0,
        lambda x: abs(x) ** 0.5,
    ],
)
def test_methods_are_numpys(fn: Callable[[object], np.ndarray]):
    np.testing.assert_allclose(value(fn, X), fn(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), [1], ()])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", ["sum", "max", "min", "mean"])
def test_reductions_are_numpys(name: str, keepdims: bool, axis: object):
    def fn(x: object) -> object:
        return getattr(x, name)(axis=axis, keepdims=keepdims)

    at = tuple(axis) if isinstance(axis, list) else axis
    want = getattr(X, name)(axis=at, keepdims=keepdims)
    np.testing.assert_allclose(value(fn, X), want, rtol=1e-6, atol=1e-6)


def test_a_mean_of_16_bits_is_taken_in_f32():
    x = np.full(70000, 2.0, np.float16)
    assert value(lambda x: x.mean(), x) == 2.0


def test_what_changes_nothing_adds_no_eqn():
    graph = graph_of(
        lambda x: x.reshape(2, 3, 4).transpose(0, 1, 2).astype("f32")[:, ...].sum(axis=()), X
    )
    assert graph.eqns == ()


def test_powers_that_need_a_logarithm_are_refused():
    for exponent in (1.5, float("inf")):
        with pytest.raises((TypeRuleError), match=r"\*\* needs a known int, 0.5 or -0.5"):
            seen(lambda x, e=exponent: x**e)
    np.testing.assert_allclose(value(lambda x: x**-2, X), X**-2.0, rtol=1e-5)
    np.testing.assert_allclose(value(lambda x: (x * x) ** -0.5, X), 1 / np.abs(X), rtol=1e-5)


@pytest.mark.parametrize(
    "a, b",
    [((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (5, 3, 4)), ((5, 2, 3), (3,))],
)
def test_matmul_takes_vectors_as_numpy_does(a: tuple[int, ...], b: tuple[int, ...]):
    x, y = normal(1, *a), normal(2, *b)
    got = value(lambda x, y: x @ y, x, y)
    assert got.shape == (x @ y).shape
    np.testing.assert_allclose(got, x @ y, rtol=1e-5, atol=1e-6)


def test_dtypes_are_never_promoted():
    for fn in (lambda x: x + x.astype("f16"), lambda x: ops.maximum(x.astype("i32"), x)):
        with pytest.raises(TypeRuleError, match=r"operands of one dtype: .*Write .astype"):
            seen(fn)
    with pytest.raises(TypeRuleError, match=r"/ needs floats.*Write //"):
        seen(lambda x: x.astype("i32") / 2)


def test_a_number_takes_the_other_operands_dtype():
    for dtype, number in (
        ("f16", 0.1),
        ("bf16", 2),
        ("i32", 2.0),
        ("u32", 3),
        ("f32", np.int64(3)),
    ):
        graph = graph_of(lambda x, d=dtype, n=number: x.astype(d) * n, X)
        assert graph.outputs[0].type.dtype == dtype


def test_an_array_of_numpy_keeps_its_dtype():
    with pytest.raises(TypeRuleError, match=r"operands of one dtype: a=f32\[2,3,4\], b=i32\[4\]"):
        seen(lambda x: x + np.arange(4))
    with pytest.raises(TypeRuleError, match="an array of a dtype among"):
        seen(lambda x: x + np.ones(4))


def test_what_is_no_number_is_refused():
    for other in ("a", None, 1j, [1.0]):
        with pytest.raises(TraceError, match="mul needs traced values, numbers or numpy arrays"):
            seen(lambda x, other=other: x * other)


def test_axes_outside_are_refused():
    for fn in (
        lambda x: x.sum(axis=3),
        lambda x: x.sum(axis=(0, -3)),
        lambda x: x.swapaxes(0, 3),
        lambda x: x.transpose(0, 1),
        lambda x: x.reshape(5, -1),
        lambda x: x.reshape(-1, -1),
    ):
        with pytest.raises(TypeRuleError):
            seen(fn)


def bounds(fn: Callable[..., Array], lo: int, hi: int) -> Interval | None:
    """The interval of fn of a slot with that range, hi excluded."""
    kept: list[Interval | None] = []

    def keep(i: Array) -> Array:
        kept.append(fn(i).interval)
        return i

    poot.trace(keep, (poot.slot((3,), range=(lo, hi)),))
    return kept[0]


def test_what_is_proved_follows_the_arithmetic():
    assert bounds(lambda i: i + 1, 0, 8) == Interval(1, 8)
    assert bounds(lambda i: (i * 2)[1:] - 3, 0, 8) == Interval(-3, 11)
    assert bounds(lambda i: ops.clip(i, 2, 5), -100, 100) == Interval(2, 5)
    assert bounds(lambda i: i % 4, 0, 100) == Interval(0, 3)
    assert bounds(lambda i: i + ops.arange(3), 0, 8) == Interval(0, 9)
    assert bounds(lambda i: i + np.asarray([1, 2, 3]), 0, 8) == Interval(1, 10)
    assert bounds(lambda i: i * 2**30, 0, 8) is None


def test_an_index_is_taken_where_it_is_proved():
    i = np.asarray([2, 0, 1], np.int32)
    x = normal(0, 3, 4)
    np.testing.assert_array_equal(value(lambda x, i: ops.take(x, i), x, i), x[i])
    np.testing.assert_array_equal(value(lambda x, i: ops.take(x, i, axis=1), x, i), x[:, i])
    np.testing.assert_array_equal(
        value(lambda x: ops.take(x, np.asarray([[1, 1]])), x), x[[[1, 1]]]
    )
    np.testing.assert_array_equal(value(lambda x: ops.take(x, 2, axis=-1), x), x[:, 2])


def test_an_index_that_is_not_proved_needs_the_callers_word():
    def fn(x: Array, i: Array) -> Array:
        return ops.take(x, i + 1)

    i = np.asarray([2, 0, 1], np.int32)
    x = normal(0, 3, 4)
    with pytest.raises(
        TypeRuleError, match=r"take needs an index proved in 0..2: .*proved=1..3"
    ) as e:
        graph_of(fn, x, i)
    assert "Declare range=(0, 3) on its slot" in e.value.message
    assert 'mode="clamp"' in e.value.message
    got = value(lambda x, i: ops.take(x, i + 1, mode="clamp"), x, i)
    np.testing.assert_array_equal(got, x[[2, 1, 2]])
    with pytest.raises(TypeRuleError, match='mode None or "clamp"'):
        graph_of(lambda x, i: ops.take(x, i, mode="wrap"), x, i)
    with pytest.raises(TypeRuleError, match="an i32 index"):
        graph_of(lambda x: ops.take(x, x), x)


def test_a_guarded_index_is_proved():
    x = normal(0, 3, 4)
    i = np.asarray([5, -1, 1], np.int32)
    got = value(lambda x, i: ops.take(x, ops.checked(i, 0, 3)), x, i)
    np.testing.assert_array_equal(got, x[[2, 0, 1]])


def test_nothing_can_be_taken_from_nothing():
    with pytest.raises(TypeRuleError, match="an axis with elements"):
        graph_of(lambda x: ops.take(x, 0, mode="clamp"), np.zeros((0, 3), np.float32))
