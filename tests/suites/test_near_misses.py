"""Chains that are short of a form by one thing: they keep what is not proved, say why with the
user's line, and give the oracle's numbers on every target."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import poot
from poot import ops
from poot.ir.graph import Graph
from poot.ops import Array
from poot.oracle import run
from poot.trace import Spec
from tests.support.everywhere import compile_on, eqns_of, on, run_program
from tests.support.fused import operands
from tests.support.tol import assert_within
from tests.support.traced import normal

B, HQ, HKV, LQ, LK, D, S = 2, 4, 2, 1, 9, 8, 24
Given = dict[str, Array]


@dataclass(frozen=True, slots=True)
class Miss:
    """A chain of `at`, what `explain` says of it, and which operand its attention lacks: None where
    there is no attention at all. `more` are the slots beside q, k and v."""

    chain: Callable[[Given], object]
    why: str
    lacks: str | None = None
    more: tuple[tuple[str, Spec], ...] = ()


def floats(*shape: int) -> Spec:
    return poot.slot(shape, "f32")


def length(low: int = 1, high: int = LK + 1) -> tuple[tuple[str, Spec], ...]:
    return (("n", poot.slot((B,), "i32", range=(low, high))),)


def before(n: Array) -> Array:
    return ops.iota((1, 1, 1, LK), 3) < n.reshape(-1, 1, 1, 1)


def attend(at: Given, change: Callable[[Array], Array] = lambda s: s, k: Array | None = None):
    """softmax(change(q k) * 0.3) v, heads repeated."""
    k, v = (ops.repeat_kv(x, HQ // x.shape[1]) for x in (at["k"] if k is None else k, at["v"]))
    return ops.softmax(change(at["q"] @ k.swapaxes(2, 3)) * 0.3, 3) @ v


def live(at: Given, of_keys: Array | None, of_values: Array | None, of_scores: Array | None):
    """Keys, values and scores selected under a length each, or not."""
    held = dict(at)
    for name, n in (("k", of_keys), ("v", of_values)):
        if n is not None:
            held[name] = ops.where(before(n).reshape(B, 1, LK, 1), at[name], 0.0)

    def hide(s: Array) -> Array:
        return s if of_scores is None else ops.where(before(of_scores), s, -math.inf)

    return attend(held, hide)


def unguarded(at: Given) -> object:
    n, _ = ops.index_guard(at["n"], 1, LK + 1)
    return live(at, n, n, n)


def gathered(at: Given) -> object:
    k, v = (ops.take(x, at["read"], 0, mode="clamp").transpose(0, 2, 1, 3) for x in
            (at["pool_k"], at["pool_v"]))  # fmt: skip
    return attend(at | {"k": k, "v": v})


def one_head(at: Given) -> object:
    scores = at["q"] @ at["k"][:, :1].swapaxes(2, 3)
    return ops.softmax(scores * 0.3, 3) @ ops.repeat_kv(at["v"], 2)


def weights_too(at: Given) -> object:
    k, v = (ops.repeat_kv(at[n], 2) for n in ("k", "v"))
    weights = ops.softmax((at["q"] @ k.swapaxes(2, 3)) * 0.3, 3)
    return weights @ v, weights


def over_heads(at: Given) -> object:
    k, v = (ops.repeat_kv(at[n], 2) for n in ("k", "v"))
    return ops.softmax((at["q"] @ k.swapaxes(2, 3)) * 0.3, 1) @ v


def of_each_head(at: Given) -> object:
    return attend(at, k=ops.concat([at["k"][..., :5], at["part"]], 3))


MASK = ("mask", floats(B, 1, LQ, LK))
POOLS = (
    ("pool_k", floats(S, HKV, D)),
    ("pool_v", floats(S, HKV, D)),
    ("read", poot.slot((B, LK), "i32", kind="slot_map", range=(0, S + 1))),
)
MISSES: dict[str, Miss] = {
    "key select missing": Miss(
        lambda at: live(at, None, at["n"], at["n"]), "key rows past the length are not selected",
        "len", length(),
    ),
    "value select missing": Miss(
        lambda at: live(at, at["n"], None, at["n"]), "value rows past the length are not selected",
        "len", length(),
    ),
    "score select missing": Miss(
        lambda at: live(at, at["n"], at["n"], None), "scores past the length are not selected",
        "len", length(),
    ),
    "two lengths": Miss(
        lambda at: live(at, at["n"], at["n"], at["m"]), "unlike lengths", "len",
        (*length(), ("m", poot.slot((B,), "i32", range=(1, LK + 1)))),
    ),
    "len 0 possible": Miss(
        lambda at: live(at, *[at["n"]] * 3), f"may be 0..{LK}, not only 1..{LK}", "len", length(0)
    ),
    "len Lk + 1 possible": Miss(
        lambda at: live(at, *[at["n"]] * 3), f"may be 1..{LK + 1}, not only 1..{LK}", "len",
        length(1, LK + 2),
    ),
    "witness not declared": Miss(
        unguarded, "witness is no declared validation", "len", length(0, LK + 2)
    ),
    "read range one too wide": Miss(gathered, f"may be 0..{S}, not only 0..{S - 1}", "read", POOLS),
    "broadcast key head": Miss(one_head, "one key head is broadcast.*write ops.repeat_kv"),
    "intermediate also an output": Miss(weights_too, "the weights .* are an output"),
    "softmax over another axis": Miss(over_heads, "softmax is over axis 1 of 4"),
    "mask multiplied": Miss(
        lambda at: attend(at, lambda s: s * at["mask"]), "multiplies the scores is not additive",
        more=(MASK,),
    ),
    "softcap after mask": Miss(
        lambda at: attend(at, lambda s: ops.softcap(s + at["mask"], 3.0)), "softcap after the mask",
        more=(MASK,),
    ),
    "shared key with head axis Hkv": Miss(
        of_each_head, "the last part of the key is not one for all heads", "k_shared",
        (("part", floats(B, HKV, LK, 3)),),
    ),
    "scale that is a tensor": Miss(
        lambda at: attend(at, lambda s: s * at["factor"]), "scale is a tensor.*multiply q by it",
        more=(("factor", floats(B, 1, 1, 1)),),
    ),
}  # fmt: skip
LENGTHS = ([LK, 3], [1, 4])


def graph_of(miss: Miss) -> Graph:
    specs = {"q": floats(B, HQ, LQ, D), "k": floats(B, HKV, LK, D), "v": floats(B, HKV, LK, D)}
    return poot.trace(miss.chain, (specs | dict(miss.more),))


def feeds(graph: Graph) -> list[dict[str, np.ndarray]]:
    """Inputs; of lengths, all keys and few, then 1 and few."""
    out: list[dict[str, np.ndarray]] = []
    for lengths in LENGTHS:
        feed: dict[str, np.ndarray] = {}
        for seed, i in enumerate(graph.inputs):
            shape, name = i.var.type.shape, i.name.rpartition(".")[2]
            if name in ("n", "m"):
                feed[i.name] = np.asarray(lengths if name == "n" else lengths[::-1], np.int32)
            elif name == "read":
                feed[i.name] = np.random.default_rng(1).integers(0, S, shape).astype(np.int32)
            else:
                feed[i.name] = normal(seed, *shape)
        out.append(feed)
    return out if any(n.endswith(".n") for n in out[0]) else out[:1]


@pytest.mark.parametrize("name", MISSES)
@on()
def test_a_near_miss_says_why_and_gives_the_same(target: str, name: str):
    miss = MISSES[name]
    graph = graph_of(miss)
    program = compile_on(target, graph)
    fused = [e for e in eqns_of(program.entries["main"].final) if e.op == "attention"]
    assert len(fused) == (0 if miss.lacks is None else 1)
    assert all(miss.lacks not in operands(e) for e in fused)
    told = [line for line in program.explain().split("\n") if "declined:" in line]
    assert len(told) == 1
    assert re.search(f"declined: .*{miss.why}.*  at .*test_near_misses.py:", told[0]), told
    for feed in feeds(graph):
        want = run(graph, feed, f64=True).outputs
        for mine, theirs in zip(run_program(program, feed).outputs, want, strict=True):
            assert_within(mine, theirs.astype(np.float32), "attention", name)
