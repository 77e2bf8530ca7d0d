"""The live length: one length over keys, values and scores, proved; and what falls short of it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest

import poot
from poot import ops
from poot.ir.graph import Const, Graph
from poot.ir.text import parse
from poot.limits import profile
from poot.ops import Array
from poot.oracle import run
from poot.passes.attention.live import Length, live_length
from poot.passes.attention.match import fuse_attention
from poot.passes.attention.proofs import proofs_of
from poot.passes.attention.rows import Dims
from poot.passes.canonicalize import canonicalize
from tests.support.check import check_pass
from tests.support.fused import CLOSE, Rewritten, only, operands, rewritten
from tests.support.traced import normal

B, HQ, HKV, LQ, LK, D = 2, 6, 2, 3, 7, 8
LIMITS = profile("lavapipe")
Q, K, V = normal(0, B, HQ, LQ, D), normal(1, B, HKV, LK, D), normal(2, B, HKV, LK, 5)


def before(length: Array, keys: int = LK) -> Array:
    """bool [B,1,1,Lk]."""
    t = ops.iota((1, 1, 1, keys), 3)
    return t < length.reshape(-1, 1, 1, 1)


def attend(q: Array, k: Array, v: Array, of_keys: object, of_values: object, scores: object):
    """Attention with each of the three selects, or without where it is None."""
    rows = (q.shape[0], 1, k.shape[2], 1)
    if isinstance(of_keys, Array):
        k = ops.where(of_keys.reshape(rows), k, 0.0)
    if isinstance(of_values, Array):
        v = ops.where(of_values.reshape(rows), v, 0.0)
    k, v = (ops.repeat_kv(x, HQ // HKV) for x in (k, v))
    s = (q @ k.swapaxes(2, 3)) * 0.3
    if isinstance(scores, Array):
        s = ops.where(scores, s, -math.inf)
    return ops.softmax(s, 3) @ v


def traced(
    fn: Callable[..., object], lo: int = 1, hi: int = LK + 1, *, kind: str = "user", n: int = 1
) -> Graph:
    """fn of q, k, v and n lengths i32 [B] declared in lo..hi-1, with the arrays' types."""
    floats = [poot.weight(x.shape, "f32") for x in (Q, K, V)]
    slots = [poot.slot((B,), "i32", kind=kind, range=(lo, hi)) for _ in range(n)]
    return poot.trace(fn, (*floats, *slots))


def fuses(graph: Graph, *lengths: list[int], names: tuple[str, ...] = ()) -> Rewritten:
    """The graph rewritten, with equal results for each of the lengths."""
    got = rewritten(graph)
    given = [i.name for i in graph.inputs if not isinstance(i.storage, Const)]
    for each in lengths or ([3, 7], [1, LK]):
        arrays = [Q, K, V, *[np.asarray(each, np.int32)] * (len(given) - 3)]
        got.check(dict(zip(given, arrays, strict=True)))
    return got


def test_three_selects_under_one_declared_length_become_len():
    check_pass(
        lambda g: fuse_attention(canonicalize(g, LIMITS).graph, LIMITS).graph,
        """
        in v0: f32[2,2,1,4]
        in v1: f32[2,2,5,4]
        in v2: f32[2,2,5,3]
        slot v3: i32[2] "n" kind=pos range=(1, 6)
        v4: i32[1,1,1,5] = iota() axis=3 dtype=i32 shape=(1, 1, 1, 5)
        v5: i32[2,1,1,1] = reshape(v3) shape=(2, 1, 1, 1)
        v6: bool[2,1,1,5] = lt(v4, v5)
        v7: bool[2,1,5,1] = reshape(v6) shape=(2, 1, 5, 1)
        v8: f32[] = const() dtype=f32 shape=() value=0.0
        v9: f32[2,2,5,4] = select(v7, v1, v8)
        v10: f32[2,2,5,3] = select(v7, v2, v8)
        v11: f32[2,2,4,5] = transpose(v9) perm=(0, 1, 3, 2)
        v12: f32[2,2,1,5] = matmul(v0, v11)
        v13: f32[] = const() dtype=f32 shape=() value=-inf
        v14: f32[2,2,1,5] = select(v6, v12, v13)
        v15: f32[2,2,1,1] = reduce(v14) axis=(3,) keepdim=True kind=max
        v16: f32[2,2,1,5] = sub(v14, v15)
        v17: f32[2,2,1,5] = exp(v16)
        v18: f32[2,2,1,1] = reduce(v17) axis=(3,) keepdim=True kind=sum
        v19: f32[2,2,1,5] = div(v17, v18)
        v20: f32[2,2,1,3] = matmul(v19, v10)
        out v20
        """,
        """
        in v0: f32[2,2,1,4]
        in v1: f32[2,2,5,4]
        in v2: f32[2,2,5,3]
        slot v3: i32[2] "n" kind=pos range=(1, 6)
        v4: f32[2,2,1,3] = attention(v0, v1, v2, v3) operands=(q, k, v, len) scale=1.0
        out v4
        """,
        within=CLOSE,
    )


