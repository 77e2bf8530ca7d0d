"""Hard cases of addresses past 2^31, grids past 65535 and rows that fill no group: run whole where
that is quick, else by chosen groups at real addresses."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot import ops
from poot.api import compile
from poot.codegen.gen.lowered import KernelCall
from poot.codegen.kir.sim import SparseBuffer, simulate
from poot.errors import BindingLimit, CapabilityError
from poot.ir.graph import Graph
from poot.ops import Array
from tests.support.attention import qkv, reference
from tests.support.everywhere import compile_on, device_of, fused_count, on, run_program
from tests.support.far import Fill, edge_groups, launches_of, only_step, run_groups
from tests.support.hard import feed_of
from tests.support.tol import assert_within
from tests.support.traced import graph_of


def near(got: np.ndarray, want: np.ndarray) -> None:
    assert_within(got.astype(np.float32), want.astype(np.float32), "attention")


def noise(at: np.ndarray) -> np.ndarray:
    """A number between -1 and 1 for each element, from its index."""
    mixed = (at.astype(np.uint64) * np.uint64(2654435761)) & np.uint64(0xFFFF)
    return (mixed.astype(np.float32) / 32768 - 1).astype(np.float32)


# Case 33: strides of 2^30


def cache_graph(rows: int, stride: int) -> Graph:
    """One token written at `pos` into every row of a cache whose rows lie `stride` elements
    apart."""

    def step(cache: Array, new: Array, pos: Array) -> object:
        return new[0, 0, 0], ops.dynamic_update_slice(cache, new, pos, 1)

    keys = stride // 128
    specs = (
        poot.state((rows, keys, 128)),
        poot.slot((rows, 1, 128), "f32"),
        poot.slot((), kind="pos", range=(0, keys)),
    )
    return poot.trace(step, specs)


def test_case_33_rows_a_gigabyte_apart_are_written_where_they_are():
    """Rows 2^28 elements (2^30 bytes) apart, six of them: byte offsets pass 2^32."""
    rows, stride = 6, 1 << 28
    program = compile(cache_graph(rows, stride), target="h200", cache=False)
    steps = [s for s in program.plan.entries[0].steps if s.request.updates]
    (call,) = program.lowered[steps[0].request].calls
    assert max(p.elems for p in call.kernel.params) == rows * stride
    written = written_rows(call, pos=12345)
    want = [r * stride + 12345 * 128 + c for r in range(rows) for c in range(128)]
    np.testing.assert_array_equal(written, want)


def written_rows(call: KernelCall, pos: int) -> np.ndarray:
    """Where the update's launch writes, over sparse memory."""

    def at_pos(at: np.ndarray) -> np.ndarray:
        return np.full(at.shape, pos)

    buffers = {
        p.name: SparseBuffer(p.dtype, p.elems, at_pos if p.dtype == "i32" else noise)
        for p in call.kernel.params
    }
    simulate(call.kernel, buffers, call.grid, imms=call.imms)
    (state,) = [b for b in buffers.values() if b.size > 1 << 20]
    return state.written()


def test_case_33_more_elements_than_an_address_counts_are_refused():
    with pytest.raises(CapabilityError, match="32 bits; split it"):
        compile(cache_graph(5, 1 << 30), target="h200", cache=False)
    with pytest.raises(BindingLimit, match="bytes and lavapipe binds at most"):
        compile(cache_graph(5, 1 << 30), target="lavapipe", cache=False)


# Case 34: masks past 2^31 elements


def square(size: int, width: int, in_graph: bool) -> Graph:
    def made(q: Array, k: Array, v: Array) -> object:
        return ops.attention_prefill(q, k, v, scale=0.25)

    def given(q: Array, k: Array, v: Array, mask: Array) -> object:
        return ops.attention_masked(q, k, v, mask=mask, scale=0.25)

    row = poot.weight((1, 1, size, width))
    mask = poot.slot((size, size), "bool")
    return poot.trace(made, (row,) * 3) if in_graph else poot.trace(given, (row,) * 3 + (mask,))


