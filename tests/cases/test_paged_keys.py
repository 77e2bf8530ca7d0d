"""Hard cases of pools and maps as attention reads them in place: null blocks, strides, page sizes,
addresses, and rows past what is live, on every target."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot import ops
from poot.api import compile
from poot.errors import CapabilityError
from poot.ir.graph import Graph
from poot.ops import Array
from tests.support.attention import reference
from tests.support.everywhere import compile_on, eqns_of, fused_count, on, run_program
from tests.support.fused import operands
from tests.support.tol import assert_within
from tests.support.traced import normal

ON = on(but="emulated")
HEADS, WIDTH, BLOCK = 2, 8, 4


def near(got: object, want: np.ndarray, what: str = "") -> None:
    assert isinstance(got, np.ndarray)
    assert_within(got, want.astype(got.dtype), "attention", what)


def gathered(pool: Array, read: Array) -> Array:
    return ops.take(pool, read, 0).transpose(0, 2, 1, 3)


def operands_of(target: str, graph: Graph) -> set[str]:
    """The operands of the one attention that the target runs."""
    program = compile_on(target, graph)
    (eqn,) = [e for e in eqns_of(program.entries["main"].final) if e.op == "attention"]
    return set(operands(eqn))


@ON
def test_case_26_a_null_block_outside_of_the_window_never_matters(target: str):
    """Window 8, blocks of 4, 20 tokens: the first three entries name the null block."""
    keys, slots = 20, 6 * BLOCK

    def fn(at: dict[str, Array]) -> object:
        k, v = (gathered(at[n], at["read"]) for n in ("k", "v"))
        return ops.attention_prefill(at["q"], k, v, window=8, scale=0.4)

    pool = poot.slot((slots, HEADS, WIDTH), "f32")
    read = poot.slot((1, keys), "i32", kind="slot_map", range=(0, slots))
    specs = {"q": poot.slot((1, HEADS, 1, WIDTH), "f32"), "k": pool, "v": pool, "read": read}
    graph = poot.trace(fn, (specs,))
    assert operands_of(target, graph) == {"q", "k", "v", "read"}
    table = np.repeat(np.asarray([0, 0, 0, 3, 4]), BLOCK) * BLOCK + np.arange(keys) % BLOCK
    feed = {"at.q": normal(0, 1, HEADS, 1, WIDTH), "at.read": table[None].astype(np.int32)}
    outs: list[np.ndarray] = []
    for null in (0.0, np.nan, np.inf):
        pools = [normal(n, slots, HEADS, WIDTH) for n in (1, 2)]
        for held in pools:
            held[:BLOCK] = null
        more = {"at.k": pools[0], "at.v": pools[1]}
        outs.append(run_program(compile_on(target, graph), feed | more).outputs[0])
    np.testing.assert_array_equal(outs[0], outs[1])
    np.testing.assert_array_equal(outs[0], outs[2])
    assert np.isfinite(outs[0]).all()


@ON
def test_case_27_a_layer_of_a_packed_pool_equals_its_copy(target: str):
    """[pages, layers, page, heads, D]: layer 1 as a view in the graph, and as a strided array given
    to a pool of its own."""
    pages, keys = 5, 12
    packed = normal(1, pages, 2, BLOCK, HEADS, WIDTH)
    slots = pages * BLOCK

    def attend(q: Array, pool: Array, read: Array) -> object:
        k = gathered(pool, read)
        return ops.attention_masked(q, k, k, mask=None, scale=0.4)

    def packed_pool(q: Array, pool: Array, read: Array) -> object:
        return attend(q, pool[:, 1].reshape(slots, HEADS, WIDTH), read)

    row = poot.slot((1, HEADS, 1, WIDTH), "f32")
    read = poot.slot((1, keys), "i32", kind="slot_map", range=(0, slots))
    q = normal(0, 1, HEADS, 1, WIDTH)
    at = np.random.default_rng(3).integers(0, slots, (1, keys)).astype(np.int32)
    view = packed[:, 1].reshape(slots, HEADS, WIDTH)
    strided = np.moveaxis(np.moveaxis(view, 1, 0).copy(), 0, 1)
    assert not strided.flags.c_contiguous
    k = np.ascontiguousarray(view)[at[0]].transpose(1, 0, 2)[None]
    want = reference(q, k, k, 0.4)[0]
    own = poot.trace(attend, (row, poot.slot((slots, HEADS, WIDTH), "f32"), read))
    of_all = poot.trace(packed_pool, (row, poot.slot(packed.shape, "f32"), read))
    for graph, pool in ((own, strided), (of_all, packed)):
        program = compile_on(target, graph)
        assert fused_count(program, "attention") == 1
        near(run_program(program, {"q": q, "pool": pool, "read": at}).outputs[0], want)


def test_case_33_a_pool_past_what_an_address_counts_is_refused_and_one_below_is_planned():
    def graph(slots: int) -> Graph:
        def fn(q: Array, pool: Array, read: Array) -> object:
            k = gathered(pool, read)
            return ops.attention_masked(q, k, k, mask=None, scale=0.4)

        read = poot.slot((1, 64), "i32", kind="slot_map", range=(0, slots))
        pool = poot.state((slots, 8, 128))
        return poot.trace(
            lambda q, pool, read: (fn(q, pool, read), pool),
            (poot.slot((1, 8, 1, 128), "f32"), pool, read),
        )

    with pytest.raises(CapabilityError, match="32 bits; split it"):
        compile(graph(1 << 22), target="h200", cache=False)
    made = compile(graph((1 << 22) - 4096), target="h200", cache=False)
    assert fused_count(made, "attention") == 1
    assert made.memory().nbytes > 1 << 33


@ON
def test_case_54_more_rows_than_live_keys_are_nan_and_alone(target: str):
    """5 rows, 2 keys, bottom-right; and the same 2 as the live part of a longer cache."""
    q, k, v = normal(0, 1, 1, 5, 4), normal(1, 1, 1, 9, 4), normal(2, 1, 1, 9, 4)
    k[:, :, 2:], v[:, :, 2:] = np.nan, np.nan

    def fn(q: Array, k: Array, v: Array, n: Array) -> object:
        keep = ops.causal_mask(5, 9, n - 5)
        return ops.attention_live(q, k, v, n, mask=keep, scale=0.5)

    held = poot.slot((1, 1, 9, 4), "f32")
    specs = (poot.slot((1, 1, 5, 4), "f32"), held, held, poot.slot((1,), "i32", range=(1, 10)))
    graph = poot.trace(fn, specs)
    assert "len" in operands_of(target, graph)
    feed = {"q": q, "k": k, "v": v, "n": np.asarray([2], np.int32)}
    got = run_program(compile_on(target, graph), feed).outputs[0]
    assert np.isnan(got[:, :, :3]).all()
    np.testing.assert_allclose(got[:, :, 3], v[:, :, 0], rtol=0, atol=1e-6)
    near(got[:, :, 4:], reference(q[:, :, 4:], k[:, :, :2], v[:, :, :2], 0.5)[0])


@on("cpu", "vulkan", "wgpu", "cuda")
def test_case_57_a_chunk_far_into_a_cache_is_right_and_writes_its_rows_alone(target: str):
    """8 rows at position 4092 of 4100, after a run at position 0: lengths of 8 and of 4100."""
    rows, keys = 8, 4100

    def fn(q: Array, k: Array, v: Array, pos: Array) -> object:
        keep = ops.causal_mask(rows, keys, pos)
        return ops.attention_live(q, k, v, pos + rows, mask=keep, scale=0.3)

    held = poot.slot((1, 1, keys, 16), "f32")
    pos = poot.slot((1,), "i32", kind="pos", range=(0, keys - rows + 1))
    graph = poot.trace(fn, (poot.slot((1, 2, rows, 16), "f32"), held, held, pos))
    assert "len" in operands_of(target, graph)
    q, k, v = normal(0, 1, 2, rows, 16), normal(1, 1, 1, keys, 16), normal(2, 1, 1, keys, 16)
    program = compile_on(target, graph)
    for start in (0, keys - rows, 511):
        feed = {"q": q, "k": k, "v": v, "pos": np.asarray([start], np.int32)}
        keep = np.arange(keys) <= start + np.arange(rows)[:, None]
        near(run_program(program, feed).outputs[0], reference(q, k, v, 0.3, keep=keep)[0])


# Case 84: latent attention over pages


R, DN, DR, DV, MLA_HEADS, TOKENS = 16, 8, 4, 6, 3, 64


def absorbed(at: dict[str, Array]) -> object:
    """One latent head of R + DR, its values the latent."""
    latent = gathered(at["pool"], at["read"])
    q = ops.concat([at["q"] @ at["wk"].swapaxes(1, 2), at["q_pe"]], 3)
    k = ops.broadcast_to(latent, (1, MLA_HEADS, TOKENS, R + DR))
    v = ops.broadcast_to(latent[..., :R], (1, MLA_HEADS, TOKENS, R))
    out = ops.attention_live(q, k, v, at["n"], scale=(DN + DR) ** -0.5)
    return out @ at["wv"]


def unabsorbed(at: dict[str, Array]) -> object:
    """Keys and values of each head made of the latent, the rotary part shared."""
    latent = gathered(at["pool"], at["read"])
    own = latent[..., :R]
    k_pe = ops.broadcast_to(latent[..., R:], (1, MLA_HEADS, TOKENS, DR))
    k = ops.concat([own @ at["wk"], k_pe], 3)
    q = ops.concat([at["q"], at["q_pe"]], 3)
    return ops.attention_live(q, k, own @ at["wv"], at["n"], scale=(DN + DR) ** -0.5)


@ON
def test_case_84_pages_of_any_size_and_both_forms_of_latent_attention_agree(target: str):
    slots = 160
    specs = {
        "q": poot.slot((1, MLA_HEADS, 1, DN), "f32"),
        "q_pe": poot.slot((1, MLA_HEADS, 1, DR), "f32"),
        "pool": poot.slot((slots, 1, R + DR), "f32"),
        "read": poot.slot((1, TOKENS), "i32", kind="slot_map", range=(0, slots)),
        "wk": poot.slot((MLA_HEADS, R, DN), "f32"),
        "wv": poot.slot((MLA_HEADS, R, DV), "f32"),
        "n": poot.slot((1,), "i32", range=(1, TOKENS + 1)),
    }
    tokens = normal(9, TOKENS, 1, R + DR)
    shapes = {n: s.type.shape for n, s in specs.items()}
    feed: dict[str, np.ndarray] = {
        f"at.{n}": normal(at, *shapes[n]) for at, n in enumerate(("q", "q_pe", "wk", "wv"))
    }
    feed["at.n"] = np.asarray([61], np.int32)
    made = {fn: compile_on(target, poot.trace(fn, (specs,))) for fn in (absorbed, unabsorbed)}
    outs: list[np.ndarray] = []
    for page in (1, 16, 64):
        order = np.random.default_rng(page).permutation(slots // page)[: TOKENS // page]
        table = (order[:, None] * page + np.arange(page)).reshape(1, TOKENS).astype(np.int32)
        pool = np.full((slots, 1, R + DR), np.nan, np.float32)
        pool[table[0]] = tokens
        for program in made.values():
            assert fused_count(program, "attention") == 1, program.explain()
            more = {"at.pool": pool, "at.read": table}
            outs.append(run_program(program, feed | more).outputs[0])
    for got in outs[2::2]:
        np.testing.assert_array_equal(got, outs[0])
    for got in outs:
        near(got, outs[0])