@pytest.mark.parametrize("cap", [None, 2.0])
@pytest.mark.parametrize("sink", [False, True])
def test_attention_live_fuses_with_everything_that_rides_along(cap: float | None, sink: bool):
    mask = normal(5, B, 1, LQ, LK)
    logits = normal(6, HQ) if sink else None

    def fn(q: Array, k: Array, v: Array, n: Array) -> object:
        return ops.attention_live(
            q, k, v, n, scale=0.3, mask=mask, softcap=cap, sink=logits, return_lse=True
        )

    got = fuses(traced(fn, -5, 100), [3, 7], [1, LK])
    assert operands(only(got))["len"] == f"i32[{B}]"
    assert got.eqns("select") == []
    assert len(got.after.validations) == 1
    assert got.declined == ()


def spellings() -> dict[str, Callable[[Array, Array, Array, Array], Array]]:
    """One length in many spellings; n is the length, all between 1 and Lk."""

    def all_three(see: Callable[[Array], Array]) -> Callable[..., Array]:
        return lambda q, k, v, n: attend(q, k, v, *[see(n)] * 3)

    def t(shape: tuple[int, ...] = (1, 1, 1, LK), axis: int = 3) -> Array:
        return ops.iota(shape, axis)

    def last(n: Array) -> Array:
        return (n - 1).reshape(-1, 1, 1, 1)

    def heads_first(q: Array, k: Array, v: Array, n: Array) -> Array:
        k, v = (ops.repeat_kv(x, 3) for x in (k, v))
        seen = before(n)
        rows = seen.reshape(B, 1, LK, 1)
        k, v = ops.where(rows, k, 0.0), ops.where(rows, v, 0.0)
        s = ops.where(seen, q @ k.swapaxes(2, 3), -math.inf)
        return ops.softmax(s, 3) @ v

    def transposed(q: Array, k: Array, v: Array, n: Array) -> Array:
        k, v = (ops.repeat_kv(x, 3) for x in (k, v))
        k = ops.where(before(n), k.swapaxes(2, 3), 0.0)
        v = ops.where(before(n).reshape(B, 1, LK, 1), v, 0.0)
        return ops.softmax(ops.where(before(n), q @ k, -math.inf), 3) @ v

    def hidden(q: Array, k: Array, v: Array, n: Array) -> Array:
        gone = ops.iota((B, 1, 1, LK), 3) >= n.reshape(B, 1, 1, 1)
        rows = gone.reshape(B, 1, LK, 1)
        k, v = ops.where(rows, 0.0, k), ops.where(rows, 0.0, v)
        k, v = (ops.repeat_kv(x, 3) for x in (k, v))
        return ops.softmax(ops.where(gone, -math.inf, q @ k.swapaxes(2, 3)), 3) @ v

    return {
        "t < n": all_three(before),
        "n > t": all_three(lambda n: n.reshape(-1, 1, 1, 1) > t()),
        "t <= n - 1": all_three(lambda n: t() <= last(n)),
        "t + 1 <= n": all_three(lambda n: t() + 1 <= n.reshape(-1, 1, 1, 1)),
        "not t >= n": all_three(lambda n: ~(t() >= n.reshape(-1, 1, 1, 1))),
        "t - n < 0 rows of one": all_three(lambda n: t((1, LK), 1).reshape(1, 1, 1, LK) <= last(n)),
        "repeated before the selects": heads_first,
        "key select after the transpose": transposed,
        "what is hidden": hidden,
    }


@pytest.mark.parametrize("name", list(spellings()))
def test_one_length_in_many_spellings_is_one(name: str):
    got = fuses(traced(spellings()[name]))
    assert operands(only(got))["len"] == f"i32[{B}]"
    assert operands(only(got))["k"] == f"f32[{B},{HKV},{LK},{D}]"
    assert "mask" not in operands(only(got))


