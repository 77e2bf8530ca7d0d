"""A fused eqn and the primitives it stands for mean the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.errors import PassError
from poot.ir.build import Builder
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Eqn, Graph, Slot, TensorType, Var
from poot.ir.ops import OPS
from poot.ir.verify import verify
from poot.ops.expand import FUSED, expand, expand_all
from poot.oracle import run

B, HQ, HKV, LQ, LK, DK, DV, POOL = 2, 6, 2, 3, 7, 8, 5, 11
TYPES = {
    "q": ("f32", (B, HQ, LQ, DK)),
    "k": ("f32", (B, HKV, LK, DK)),
    "v": ("f32", (B, HKV, LK, DV)),
    "len": ("i32", (B,)),
    "mask": ("f32", (B, 1, LQ, LK)),
    "sink": ("f32", (HQ,)),
}
SPLIT = {**TYPES, "k": ("f32", (B, HKV, LK, DK - 3)), "k_shared": ("f32", (B, 1, LK, 3))}
PAGED = {
    **TYPES,
    "k": ("f32", (POOL, HKV, DK)),
    "v": ("f32", (POOL, HKV, DV)),
    "read": ("i32", (B, LK)),
}
BOOL = {**TYPES, "mask": ("bool", (B, HQ, 1, LK))}
ORDER = ("q", "k", "v", "k_shared", "read", "len", "mask", "sink")
FORMS: list[tuple[str, dict[str, tuple[str, tuple[int, ...]]], str, dict[str, object]]] = [
    ("plain", TYPES, "q k v", {}),
    ("lse", TYPES, "q k v", {"lse": True}),
    ("softcap", TYPES, "q k v", {"softcap": 2.0}),
    ("mask", TYPES, "q k v mask", {}),
    ("mask and cap", TYPES, "q k v mask", {"softcap": 2.0, "lse": True}),
    ("bool mask", BOOL, "q k v mask", {"mask_fill": float("-inf")}),
    ("finite fill", BOOL, "q k v mask", {"mask_fill": -1e9}),
    ("sink", TYPES, "q k v sink", {"lse": True}),
    ("causal", TYPES, "q k v", {"causal": LK - LQ}),
    ("top-left", TYPES, "q k v", {"causal": 0}),
    ("window", TYPES, "q k v", {"causal": LK - LQ, "window": 2}),
    ("window alone", TYPES, "q k v", {"window": 2}),
    ("none visible", TYPES, "q k v", {"causal": -1, "lse": True}),
    ("live", TYPES, "q k v len", {"lse": True}),
    ("split key", SPLIT, "q k v k_shared", {}),
    ("paged", PAGED, "q k v read", {}),
    ("all", TYPES, "q k v len mask sink", {"softcap": 2.0, "causal": 4, "window": 5, "lse": True}),
    ("paged live", PAGED, "q k v read len mask", {"lse": True}),
]


def fused(
    op: str, types: list[tuple[str, tuple[int, ...]]], names: list[str], **attrs: object
) -> Graph:
    build = Builder()
    ins = [
        build.input(TensorType(dtype, shape), name, Slot())
        for (dtype, shape), name in zip(types, names, strict=True)
    ]
    return build.graph(build.emit(op, *ins, loc="model.py:7", **attrs))


def feed_of(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    feed: dict[str, np.ndarray] = {}
    for i in graph.inputs:
        dtype, shape = i.var.type.dtype, i.var.type.shape
        if i.name == "read":
            feed[i.name] = rng.integers(0, POOL, shape).astype(np.int32)
        elif i.name == "len":
            feed[i.name] = rng.integers(1, LK + 1, shape).astype(np.int32)
        elif dtype == "bool":
            feed[i.name] = rng.random(shape) < 0.6
        else:
            feed[i.name] = rng.standard_normal(shape).astype(DTYPES[dtype].numpy)
    return feed


def attention(types: dict[str, tuple[str, tuple[int, ...]]], names: str, **attrs: object) -> Graph:
    operands = tuple(n for n in ORDER if n in names.split())
    of = [types[n] for n in operands]
    return fused("attention", of, list(operands), operands=operands, scale=0.3, **attrs)


@pytest.mark.parametrize("types, names, attrs", [f[1:] for f in FORMS], ids=[f[0] for f in FORMS])
def test_attention_means_its_primitives(
    types: dict[str, tuple[str, tuple[int, ...]]], names: str, attrs: dict[str, object]
):
    graph = attention(types, names, **attrs)
    body = expand(graph.eqns[0])
    verify(body)
    assert [i.name for i in body.inputs] == [i.name for i in graph.inputs]
    assert not any(OPS[e.op].fused for e in body.eqns)
    feed = feed_of(graph)
    for f64, atol in ((False, 3e-6), (True, 1e-12)):
        want, got = run(graph, feed, f64=f64).outputs, run(body, feed, f64=f64).outputs
        for a, b in zip(want, got, strict=True):
            np.testing.assert_allclose(b, a, atol=atol, rtol=0)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_16_bit_attention_has_f32_intermediates(dtype: str):
    """The scores pass f16's largest number; the eqn's own intermediates do not."""
    types = {n: (dtype if d == "f32" else d, s) for n, (d, s) in TYPES.items()}
    graph = attention(types, "q k v mask sink", lse=True)
    feed = feed_of(graph)
    feed["q"] = feed["q"] * feed["q"].dtype.type(200)
    feed["k"] = feed["k"] * feed["k"].dtype.type(200)
    want, got = run(graph, feed).outputs, run(expand(graph.eqns[0]), feed).outputs
    assert np.isfinite(got[0].astype(np.float32)).all()
    unit = 2.0**-10 if dtype == "f16" else 2.0**-7
    np.testing.assert_allclose(*(x[0].astype(np.float32) for x in (got, want)), atol=4 * unit)
    assert got[1].dtype == np.float32
    np.testing.assert_allclose(got[1], want[1], rtol=1e-5)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("half", [2, 4])
def test_rope_means_its_primitives(half: int, dtype: str, interleaved: bool):
    types = [(dtype, (2, 3, 5, 8)), (dtype, (5, half)), (dtype, (5, half))]
    graph = fused("rope", types, ["x", "cos", "sin"], interleaved=interleaved)
    body = expand(graph.eqns[0])
    verify(body)
    feed = feed_of(graph)
    want, got = run(graph, feed).outputs[0], run(body, feed).outputs[0]
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


def test_a_region_is_its_body():
    body = attention(TYPES, "q k v")
    ins = tuple(i.var for i in body.inputs)
    out = Var(99, body.outputs[0].type)
    attrs = (("anchor", "attention"), ("body", body), ("updates", ()))
    assert expand(Eqn("region", ins, (out,), attrs)) is body


def test_a_primitive_is_no_fused_eqn():
    build = Builder()
    x = build.input(TensorType("f32", (2,)), "x", Slot())
    build.emit("neg", x, loc="model.py:7")
    with pytest.raises(PassError, match=r"expand needs a fused eqn: op=neg\n  at model.py:7"):
        expand(build.eqns[0])


def test_a_whole_graph_is_written_out_through_its_regions():
    inner = attention(TYPES, "q k v len", lse=True)
    build = Builder()
    ins = [build.input(i.var.type, i.name, Slot()) for i in inner.inputs]
    scaled = build.one("neg", ins[0])
    first, lse = build.emit(
        "region", scaled, *ins[1:], body=inner, anchor="attention", updates=(), loc="model.py:9"
    )
    second = build.one("add", first, first)
    graph = build.graph((second, lse, scaled))
    plain = expand_all(graph)
    verify(plain)
    assert not any(OPS[e.op].fused for e in plain.eqns)
    assert {e.loc for e in plain.eqns if e.op == "exp"} == {"model.py:7"}
    assert expand_all(plain) == plain
    feed = feed_of(graph)
    for a, b in zip(run(graph, feed).outputs, run(plain, feed).outputs, strict=True):
        np.testing.assert_allclose(b, a, atol=3e-6)


def test_states_and_witnesses_follow():
    graph = attention(TYPES, "q k v")
    out = graph.outputs[0]
    more = replace(graph, states=((graph.inputs[0].var, out),), validations=(out,))
    plain = expand_all(more)
    assert plain.states[0][1] == plain.outputs[0] == plain.validations[0]
    assert plain.outputs[0] != out


def test_every_fused_op_is_written_out():
    """A fused op without a row here can't be explained or checked."""
    assert sorted(FUSED) == sorted(name for name, row in OPS.items() if row.fused)
