"""The elementwise generator: every op that can be asked for one element, State updates, grids."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poot.codegen.gen.grid import fold_grid
from poot.codegen.gen.lower import lower
from poot.errors import GridLimit
from poot.ir.build import Builder
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Graph, Slot, TensorType, Var
from poot.ir.text import parse
from poot.limits import PROFILES
from poot.planner.request import Schedule
from tests.support.graphs import draw_array
from tests.support.launch import BASELINE, LAVAPIPE, check_step, request_of

UNARY = ("neg", "exp", "log", "sqrt", "rsqrt", "recip", "sin", "cos", "tanh", "erf", "abs", "floor")
BINARY = ("add", "sub", "mul", "div", "max", "min", "rem")
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
FLOATS = ("f32", "f16", "bf16")
# A 16-bit result may round the other way where the oracle's f32 differs in its last place.
WITHIN = {"f32": 1e-6, "f16": 1e-3, "bf16": 8e-3}


def body_of(op: str, *types: TensorType, **attrs: object) -> Graph:
    b = Builder()
    ins = [b.input(t, f"x{n}", Slot()) for n, t in enumerate(types)]
    return b.graph(b.emit(op, *ins, **attrs))


@pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE], ids=["lavapipe", "baseline"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", UNARY)
def test_unary_ops_are_the_oracles_at_every_edge(op, dtype, limits):
    x = TensorType(dtype, (3, 67))
    check_step(body_of(op, x), "none", limits=limits, edges=True, within=WITHIN[dtype])


@pytest.mark.parametrize("dtype", [*FLOATS, "i32", "u32"])
@pytest.mark.parametrize("op", BINARY)
def test_binary_ops_are_the_oracles_at_every_edge(op, dtype):
    a, b = TensorType(dtype, (5, 1, 33)), TensorType(dtype, (7, 33))
    check_step(body_of(op, a, b), "none", edges=True, within=WITHIN.get(dtype, 0))


@pytest.mark.parametrize("dtype", [*FLOATS, "i32", "u32", "bool"])
@pytest.mark.parametrize("op", COMPARE)
def test_comparisons_are_false_with_nan_but_ne(op, dtype):
    t = TensorType(dtype, (4, 50))
    check_step(body_of(op, t, t), "none", edges=True, within=0)


@pytest.mark.parametrize(
    "op, dtype",
    [(o, d) for o in ("and", "or", "xor") for d in ("i32", "u32", "bool")]
    + [(o, d) for o in ("shl", "shr") for d in ("i32", "u32")],
)
def test_bits_and_shifts(op, dtype):
    t = TensorType(dtype, (40,))
    check_step(body_of(op, t, t), "none", edges=True, within=0)


@pytest.mark.parametrize(
    "target", ["f32", "f16", "bf16", "f8e4m3", "i32", "u32", "i8", "u8", "bool"]
)
@pytest.mark.parametrize(
    "source", ["f32", "f16", "bf16", "f8e4m3", "i32", "u32", "i8", "u8", "bool"]
)
def test_casts_round_saturate_and_wrap(source, target):
    check_step(
        body_of("cast", TensorType(source, (301,)), dtype=target), "none", edges=True, within=0
    )


@pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE, PROFILES["h200"]], ids=lambda p: p.name)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e4m3"])
def test_every_narrow_number_survives_f32_and_back(dtype, limits):
    count = 256 if dtype == "f8e4m3" else 65536
    bits = np.arange(count, dtype=np.uint8 if count == 256 else np.uint16)
    text = f"""in v0: {dtype}[{count}]
               v1: f32[{count}] = cast(v0) dtype=f32
               v2: {dtype}[{count}] = cast(v1) dtype={dtype}
               out v1, v2"""
    x = bits.view(DTYPES[dtype].numpy)
    check_step(text, "none", limits=limits, ins=[x], within=0)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f8e4m3"])
def test_casts_to_narrow_floats_round_to_even_everywhere(dtype):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 1 << 32, 20000, dtype=np.uint32).view(np.float32)
    ties = np.arange(0, 1 << 16, 7, dtype=np.uint32) << 16 | 0x8000
    x = np.concatenate([x, ties.view(np.float32), rng.normal(0, 300, 5000).astype(np.float32)])
    for limits in (LAVAPIPE, BASELINE):
        body = body_of("cast", TensorType("f32", x.shape), dtype=dtype)
        check_step(body, "none", limits=limits, ins=[x], within=0)


SHAPE_BODIES = {
    "reshape": """in v0: f32[4,6]
                  v1: f32[3,8] = reshape(v0) shape=(3, 8)
                  out v1""",
    "transpose": """in v0: f32[4,5,6]
                    v1: f32[6,4,5] = transpose(v0) perm=(2, 0, 1)
                    out v1""",
    "broadcast": """in v0: f32[4,1]
                    v1: f32[3,4,5] = broadcast(v0) shape=(3, 4, 5)
                    out v1""",
    "repeat_kv": """in v0: f32[2,3,5,7]
                    v1: f32[2,3,1,5,7] = reshape(v0) shape=(2, 3, 1, 5, 7)
                    v2: f32[2,3,2,5,7] = broadcast(v1) shape=(2, 3, 2, 5, 7)
                    v3: f32[2,6,5,7] = reshape(v2) shape=(2, 6, 5, 7)
                    out v3""",
    "slice": """in v0: f32[9,11]
                v1: f32[3,4] = slice(v0) start=(1, 2) step=(3, 2) stop=(9, 9)
                out v1""",
    "concat": """in v0: f32[2,3]
                 in v1: f32[2,1]
                 in v2: f32[2,4]
                 v3: f32[2,8] = concat(v0, v1, v2) axis=1
                 out v3""",
    "iota": """v0: i32[3,70] = iota() axis=1 dtype=i32 shape=(3, 70)
               v1: u32[3,70] = iota() axis=0 dtype=u32 shape=(3, 70)
               out v0, v1""",
    "const": """v0: f32[5] = const() dtype=f32 shape=(5,) value=-inf
                v1: f32[5] = const() dtype=f32 shape=(5,) value=nan
                v2: bool[5] = const() dtype=bool shape=(5,) value=True
                v3: bf16[5] = const() dtype=bf16 shape=(5,) value=0.1
                out v0, v1, v2, v3""",
    "select": """in v0: bool[4,1]
                 in v1: f32[4,6]
                 in v2: f32[6]
                 v3: f32[4,6] = select(v0, v1, v2)
                 out v3""",
    "guard": """in v0: i32[40]
                v1: i32[40], v2: bool[40] = index_guard(v0) hi=3 lo=-2
                out v1, v2""",
    "gather": """in v0: f32[3,5,4]
                 in v1: i32[2,6]
                 v2: f32[3,2,6,4] = gather(v0, v1) axis=1
                 out v2""",
    "dynamic_slice": """in v0: f32[3,9]
                        in v1: i32[3]
                        v2: f32[3,4] = dynamic_slice(v0, v1) axis=1 size=4
                        out v2""",
    "dynamic_update_slice": """in v0: f32[3,9]
                               in v1: f32[3,4]
                               in v2: i32[3]
                               v3: f32[3,9] = dynamic_update_slice(v0, v1, v2) axis=1
                               out v3""",
    "rope": """in v0: f32[2,3,5,10]
               in v1: f32[5,4]
               in v2: f32[5,4]
               v3: f32[2,3,5,10] = rope(v0, v1, v2) interleaved=False
               v4: f32[2,3,5,10] = rope(v0, v1, v2) interleaved=True
               out v3, v4""",
    "bitcast": """in v0: f32[33]
                  in v1: f16[33]
                  v2: i32[33] = bitcast(v0) dtype=i32
                  v3: bf16[33] = bitcast(v1) dtype=bf16
                  v4: bf16[33] = add(v3, v3)
                  out v2, v3, v4""",
    "attention_out": """in v0: f32[2,3,4,5]
                        v1: f32[2,4,3,5] = transpose(v0) perm=(0, 2, 1, 3)
                        v2: f32[8,15] = reshape(v1) shape=(8, 15)
                        out v2""",
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", SHAPE_BODIES)
def test_ops_that_move_elements(name, seed):
    check_step(SHAPE_BODIES[name], "none", seed=seed, edges=bool(seed))


def test_a_value_used_twice_in_each_of_40_eqns_is_made_once():
    b = Builder()
    v = b.input(TensorType("f32", (70,)), "x", Slot())
    for _ in range(40):
        v = b.one("add", v, v)
    half = b.one("const", shape=(), dtype="f32", value=2.0**-40)
    request = check_step(b.graph((b.one("mul", v, half),)), "none")
    assert len(request.body.eqns) == 42


def test_a_chain_of_3000_eqns_needs_no_recursion():
    b = Builder()
    v = b.input(TensorType("f32", (3,)), "x", Slot())
    for _ in range(3000):
        v = b.one("neg", v)
    check_step(b.graph((v,)), "none")


@pytest.mark.parametrize("per", [1, 4])
@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000])
def test_group_counts_cover_the_elements_and_no_more(count, per):
    schedule = Schedule("elementwise", (("per", per), ("threads", 64)))
    body = body_of("neg", TensorType("f32", (count,)))
    check_step(body, "none", schedule=schedule)


@pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE], ids=["lavapipe", "baseline"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i8", "u8", "bool"])
@pytest.mark.parametrize("count", [1, 2, 3, 33, 63, 130])
def test_odd_counts_of_every_dtype(count, dtype, limits):
    text = f"""in v0: {dtype}[{count}]
               v1: {dtype}[1,{count}] = reshape(v0) shape=(1, {count})
               v2: f32[{count}] = cast(v0) dtype=f32
               out v1, v2"""
    check_step(text, "none", limits=limits)


def slice_update(dtype: str, shape: str, part: str, start: str, axis: int) -> str:
    return f"""in v0: {dtype}[{shape}]
               in v1: {dtype}[{part}]
               in v2: i32[{start}]
               v3: {dtype}[{part}] = neg(v1)
               v4: {dtype}[{shape}] = dynamic_update_slice(v0, v3, v2) axis={axis}
               out v4"""


@pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE], ids=["lavapipe", "baseline"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(
    "shape, part, start, axis",
    [
        ("2,3,9,33", "2,3,1,33", "", 2),
        ("2,3,9,33", "2,3,4,33", "2", 2),
        ("2,5,63", "2,2,63", "2", 1),
        ("2,5,64", "2,2,64", "", 1),
        ("3,7", "3,7", "", 1),
        ("3,7", "3,2", "3", 1),
        ("7", "3", "", 0),
    ],
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_slice_updates_in_place_store_only_their_window(
    dtype, shape, part, start, axis, limits, seed
):
    text = slice_update(dtype, shape, part, start, axis)
    check_step(text, "none", ((0, 0),), limits=limits, seed=seed)


@pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE], ids=["lavapipe", "baseline"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("inner", ["3,33", "2,64", "1", ""])
@pytest.mark.parametrize(
    "rows", [[0, 1, 2, 3], [5, 6, -1, 4], [-1, 9, 2**31 - 1, -5], [8, 0, 7, 1], [3, 2, 1, 0]]
)
def test_scattered_rows_store_only_their_rows(rows, inner, dtype, limits):
    tail = f",{inner}" if inner else ""
    text = f"""in v0: {dtype}[9{tail}]
               in v1: {dtype}[4{tail}]
               in v2: i32[4]
               v3: {dtype}[9{tail}] = scatter_update(v0, v1, v2)
               out v3"""
    body = parse(text)
    rng = np.random.default_rng(0)
    ins = [draw_array(i.var.type, rng) for i in body.inputs[:2]] + [np.array(rows, np.int32)]
    check_step(body, "none", ((0, 0),), limits=limits, ins=ins)


@pytest.mark.parametrize("limits", [LAVAPIPE, BASELINE], ids=["lavapipe", "baseline"])
def test_bytes_update_in_place(limits):
    text = """in v0: u8[5,3]
              in v1: u8[2,3]
              in v2: i32[2]
              v3: u8[5,3] = scatter_update(v0, v1, v2)
              out v3"""
    rng = np.random.default_rng(0)
    ins = [rng.integers(0, 256, s).astype(np.uint8) for s in ((5, 3), (2, 3))]
    for rows in ([0, 1], [4, 3], [1, 3], [-1, 2]):
        check_step(text, "none", ((0, 0),), limits=limits, ins=[*ins, np.array(rows, np.int32)])


def test_updates_and_outputs_share_a_launch():
    text = """in v0: f32[2,9,4]
              in v1: f32[2,9,4]
              in v2: f32[2,1,4]
              in v3: i32[]
              v4: f32[2,1,4] = exp(v2)
              v5: f32[2,9,4] = dynamic_update_slice(v0, v4, v3) axis=1
              v6: f32[2,9,4] = dynamic_update_slice(v1, v2, v3) axis=1
              out v5, v6, v4"""
    check_step(text, "none", ((0, 0), (1, 1)))


def test_a_grid_past_the_first_axis_folds_and_leaves_whole_groups():
    body = body_of("neg", TensorType("f32", (65537 * 64 + 1,)))
    schedule = Schedule("elementwise", (("per", 1), ("threads", 64)))
    (call,) = lower(request_of(body, "none", schedule=schedule), BASELINE).calls
    assert call.grid == (32769, 2, 1)


def test_a_grid_that_folds_nowhere_is_refused():
    with pytest.raises(GridLimit, match="4295098369 workgroups"):
        fold_grid(65537 * 65537, BASELINE)


def random_chain(rng: Random) -> Graph:
    """Moves and sums at random, up to twelve of them, from two inputs."""
    b = Builder()
    values: list[Var] = [
        b.input(
            TensorType("f32", tuple(rng.choice((1, 2, 3, 4)) for _ in range(3))), f"x{n}", Slot()
        )
        for n in range(2)
    ]
    for _ in range(rng.randint(1, 12)):
        v = rng.choice(values)
        shape = v.type.shape
        kind = rng.choice(("transpose", "reshape", "broadcast", "slice", "add", "exp"))
        if kind == "transpose":
            out = b.one("transpose", v, perm=tuple(rng.sample(range(len(shape)), len(shape))))
        elif kind == "reshape":
            out = b.one("reshape", v, shape=random_factors(rng, v.type.elems))
        elif kind == "broadcast":
            out = b.one(
                "broadcast", v, shape=(rng.choice((1, 2)), *shape)[-4:] if len(shape) < 4 else shape
            )
        elif kind == "slice":
            start = tuple(rng.randrange(n) for n in shape)
            step = tuple(rng.choice((1, 2)) for _ in shape)
            out = b.one("slice", v, start=start, stop=shape, step=step)
        elif kind == "add":
            out = b.one("add", v, v)
        else:
            out = b.one("exp", b.one("tanh", v))
        values.append(out)
    return b.graph((values[-1],))


def random_factors(rng: Random, n: int) -> tuple[int, ...]:
    out: list[int] = []
    while n > 1 and len(out) < 3:
        f = rng.choice([d for d in range(1, n + 1) if n % d == 0])
        out.append(f)
        n //= f
    return (*out, n)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_random_chains_of_moves(seed):
    check_step(random_chain(Random(seed)), "none", within=2e-6)