def test_a_position_and_its_length_are_one_length():
    def fn(q: Array, k: Array, v: Array, pos: Array) -> Array:
        t = ops.iota((1, 1, 1, LK), 3)
        seen = t <= pos.reshape(-1, 1, 1, 1)
        return attend(q, k, v, seen, before(pos + 1), seen)

    got = fuses(traced(fn, 0, LK), [0, 6])
    assert operands(only(got))["len"] == f"i32[{B}]"


def test_one_scalar_position_is_the_length_of_every_row():
    def fn(q: Array, k: Array, v: Array, pos: Array) -> Array:
        return attend(q, k, v, *[before(ops.broadcast_to(pos + 1, (B,)))] * 3)

    floats = [poot.weight(x.shape, "f32") for x in (Q, K, V)]
    got = rewritten(poot.trace(fn, (*floats, poot.slot((), "i32", kind="pos", range=(0, LK)))))
    got.check({"q": Q, "k": K, "v": V, "pos": np.int32(4)})
    assert operands(only(got))["len"] == f"i32[{B}]"


def test_a_second_condition_stays_a_mask():
    keep = normal(7, B, 1, LQ, LK) > -1

    def fn(q: Array, k: Array, v: Array, n: Array) -> Array:
        return attend(q, k, v, before(n), before(n), before(n) & keep)

    got = operands(only(fuses(traced(fn))))
    assert got["len"] == f"i32[{B}]"
    assert got["mask"] == f"bool[{B},1,{LQ},{LK}]"


def test_a_finite_mask_before_the_length_keeps_its_fill():
    keep = normal(7, B, 1, LQ, LK) > 0

    def fn(q: Array, k: Array, v: Array, n: Array) -> Array:
        rows = before(n).reshape(B, 1, LK, 1)
        k, v = (ops.repeat_kv(ops.where(rows, x, 0.0), 3) for x in (k, v))
        s = ops.where(keep, q @ k.swapaxes(2, 3), -1e9)
        return ops.softmax(ops.where(before(n), s, -math.inf), 3) @ v

    eqn = only(fuses(traced(fn)))
    assert "len" in operands(eqn)
    assert eqn.attr("mask_fill") == -1e9


def test_a_split_key_under_a_length_keeps_both():
    own, shared = normal(3, B, HQ, LK, 5), normal(4, B, 1, LK, 3)

    def fn(q: Array, own: Array, shared: Array, v: Array, n: Array) -> Array:
        key = ops.concat([own, ops.broadcast_to(shared, (B, HQ, LK, 3))], 3)
        return ops.attention_live(q, key, ops.repeat_kv(v, 3), n, scale=0.5)

    def parts(q: Array, own: Array, shared: Array, v: Array, n: Array) -> Array:
        rows = before(n).reshape(B, 1, LK, 1)
        own, shared = ops.where(rows, own, 0.0), ops.where(rows, shared, 0.0)
        key = ops.concat([own, ops.broadcast_to(shared, (B, HQ, LK, 3))], 3)
        s = ops.where(before(n), q @ key.swapaxes(2, 3), -math.inf)
        return ops.softmax(s, 3) @ ops.where(rows, ops.repeat_kv(v, 3), 0.0)

    for each in (fn, parts):
        specs = [poot.weight(x.shape, "f32") for x in (Q, own, shared, V)]
        n = poot.slot((B,), "i32", range=(1, LK + 1))
        got = rewritten(poot.trace(each, (*specs, n)))
        feed = {"q": Q, "own": own, "shared": shared, "v": V, "n": np.asarray([2, 7], np.int32)}
        got.check(feed)
        assert operands(only(got))["k_shared"] == f"f32[{B},1,{LK},3]"
        assert "len" in operands(only(got))


