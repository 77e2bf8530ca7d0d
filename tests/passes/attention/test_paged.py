"""Keys and values in pools: read where they lie, or gathered for want of a proof."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest

import poot
from poot import ops
from poot.ir.graph import Const
from poot.ops import Array
from poot.trace import Spec
from tests.support.fused import Rewritten, only, operands, rewritten
from tests.support.traced import normal

B, HQ, HKV, LQ, LK, D, S = 2, 6, 2, 1, 7, 8, 40
Q = normal(0, B, HQ, LQ, D)
POOL_K, POOL_V = normal(1, S, HKV, D), normal(2, S, HKV, 5)
READ = np.random.default_rng(3).integers(0, S, (B, LK)).astype(np.int32)
LEN = np.asarray([3, 7], np.int32)
IN_PLACE = {"k": f"f32[{S},{HKV},{D}]", "v": f"f32[{S},{HKV},5]", "read": f"i32[{B},{LK}]"}


def attend(q: Array, k: Array, v: Array) -> Array:
    k, v = (ops.repeat_kv(x, q.shape[1] // x.shape[1]) for x in (k, v))
    return ops.softmax((q @ k.swapaxes(2, 3)) * 0.3, 3) @ v


def view(pool: Array, read: Array) -> Array:
    """[B,Hkv,Lk,D], as a model writes it."""
    return ops.take(pool, read, 0, mode="clamp").transpose(0, 2, 1, 3)


def slot(top: int = S, low: int = 0) -> Spec:
    return poot.slot((B, LK), "i32", kind="slot_map", range=(low, top))


def rewrite(
    fn: Callable[..., object], *arrays: np.ndarray, read: Spec | None = None, **more: object
) -> Rewritten:
    """fn of the arrays, a map and whatever more; it means the same on them."""
    dtypes = {"float32": "f32", "float16": "f16", "int32": "i32"}
    specs = [poot.weight(x.shape, dtypes[x.dtype.name]) for x in arrays]
    extra = [poot.slot((B,), "i32", range=(1, LK + 1)) for _ in more]
    got = rewritten(poot.trace(fn, (*specs, read or slot(), *extra)))
    names = [i.name for i in got.before.inputs if not isinstance(i.storage, Const)]
    got.check(dict(zip(names, (*arrays, READ, *more.values()), strict=True)))
    return got


def spellings() -> dict[str, Callable[[Array, Array, Array, Array], Array]]:
    def heads_first(pool: Array, read: Array) -> Array:
        flat = ops.take(pool.reshape(S, -1), read, 0)
        return flat.reshape(B, LK, HKV, -1).swapaxes(1, 2)

    def one_list(pool: Array, read: Array) -> Array:
        rows = ops.take(pool, read.reshape(-1), 0)
        return rows.reshape(B, LK, HKV, -1).transpose(0, 2, 1, 3)

    def each(how: Callable[[Array, Array], Array]) -> Callable[..., Array]:
        return lambda q, k, v, read: attend(q, how(k, read), how(v, read))

    def transposed(q: Array, k: Array, v: Array, read: Array) -> Array:
        k = ops.take(k, read, 0).transpose(0, 2, 3, 1)
        k = ops.broadcast_to(k.reshape(B, HKV, 1, D, LK), (B, HKV, 3, D, LK)).reshape(B, HQ, D, LK)
        return ops.softmax((q @ k) * 0.3, 3) @ ops.repeat_kv(view(v, read), 3)

    return {
        "gathered and transposed": each(view),
        "pools of flat slots": each(heads_first),
        "one list of words": each(one_list),
        "key transposed once": transposed,
    }


@pytest.mark.parametrize("name", list(spellings()))
def test_pools_are_read_where_they_lie(name: str):
    got = rewrite(spellings()[name], Q, POOL_K, POOL_V)
    assert {n: t for n, t in operands(only(got)).items() if n != "q"} == IN_PLACE
    assert got.eqns("gather") == []
    assert got.declined == ()


def test_one_map_for_every_row_is_read_by_each():
    def fn(q: Array, k: Array, v: Array, read: Array) -> Array:
        k, v = (ops.take(x, read[0], 0).transpose(1, 0, 2) for x in (k, v))
        k, v = (ops.broadcast_to(x, (B, *x.shape)) for x in (k, v))
        return attend(q, k, v)

    assert operands(only(rewrite(fn, Q, POOL_K, POOL_V)))["read"] == f"i32[{B},{LK}]"


def test_a_pool_of_one_head_without_a_head_axis_is_a_pool():
    def fn(q: Array, k: Array, v: Array, read: Array) -> Array:
        k, v = (ops.take(x, read, 0).reshape(B, 1, LK, -1) for x in (k, v))
        return attend(q, k, v)

    got = operands(only(rewrite(fn, Q, POOL_K[:, 0], POOL_V[:, 0])))
    assert (got["k"], got["v"]) == (f"f32[{S},1,{D}]", f"f32[{S},1,5]")


@pytest.mark.parametrize("cap", [None, 3.0])
@pytest.mark.parametrize("bias", ["none", "alibi", "sink"])
def test_a_paged_live_decode_keeps_all_its_parts(cap: float | None, bias: str):
    def fn(q: Array, k: Array, v: Array, read: Array, n: Array) -> object:
        mask = ops.alibi_bias(ops.alibi_slopes(HQ), LQ, LK) if bias == "alibi" else None
        sink = normal(6, HQ) if bias == "sink" else None
        k, v = view(k, read), view(v, read)
        return ops.attention_live(q, k, v, n, scale=0.3, mask=mask, softcap=cap, sink=sink)

    got = rewrite(fn, Q, POOL_K, POOL_V, n=LEN)
    eqn = only(got)
    want = IN_PLACE | {"len": f"i32[{B}]"}
    assert operands(eqn) | want == operands(eqn)
    assert eqn.attr("softcap") == cap
    assert got.eqns("gather") == []


def test_a_split_key_reads_its_own_part_from_the_pool():
    shared = normal(4, B, 1, LK, 3)

    def fn(q: Array, k: Array, v: Array, shared: Array, read: Array, n: Array) -> object:
        k = ops.concat([view(k, read), ops.broadcast_to(shared, (B, HQ, LK, 3))], 3)
        return ops.attention_live(q, k, view(v, read), n, scale=0.3)

    pools = normal(1, S, HQ, 5), normal(2, S, HQ, 4)
    got = rewrite(fn, Q, *pools, shared, n=LEN)
    assert operands(only(got)) == {
        "q": f"f32[{B},{HQ},{LQ},{D}]",
        "k": f"f32[{S},{HQ},5]",
        "v": f"f32[{S},{HQ},4]",
        "k_shared": f"f32[{B},1,{LK},3]",
        "read": f"i32[{B},{LK}]",
        "len": f"i32[{B}]",
    }


def test_pools_written_in_the_step_are_read_as_written():
    def fn(q: Array, k: Array, v: Array, new: Array, read: Array, at: Array) -> object:
        k = ops.scatter_update(k, new, at)
        v = ops.scatter_update(v, new[..., :5], at)
        return attend(q, view(k, read), view(v, read)), (k, v)

    specs = [poot.weight(Q.shape), poot.state(POOL_K.shape, "f32"), poot.state(POOL_V.shape, "f32")]
    write = poot.slot((B,), "i32", kind="write_map", range=(-1, S))
    got = rewritten(poot.trace(fn, (*specs, poot.weight((B, HKV, D), "f32"), slot(), write)))
    assert only(got).ins[1].id == got.eqns("scatter_update")[0].out.id
    feed = {"q": Q, "k": POOL_K, "v": POOL_V, "new": normal(5, B, HKV, D), "read": READ}
    got.check(feed | {"at": np.asarray([3, -1], np.int32)})


def near_misses() -> dict[str, tuple[Callable[[], Rewritten], str]]:
    """name -> (what to rewrite, what the note says): the gather stays, and the attention fuses."""
    plain = spellings()["gathered and transposed"]

    def two_maps(q: Array, k: Array, v: Array, read: Array) -> Array:
        return attend(q, view(k, read), view(v, S - 1 - read))

    def dense_values(q: Array, k: Array, v: Array, read: Array) -> Array:
        return attend(q, view(k, read), v)

    def heads_inside(q: Array, k: Array, v: Array, read: Array) -> Array:
        k, v = (ops.take(x, read, 0).transpose(0, 3, 1, 2) for x in (k, v))
        return attend(q, k, v)

    def unlike_heads(q: Array, k: Array, v: Array, read: Array) -> Array:
        return attend(q, view(k, read), ops.repeat_kv(view(v, read), HQ))

    def wide(q: Array, k: Array, v: Array, read: Array) -> Array:
        return attend(q, *(view(x, read).astype("f32") for x in (k, v)))

    def guarded(q: Array, k: Array, v: Array, read: Array) -> Array:
        read = ops.index_guard(read, 0, S)[0]
        return attend(q, view(k, read), view(v, read))

    def rewriting(fn: Callable[..., object], *arrays: np.ndarray, read: Spec | None = None):
        return lambda: rewrite(fn, *arrays, read=read)

    turned = [np.ascontiguousarray(x.transpose(0, 2, 1)) for x in (POOL_K, POOL_V)]
    half = [x.astype(np.float16) for x in (POOL_K, POOL_V)]
    return {
        "read one too wide": (
            rewriting(plain, Q, POOL_K, POOL_V, read=slot(S + 1)),
            "it may be 0..40, not only 0..39",
        ),
        "read from -1": (rewriting(plain, Q, POOL_K, POOL_V, read=slot(S, -1)), "may be -1..39"),
        "read undeclared": (
            rewriting(plain, Q, POOL_K, POOL_V, read=poot.slot((B, LK), "i32")),
            "nothing proves it in 0..39",
        ),
        "witness not declared": (
            rewriting(guarded, Q, POOL_K, POOL_V, read=slot(S + 5)),
            "witness is no declared validation",
        ),
        "two maps": (rewriting(two_maps, Q, POOL_K, POOL_V), "by two maps"),
        "only the keys": (rewriting(dense_values, Q, POOL_K, normal(5, B, HKV, LK, 5)), "only the"),
        "pools of two sizes": (rewriting(plain, Q, POOL_K, normal(2, S + 1, HKV, 5)), "40 and 41"),
        "channels before heads": (rewriting(heads_inside, Q, *turned), "not .Hkv,D. in order"),
        "heads repeated unlike": (
            rewriting(unlike_heads, Q, POOL_K, POOL_V[:, :1]),
            "unlike heads",
        ),
        "pools to be cast": (rewriting(wide, Q, *half), "would be cast whole"),
    }


@pytest.mark.parametrize("name", list(near_misses()))
def test_a_near_miss_keeps_the_gather_and_fuses(name: str):
    make, why = near_misses()[name]
    got = make()
    assert "read" not in operands(only(got))
    assert len(got.eqns("gather")) >= 1
    assert len(got.declined) == 1
    assert re.search(f"not paged: .*{why}", got.declined[0]), got.declined


def test_a_pool_written_over_before_it_is_read_is_gathered_first():
    def fn(q: Array, k: Array, v: Array, new: Array, read: Array, at: Array) -> object:
        old_k, old_v = view(k, read), view(v, read)
        k = ops.scatter_update(k, new, at)
        return attend(q, old_k, old_v), (k, v)

    specs = [poot.weight(Q.shape), poot.state(POOL_K.shape, "f32"), poot.state(POOL_V.shape, "f32")]
    write = poot.slot((B,), "i32", kind="write_map", range=(-1, S))
    got = rewritten(poot.trace(fn, (*specs, poot.weight((B, HKV, D), "f32"), slot(), write)))
    assert "read" not in operands(only(got))
    assert "a pool is written over" in got.declined[0]


def test_a_near_miss_of_the_pages_alone_keeps_the_length():
    def fn(q: Array, k: Array, v: Array, read: Array, n: Array) -> object:
        return ops.attention_live(q, view(k, read), view(v, read), n, scale=0.3)

    got = rewrite(fn, Q, POOL_K, POOL_V, read=slot(S + 1), n=LEN)
    assert operands(only(got))["len"] == f"i32[{B}]"
    assert "read" not in operands(only(got))


def test_a_near_miss_of_the_length_alone_keeps_the_pages():
    def fn(q: Array, k: Array, v: Array, read: Array, n: Array) -> object:
        seen = ops.iota((1, 1, 1, LK), 3) < (n - 1).reshape(-1, 1, 1, 1)
        k, v = (ops.repeat_kv(view(x, read), 3) for x in (k, v))
        return ops.softmax(ops.where(seen, q @ k.swapaxes(2, 3), -math.inf), 3) @ v

    got = operands(only(rewrite(fn, Q, POOL_K, POOL_V, n=LEN)))
    assert "len" not in got
    assert got | IN_PLACE == got


def test_a_table_of_other_things_is_no_pool():
    """Keys that stand in a table by head are gathered as they are."""
    order = np.asarray([1, 0], np.int32)

    def fn(q: Array, k: Array, v: Array, read: Array) -> Array:
        k, v = (ops.take(x, order, 1) for x in (k, v))
        return attend(q, k, v) + read.sum().astype("f32") * 0.0

    got = rewrite(fn, Q, normal(1, B, HKV, LK, D), normal(2, B, HKV, LK, 5))
    assert "read" not in operands(only(got))
    assert got.declined == ()