def expected(rows: list[int], size: int, width: int) -> np.ndarray:
    at = np.arange(size * width)
    k = noise(at).reshape(1, 1, size, width)
    q = k[:, :, rows]
    keep = np.arange(size) <= np.asarray(rows)[:, None]
    return reference(q, k, k, 0.25, keep=keep)[0][0, 0]


def causal_mask_of(size: int) -> Fill:
    return lambda at: (at % size) <= (at // size)


@pytest.mark.parametrize("size, in_graph", [(46300, False), (46400, True), (66000, True)])
def test_case_34_the_last_rows_of_a_long_causal_mask_are_right(size: int, in_graph: bool):
    """A boolean mask of 46300^2 elements lies 8 GB wide; past 2^31 elements only one made in the
    graph is taken."""
    width = 4
    program = compile(square(size, width, in_graph), target="h200", cache=False)
    assert fused_count(program, "attention") == 1, program.explain()
    fills: dict[str, Fill] = dict.fromkeys("qkv", noise)
    if not in_graph:
        fills["mask"] = causal_mask_of(size)
    rows = [size - 64, size - 2, size - 1]
    (out,) = run_groups(program, fills, rows)
    at = np.asarray(rows)[:, None] * width + np.arange(width)
    np.testing.assert_array_equal(out.written(), at.reshape(-1))
    near(out.read(at), expected(rows, size, width))


def test_case_34_a_mask_of_more_elements_than_an_address_counts_is_refused():
    with pytest.raises(CapabilityError, match="31 bits; split it"):
        compile(square(46400, 16, False), target="h200", cache=False)


# Case 35: a pool's last page


@on(but="emulated")
def test_case_35_the_last_page_of_a_pool_is_as_good_as_the_first(target: str):
    slots, tokens, width = (1 << 16, 64, 16) if target != "simulator" else (1 << 10, 16, 4)
    rng = np.random.default_rng(0)
    k, v = (rng.standard_normal((tokens, 1, width)).astype(np.float32) for _ in range(2))
    q = rng.standard_normal((1, 2, 1, width)).astype(np.float32)

    def fn(q: Array, ks: Array, vs: Array, read: Array) -> object:
        k, v = (ops.take(x, read).swapaxes(1, 2) for x in (ks, vs))
        return ops.attention_masked(q, k, v, mask=None, scale=0.25)

    pool = poot.weight((slots, 1, width))
    read_map = poot.slot((1, tokens), kind="slot_map", range=(0, slots))
    graph = poot.trace(fn, (poot.weight(q.shape), pool, pool, read_map))
    program = compile_on(target, graph)
    results = []
    for first in (0, slots - tokens):
        pools = [np.zeros((slots, 1, width), np.float32) for _ in range(2)]
        for pool_of, x in zip(pools, (k, v), strict=True):
            pool_of[first : first + tokens] = x
        read = np.arange(first, first + tokens, dtype=np.int32)[None]
        feed = {"q": q, "ks": pools[0], "vs": pools[1], "read": read}
        results.append(run_program(program, feed).outputs[0])
    np.testing.assert_array_equal(results[0], results[1])
    want = reference(q, k.swapaxes(0, 1)[None], v.swapaxes(0, 1)[None], 0.25)[0]
    near(results[0], want)


# Cases 36 and 37: more groups than an axis of the grid


def many(batch: int, rows: int, keys: int, width: int) -> Graph:
    def fn(q: Array, k: Array, v: Array) -> object:
        return ops.attention_masked(q, k, v, mask=None, scale=0.25)

    q, k = (poot.weight((batch, 1, n, width)) for n in (rows, keys))
    return poot.trace(fn, (q, k, k))


@pytest.mark.parametrize("limits", ["webgpu-baseline", "lavapipe", "h200", "rdna3"])
def test_case_36_a_batch_past_65535_folds_and_its_edges_are_right(limits: str):
    batch, rows, width = 65537, 4, 16
    if limits == "webgpu-baseline":
        batch = 65537 * 2 // 8  # its bindings hold 128 MiB
        rows = 32
    program = compile(many(batch, rows, 4, width), target=limits, cache=False)
    most = program.limits.grid
    for _, grid in launches_of(program):
        assert all(n <= m for n, m in zip(grid, most, strict=True))
        assert np.prod(grid) >= batch * rows
    groups = edge_groups(batch * rows)
    (out,) = run_groups(program, dict.fromkeys("qkv", noise), groups)
    at = np.asarray(groups)[:, None] * width + np.arange(width)
    np.testing.assert_array_equal(out.written(), at.reshape(-1))
    near(out.read(at), at_groups(groups, rows, width))


def at_groups(groups: list[int], rows: int, width: int) -> np.ndarray:
    """What those rows of `many` give over `noise`."""
    out = []
    for group in groups:
        q = noise(group * width + np.arange(width))[None, None, None]
        first = group // rows * 4 * width
        k = noise(first + np.arange(4 * width)).reshape(1, 1, 4, width)
        out.append(reference(q, k, k, 0.25)[0].reshape(-1))
    return np.stack(out)


@on(but="simulator emulated")
def test_case_36_a_whole_batch_past_65535_leaves_nothing_unwritten(target: str):
    batch, width = 65537, 4
    q, k, v = qkv(batch, 1, 1, 1, 2, width, width)
    graph = many(batch, 1, 2, width)
    got = run_program(compile_on(target, graph), feed_of(graph, (q, k, v))).outputs[0]
    assert np.isfinite(got).all()
    scores = np.einsum("bhqd,bhkd->bhqk", q.astype(float), k.astype(float)) * 0.25
    e = np.exp(scores - scores.max(-1, keepdims=True))
    near(got, np.einsum("bhqk,bhkd->bhqd", e / e.sum(-1, keepdims=True), v.astype(float)))


@on(but="simulator emulated")
def test_case_37_a_softmax_of_65537_rows_is_right_in_each(target: str):
    x = np.random.default_rng(0).standard_normal((65537, 20)).astype(np.float32)
    graph = graph_of(lambda x: ops.softmax(x), x)
    program = compile_on(target, graph)
    most = device_of(target).limits.grid
    assert all(n <= m for _, g in launches_of(program) for n, m in zip(g, most, strict=True))
    got = run_program(program, {"x": x}).outputs[0]
    e = np.exp(x.astype(float) - x.max(1, keepdims=True))
    near(got, e / e.sum(1, keepdims=True))


@pytest.mark.parametrize("limits", ["webgpu-baseline", "lavapipe"])
def test_case_37_the_groups_that_a_fold_adds_write_nothing(limits: str):
    rows = 65537
    program = compile(many(rows, 1, 2, 4), target=limits, cache=False)
    ((_, grid),) = launches_of(program)
    total = int(np.prod(grid))
    assert total > rows
    (out,) = run_groups(program, dict.fromkeys("qkv", noise), range(rows - 1, total, 997))
    np.testing.assert_array_equal(out.written(), np.arange((rows - 1) * 4, rows * 4))


# Case 38: group counts


@pytest.mark.parametrize("n, groups", [(1, 1), (63, 1), (64, 1), (65, 2), (1000, 16)])
def test_case_38_a_launch_has_as_many_groups_as_its_elements_fill(n: int, groups: int):
    x = np.zeros(n, np.float32)
    program = compile(graph_of(lambda x: -x, x), target="webgpu-baseline", cache=False)
    assert only_step(program).request.schedule.get("threads") == 64
    assert [grid for _, grid in launches_of(program)] == [(groups, 1, 1)]
    (out,) = run_groups(program, {"x": noise}, range(groups))
    np.testing.assert_array_equal(out.written(), np.arange(n))


def test_the_fill_is_the_same_for_whoever_asks():
    np.testing.assert_array_equal(noise(np.arange(9))[3:5], noise(np.asarray([3, 4])))


def test_case_34_a_flat_index_past_31_bits_is_refused():
    """No operand is that large: only the index of a mask made in the graph, taken apart again."""

    def fn(x: Array) -> object:
        plane = ops.reshape(ops.broadcast_to(x, (46400, 46400)), (841, 2560000))
        return ops.sum(plane[:, ::1000001], axis=1)

    graph = poot.trace(fn, (poot.weight((46400,)),))
    with pytest.raises(CapabilityError, match="31 bits; split"):
        compile(graph, target="h200", cache=False)