def near_misses() -> dict[str, tuple[Graph, str]]:
    """name -> (the graph, what the note says): what is no live length, for want of one thing."""

    def three(*which: int) -> Callable[..., Array]:
        """Keys, values and scores, each under the length of that number, or none where it is -1."""

        def fn(q: Array, k: Array, v: Array, *n: Array) -> Array:
            return attend(q, k, v, *[before(n[i]) if i >= 0 else None for i in which])

        return (
            (lambda q, k, v, n: fn(q, k, v, n))
            if max(which) < 1
            else (lambda q, k, v, n, m: fn(q, k, v, n, m))
        )

    def guarded(q: Array, k: Array, v: Array, n: Array) -> Array:
        return attend(q, k, v, *[before(ops.index_guard(n, 1, LK + 1)[0])] * 3)

    def multiplied(q: Array, k: Array, v: Array, n: Array) -> Array:
        seen = before(n)
        rows = seen.reshape(B, 1, LK, 1).astype("f32")
        return attend(q, k * rows, v * rows, None, None, seen)

    def narrower(q: Array, k: Array, v: Array, n: Array) -> Array:
        keep = normal(7, B, 1, 1, LK) > 0
        return attend(q, k, v, before(n) & keep, before(n), before(n))

    def of_rows(q: Array, k: Array, v: Array, n: Array) -> Array:
        seen = before(n) & (ops.iota((LQ, LK), 0) < n.reshape(-1, 1, 1, 1))
        return attend(q, k, v, before(n), None, seen)

    return {
        "key select missing": (traced(three(-1, 0, 0)), "the key rows past the length are not"),
        "value select missing": (traced(three(0, -1, 0)), "the value rows past the length are"),
        "score select missing": (traced(three(0, 0, -1)), "the scores past the length are not"),
        "keys under another length": (traced(three(1, 0, 0), n=2), "unlike lengths"),
        "values under another length": (traced(three(0, 1, 0), n=2), "unlike lengths"),
        "scores under another length": (traced(three(0, 0, 1), n=2), "unlike lengths"),
        "len 0 possible": (traced(three(0, 0, 0), 0), "may be 0..7, not only 1..7"),
        "len Lk + 1 possible": (traced(three(0, 0, 0), 1, LK + 2), "may be 1..8, not only 1..7"),
        "nothing is known": (
            poot.trace(
                three(0, 0, 0),
                (*[poot.weight(x.shape, "f32") for x in (Q, K, V)], poot.slot((B,), "i32")),
            ),
            "nothing proves it in 1..7",
        ),
        "witness not declared": (traced(guarded, -5, 100), "witness is no declared validation"),
        "keys zeroed by more": (traced(narrower), "the key rows past the length are not selected"),
        "values read past a length of rows": (traced(of_rows), "value rows past the length"),
    }


@pytest.mark.parametrize("name", list(near_misses()))
def test_a_near_miss_keeps_its_capacity_with_the_reason(name: str):
    graph, why = near_misses()[name]
    got = fuses(graph)
    assert all("len" not in operands(e) for e in got.eqns("attention"))
    assert len(got.declined) == 1
    assert re.search(f"not live: .*{why}", got.declined[0]), got.declined


def test_two_lengths_give_the_same_as_before_where_they_differ():
    graph = near_misses()["scores under another length"][0]
    got = rewritten(graph)
    n, m = (np.asarray(x, np.int32) for x in ([2, 5], [6, 3]))
    got.check({"q": Q, "k": K, "v": V, "n": n, "m": m})


def test_rows_multiplied_by_zero_are_no_selects():
    def fn(q: Array, k: Array, v: Array, n: Array) -> Array:
        rows = before(n).reshape(B, 1, LK, 1).astype("f32")
        return attend(q, k * rows, v * rows, None, None, before(n))

    got = fuses(traced(fn))
    assert "len" not in operands(only(got))


def test_nothing_in_an_unused_row_reaches_the_result():
    def fn(q: Array, k: Array, v: Array, n: Array) -> object:
        return ops.attention_live(q, k, v, n, scale=0.3)

    graph = rewritten(traced(fn, 0, 50)).after
    n = np.asarray([3, 5], np.int32)
    want = run(graph, {"q": Q, "k": K, "v": V, "n": n}).outputs[0]
    for poison in (np.nan, np.inf, -np.inf, 3e38):
        k, v = K.copy(), V.copy()
        for b, live in enumerate(n):
            k[b, :, live:], v[b, :, live:] = poison, poison
        got = run(graph, {"q": Q, "k": k, "v": v, "n": n}).outputs[0]
        np.testing.assert_array_equal(got, want)


def test_the_decision_names_what_is_missing():
    graph = parse('slot v0: i32[2] "n" range=(1, 8)\nslot v1: i32[2] "m" range=(0, 8)\nout v0')
    n, m = (Length(i.var, ((2, 1),), 0) for i in graph.inputs)
    dims, proofs = Dims(2, 1, 1, 7, 8, 1), proofs_of(graph)
    assert live_length([], [], [n], dims, proofs) is None
    assert live_length([n], [n], [m, n], dims, proofs) == n
    assert live_length([m, n], [n], [n], dims, proofs) == (
        "keys, values and scores are under unlike lengths"
    )
    assert live_length([None], [n], [n], dims, proofs) == (
        "the key rows are selected to zero by more than a length"
    )
    assert live_length([m], [m], [m], dims, proofs) == (
        "the length of 7 keys: it may be 0..7, not only 1..7"
    )
