"""Attention of a cache, as a model writes it: live, paged, and both, on every target."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import pytest

import poot
from poot import ops
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Graph
from poot.ops import Array
from poot.oracle import run
from poot.session import Session
from tests.support.everywhere import (
    bind_feed,
    compile_on,
    eqns_of,
    on,
    run_program,
    slots_of,
)
from tests.support.fused import operands
from tests.support.tol import assert_within
from tests.support.traced import normal


@dataclass(frozen=True, slots=True)
class Decode:
    """Attention over a cache of `keys` of which some are live. `slots` is the pools' size."""

    batch: int = 2
    heads: int = 4
    kv_heads: int = 2
    rows: int = 1
    keys: int = 40
    width: int = 16
    value_width: int = 16
    paged: bool = False
    slots: int = 100
    shared: int = 0
    softcap: float | None = None
    alibi: bool = False
    sink: bool = False
    dtype: str = "f32"


FORMS: tuple[Decode, ...] = (
    Decode(),
    Decode(paged=True),
    Decode(paged=True, softcap=5.0),
    Decode(paged=True, alibi=True, value_width=24),
    Decode(heads=6, kv_heads=1, paged=True, sink=True, rows=3),
    Decode(kv_heads=4, width=24, shared=8, paged=True),
    Decode(kv_heads=4, width=24, shared=8, softcap=5.0),
    Decode(1, 4, 4, 1, 40, 192, 128, paged=True, shared=64),  # DeepSeek's prefill and decode
    Decode(1, 4, 1, 1, 40, 576, 512, paged=True, shared=64),
    Decode(1, 8, 1, 1, 300, 576, 512, paged=True, slots=400, shared=64, dtype="bf16"),
    Decode(batch=1, heads=2, kv_heads=1, keys=300, slots=400, paged=True, softcap=5.0),
    Decode(paged=True, dtype="f16", softcap=5.0),
    Decode(dtype="bf16", value_width=33),
)


def graph_of(d: Decode) -> Graph:
    """The form with the length `pos + 1`, and, where it is paged, K and V gathered by `read`."""
    lead = (d.slots, d.kv_heads) if d.paged else (d.batch, d.kv_heads, d.keys)

    def attend(at: dict[str, Array]) -> object:
        k, v = at["k"], at["v"]
        if d.paged:
            k, v = (ops.take(x, at["read"], 0).transpose(0, 2, 1, 3) for x in (k, v))
        if d.shared:
            wide = (d.batch, d.kv_heads, d.keys, d.shared)
            k = ops.concat([k, ops.broadcast_to(at["shared"], wide)], 3)
        mask = None
        if d.alibi:
            start = at["pos"] - (d.rows - 1)
            mask = ops.alibi_bias(ops.alibi_slopes(d.heads), d.rows, d.keys, start, d.dtype)
        sink = normal(6, d.heads, dtype=d.dtype) if d.sink else None
        options = {"mask": mask, "softcap": d.softcap, "sink": sink}
        return ops.attention_live(at["q"], k, v, at["pos"] + 1, scale=0.25, **options)

    specs = {
        "q": poot.slot((d.batch, d.heads, d.rows, d.width), d.dtype),
        "k": poot.slot((*lead, d.width - d.shared), d.dtype),
        "v": poot.slot((*lead, d.value_width), d.dtype),
        "pos": poot.slot((d.batch,), "i32", kind="pos", range=(0, d.keys)),
    }
    if d.paged:
        specs["read"] = poot.slot((d.batch, d.keys), "i32", kind="slot_map", range=(0, d.slots))
    if d.shared:
        specs["shared"] = poot.slot((d.batch, 1, d.keys, d.shared), d.dtype)
    return poot.trace(attend, (specs,))


