"""Hard cases of recognition: what must fuse, what must not, and what means the same either way."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from poot import ops
from poot.api import compile
from poot.ops import Array
from tests.support.attention import INF, bottom_right, qkv, reference
from tests.support.everywhere import compile_on, fused_count, on, run_program
from tests.support.hard import by_oracle, feed_of, on_both
from tests.support.tol import assert_within
from tests.support.traced import graph_of, normal

Chain = Callable[[Array, Array, Array], object]


def near(got: object, want: object, what: str = "") -> None:
    assert isinstance(got, np.ndarray)
    assert isinstance(want, np.ndarray)
    assert_within(got, want.astype(got.dtype), "attention", what)


def chain(scores: Callable[[Array, Array], Array]) -> Chain:
    """softmax(scores(q, k)) v."""
    return lambda q, k, v: ops.softmax(scores(q, k)) @ v


def product(q: Array, k: Array) -> Array:
    return q @ k.swapaxes(2, 3)


def checked(
    target: str, chains: dict[str, Chain], arrays: tuple[np.ndarray, ...], want: dict[str, object]
) -> dict[str, int]:
    """Runs each chain, through the passes and as written, as an entry point of one program; how
    many attention eqns each became."""
    graphs = {name: graph_of(fn, *arrays) for name, fn in chains.items()}
    programs = [compile_on(target, graphs), compile_on(target, graphs, passes=())]
    for program in programs:
        for name, graph in graphs.items():
            (got,) = run_program(program, feed_of(graph, arrays), name).outputs
            near(got, want[name], name)
    return {name: fused_count(programs[0], "attention", name) for name in graphs}


SCALES = {"0.05": 0.05, "1/8": 0.125, "8": 8.0, "sqrt 8": math.sqrt(8), "1": 1.0}


@on(but="emulated")
def test_case_104_the_users_scale_is_the_scale(target: str):
    q, k, v = qkv(1, 2, 2, 4, 12, 64, 8)
    q *= 0.2
    chains: dict[str, Chain] = {"none": chain(product)}
    want = {"none": reference(q, k, v, 1.0)[0]}
    for name, scale in SCALES.items():
        chains[f"times {name}"] = chain(lambda q, k, s=scale: product(q, k) * s)
        chains[f"over {name}"] = chain(lambda q, k, s=scale: product(q, k) / s)
        want[f"times {name}"] = reference(q, k, v, scale)[0]
        want[f"over {name}"] = reference(q, k, v, 1 / scale)[0]
    assert set(checked(target, chains, (q, k, v), want).values()) == {1}


@on(but="emulated")
def test_case_106_only_a_softmax_over_the_keys_may_fuse(target: str):
    q, k, v = normal(0, 4, 4, 2, 8), normal(1, 4, 4, 3, 8), normal(2, 4, 4, 3, 8)
    chains: dict[str, Chain] = {
        str(axis): lambda q, k, v, a=axis: ops.softmax(product(q, k) * 0.35, a) @ v
        for axis in (0, 1, 2, 3, -1, -2)
    }
    want = {name: by_oracle(fn, q, k, v, f64=True) for name, fn in chains.items()}
    made = checked(target, chains, (q, k, v), want)
    assert made == {"0": 0, "1": 0, "2": 0, "3": 1, "-1": 1, "-2": 0}


@on(but="emulated")
def test_case_107_scales_that_are_tensors_and_five_axes_cost_at_most_the_fusion(target: str):
    q, k, v = qkv(1, 3, 3, 4, 6, 8, 8)
    each = np.asarray([0.2, 0.4, 0.8], np.float32).reshape(3, 1, 1)

    def zero_d(q: Array, k: Array, v: Array, s: Array) -> object:
        return ops.softmax(product(q, k) * s) @ v

    both = on_both(target, zero_d, q, k, v, np.float32(0.5).reshape(()))
    near(both.fused, reference(q, k, v, 0.5)[0], "0-d")
    near(both.plain, reference(q, k, v, 0.5)[0], "0-d")
    both = on_both(target, zero_d, q, k, v, each)
    heads = [reference(q[:, [h]], k[:, [h]], v[:, [h]], float(each[h, 0, 0]))[0] for h in range(3)]
    near(both.fused, np.concatenate(heads, 1), "a head")
    near(both.plain, np.concatenate(heads, 1), "a head")

    def by_shape(q: Array, k: Array, v: Array) -> object:
        return ops.softmax(product(q, k) * q.shape[-1] ** -0.5) @ v

    both = on_both(target, by_shape, q, k, v)
    near(both.fused, reference(q, k, v, 8**-0.5)[0], "by shape")
    assert both.attentions == 1

    def five(q: Array, k: Array, v: Array) -> object:
        return ops.softmax((q @ k.swapaxes(3, 4)) * 0.5) @ v

    q, k, v = normal(0, 1, 1, 2, 1, 8), normal(1, 1, 1, 2, 1, 8), normal(2, 1, 1, 2, 1, 8)
    both = on_both(target, five, q, k, v)
    near(both.fused, by_oracle(five, q, k, v, f64=True), "five axes")
    near(both.plain, by_oracle(five, q, k, v, f64=True), "five axes")


def spellings(mask: np.ndarray) -> dict[str, Chain]:
    """Ways to write softmax(q k / 8 + causal) v."""
    added = np.where(mask, 0.0, -INF).astype(np.float32)
    root = math.sqrt(0.125)

    def by_hand(q: Array, k: Array, v: Array) -> object:
        scores = product(q, k) * 0.125 + added
        e = ops.exp(scores - ops.max(scores, 3, keepdims=True))
        return (e / ops.sum(e, 3, keepdims=True)) @ v

    def divided_late(q: Array, k: Array, v: Array) -> object:
        scores = product(q, k) * 0.125 + added
        e = ops.exp(scores - ops.max(scores, 3, keepdims=True))
        return (e @ v) / ops.sum(e, 3, keepdims=True)

    return {
        "scale on q": chain(lambda q, k: product(q * 0.125, k) + added),
        "scale on k": chain(lambda q, k: product(q, k * 0.125) + added),
        "its root on both": chain(lambda q, k: product(q * root, k * root) + added),
        "scores times": chain(lambda q, k: product(q, k) * 0.125 + added),
        "scores over": chain(lambda q, k: product(q, k) / 8.0 + added),
        "maximum by hand": by_hand,
        "mask added first to nothing": chain(lambda q, k: added + 0.125 * product(q, k)),
        "mask by select": chain(lambda q, k: ops.where(mask, product(q, k) * 0.125, -INF)),
        "divided late": divided_late,
    }


@on(but="emulated")
def test_case_108_every_spelling_is_right_and_fused(target: str):
    q, k, v = qkv(1, 2, 2, 5, 9, 64, 8)
    mask = bottom_right(5, 9)
    chains = spellings(mask)
    want = dict.fromkeys(chains, reference(q, k, v, 0.125, keep=mask)[0])
    made = checked(target, chains, (q, k, v), want)
    assert made == dict.fromkeys(chains, 1)


def test_case_111_a_boolean_key_mask_needs_no_memory_of_its_own():
    """1x28x5224x128 in bf16 with a mask [1,1,1,5224]: what is made besides inputs and output."""
    rows = 5224
    shape = (1, 28, rows, 128)
    big = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), shape, (0,) * 4)

    def fn(q: Array, k: Array, v: Array, m: Array) -> object:
        q, k, v = (x.astype("bf16") for x in (q, k, v))
        return ops.attention_masked(q, k, v, mask=m, scale=128**-0.5)

    graph = graph_of(fn, big, big, big, np.zeros((1, 1, 1, rows), bool))
    program = compile(graph, target="lavapipe", cache=False)
    assert fused_count(program, "attention") == 1, program.explain()
    out = 2 * 28 * rows * 128
    assert dict(program.plan.spaces)["arena"] - out < 100e6


@on(but="emulated")
def test_case_112_what_is_no_attention_stays_what_it_is(target: str):
    q, k, v = qkv(2, 2, 2, 6, 6, 6, 6)

    def weights_of_themselves(q: Array, k: Array, v: Array) -> object:
        scores = product(q, k) * 0.5
        return ops.softmax(scores) @ scores

    def kalman(q: Array, k: Array, v: Array) -> object:
        gain = (q @ k.swapaxes(2, 3)) @ v
        return gain @ q - gain @ k

    def product_of_weights(q: Array, k: Array, v: Array) -> object:
        return (product(q, k) * ops.softmax(product(q, k))) @ v

    def normed_otherwise(q: Array, k: Array, v: Array) -> object:
        e = ops.exp(product(q, k) * 0.1)
        return (e / ops.sum(e, 2, keepdims=True)) @ v

    def two_times_the_sum(q: Array, k: Array, v: Array) -> object:
        scores = product(q, k) * 0.5
        e = ops.exp(scores - ops.max(scores, 3, keepdims=True))
        return (e / (ops.sum(e, 3, keepdims=True) + 1.0)) @ v

    def another_maximum(q: Array, k: Array, v: Array) -> object:
        scores = product(q, k) * 0.5
        e = ops.exp(scores - ops.max(scores * 2.0, 3, keepdims=True))
        return (e / ops.sum(e, 3, keepdims=True)) @ v

    chains: dict[str, Chain] = {
        "scores for values": weights_of_themselves,
        "small products": kalman,
        "weights of scores": product_of_weights,
        "normed over rows": normed_otherwise,
        "one more in the sum": two_times_the_sum,
    }
    want = {name: by_oracle(fn, q, k, v, f64=True) for name, fn in chains.items()}
    made = checked(target, chains, (q, k, v), want)
    # Scores may serve as values too: then they are made once more.
    assert made.pop("scores for values") <= 1
    assert made == dict.fromkeys(made, 0)
    # A wrong maximum cancels: whether it fuses or not, it is a softmax.
    near(on_both(target, another_maximum, q, k, v).fused, reference(q, k, v, 0.5)[0])


def arena(program: object) -> int:
    return dict(program.plan.spaces)["arena"]


def test_case_112_a_declined_chain_takes_no_more_memory_than_it_did():
    x = np.zeros((4, 4, 64, 64), np.float32)

    def fn(q: Array, k: Array, v: Array) -> object:
        scores = product(q, k)
        return ops.softmax(scores) @ scores

    graph = graph_of(fn, x, x, x)
    fused, plain = (
        compile(graph, target="lavapipe", cache=False, **options)
        for options in ({}, {"passes": ()})
    )
    assert arena(fused) <= arena(plain)


@on(but="emulated")
def test_case_115_a_product_with_weights_is_no_dropout(target: str):
    """Models here run in evaluation: a dropout is no op. Weights times any tensor stay so."""
    q, k, v = qkv(1, 2, 2, 4, 6, 8, 8)
    keep = (np.random.default_rng(0).random((1, 2, 4, 6)) < 0.9).astype(np.float32) / 0.9

    def fn(q: Array, k: Array, v: Array, m: Array) -> object:
        return (ops.softmax(product(q, k) * 0.35) * m) @ v

    both = on_both(target, fn, q, k, v, keep)
    assert both.attentions == 0
    want = by_oracle(fn, q, k, v, keep, f64=True)
    near(both.fused, want)
    near(both.plain, want)
    assert not hasattr(ops, "dropout")


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@on(but="emulated")
def test_case_116_past_keys_are_used_whether_or_not_they_are_shown(target: str, dtype: str):
    """A step writes new keys behind old ones; asking for the whole cache changes no number."""
    q, k, v = (x.astype(np.float32) for x in qkv(1, 2, 2, 2, 4, 8, 8))
    old_k, old_v = normal(7, 1, 2, 3, 8), normal(8, 1, 2, 3, 8)

    def attend(q: Array, k: Array, v: Array, a: Array, b: Array) -> tuple[object, object, object]:
        q, k, v, a, b = (x.astype(dtype) for x in (q, k, v, a, b))
        keys, values = ops.concat([a, k], 2), ops.concat([b, v], 2)
        return ops.attention_prefill(q, keys, values, scale=0.35, causal=False), keys, values

    def hides(*given: Array) -> object:
        return attend(*given)[0]

    arrays = (q, k, v, old_k, old_v)
    shown, hidden = on_both(target, attend, *arrays), on_both(target, hides, *arrays)
    assert shown.attentions == hidden.attentions == 1
    np.testing.assert_array_equal(shown.fused[0], hidden.fused)
    np.testing.assert_array_equal(shown.plain[0], hidden.plain)
    keys, values = (np.concatenate(pair, 2) for pair in ((old_k, k), (old_v, v)))
    near(shown.fused[0], reference(q, keys, values, 0.35)[0])