def feed_of(d: Decode, graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    feed: dict[str, np.ndarray] = {}
    for i in graph.inputs:
        shape, name = i.var.type.shape, i.name.removeprefix("at.")
        if name == "pos":
            feed[i.name] = np.asarray([d.keys - 1, d.keys // 3, 0][: d.batch], np.int32)
        elif name == "read":
            feed[i.name] = rng.permutation(d.slots)[: d.batch * d.keys].reshape(shape).astype("i4")
        elif not i.name.startswith("const#"):
            feed[i.name] = rng.standard_normal(shape).astype(DTYPES[d.dtype].numpy)
    return feed


@functools.cache
def compiled(target: str, d: Decode):
    return compile_on(target, graph_of(d))


@pytest.mark.parametrize("d", FORMS, ids=str)
@on()
def test_each_form_of_a_decode_is_one_eqn_and_right(target: str, d: Decode):
    graph = graph_of(d)
    feed = feed_of(d, graph)
    program = compiled(target, d)
    (eqn,) = [e for e in eqns_of(program.entries["main"].final) if e.op == "attention"]
    named = {"len": True, "read": d.paged, "k_shared": d.shared > 0}
    assert {name for name, is_there in named.items() if is_there} <= set(operands(eqn))
    want = run(graph, feed, f64=True).outputs[0].astype(DTYPES[d.dtype].numpy)
    assert_within(run_program(program, feed).outputs[0], want, "attention", str(d))


@pytest.mark.parametrize("d", [Decode(), Decode(paged=True)], ids=str)
@on()
def test_what_no_length_reaches_never_matters(target: str, d: Decode):
    """Cases 14 and 15: tails in keys alone, in values alone, in both; pages nobody names."""
    graph = graph_of(d)
    feed = feed_of(d, graph)
    program = compiled(target, d)
    clean = run_program(program, feed).outputs[0]
    k, v, pos = (next(n for n in feed if n.endswith(x)) for x in ("k", "v", "pos"))
    dead = np.ones((d.slots,) if d.paged else (d.batch, d.keys), bool)
    for b, last in enumerate(feed[pos]):
        live = feed[next(n for n in feed if n.endswith("read"))][b, : last + 1] if d.paged else None
        if live is None:
            dead[b, : last + 1] = False
        else:
            dead[live] = False
    for poison in (np.nan, np.inf, -np.inf):
        for names in ((k,), (v,), (k, v)):
            bad = {n: x.copy() for n, x in feed.items()}
            for name in names:
                if d.paged:
                    bad[name][dead] = poison
                else:
                    bad[name].swapaxes(1, 2)[dead] = poison
            np.testing.assert_array_equal(run_program(program, bad).outputs[0], clean)


def steps(session: Session, graph: Graph, feed: dict[str, np.ndarray], lengths: list[int]):
    """The outputs of one session's steps at each of the lengths."""
    pos = next(n for n in feed if n.endswith("pos"))
    out: list[np.ndarray] = []
    for n in lengths:
        slots = slots_of(graph, feed | {pos: np.full_like(feed[pos], n - 1)})
        out.append(np.array(session.step("main", **slots)))
    return out


@on(but="simulator")
def test_one_program_serves_every_length(target: str):
    """Case 89: no length is baked in; each step equals a program compiled for it alone."""
    d = Decode(keys=64, slots=150, paged=True)
    graph = graph_of(d)
    feed = feed_of(d, graph)
    session = bind_feed(compiled(target, d), graph, feed)
    lengths = [1, 2, 3, 64, 63, 1]
    try:
        got = steps(session, graph, feed, lengths)
    finally:
        session.close()
    pos = next(n for n in feed if n.endswith("pos"))
    for n, out in zip(lengths, got, strict=True):
        want = run(graph, feed | {pos: np.full_like(feed[pos], n - 1)}, f64=True).outputs[0]
        assert_within(out, want.astype(np.float32), "attention", f"length {n}")
    np.testing.assert_array_equal(got[0], got[-1])


@on(but="simulator")
def test_a_mean_over_live_keys_counts_no_others(target: str):
    """Case 18: q = 0 and V = 1 give exactly 1 at lengths around a page and a tile."""
    d = Decode(heads=8, kv_heads=8, keys=300, slots=640, width=128, value_width=128, paged=True)
    graph = graph_of(d)
    feed = feed_of(d, graph)
    q, v = (next(n for n in feed if n.endswith(x)) for x in ("q", "v"))
    feed[q][:], feed[v][:] = 0, 1
    session = bind_feed(compiled(target, d), graph, feed)
    try:
        for out in steps(session, graph, feed, [1, 15, 17, 255, 256, 257, 300]):
            np.testing.assert_allclose(out, 1, rtol=0, atol=2.0**-22)
    finally:
        session.close()


@on(but="simulator")
def test_a_sequence_is_the_same_wherever_its_pages_lie(target: str):
    """Case 35: 64 tokens at the first slots of a pool, and at the last."""
    d = Decode(batch=1, heads=4, kv_heads=1, keys=64, slots=9000, width=96, value_width=64,
               paged=True)  # fmt: skip
    graph = graph_of(d)
    feed = feed_of(d, graph)
    k, v, read, pos = (next(n for n in feed if n.endswith(x)) for x in ("k", "v", "read", "pos"))
    feed[pos][:] = 63
    outs: list[np.ndarray] = []
    for first in (0, d.slots - 64):
        rows = np.arange(first, first + 64, dtype=np.int32)
        moved = {n: x.copy() for n, x in feed.items()}
        for name in (k, v):
            moved[name][rows] = feed[name][:64]
        outs.append(run_program(compiled(target, d), moved | {read: rows[None]}).outputs[0])
    np.testing.assert_array_equal(outs[0], outs[1])
    assert np.abs(outs[0]).max() > 0
