"""Ops that move, make or address elements."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poot.ir.build import Builder
from poot.ir.graph import Graph, Slot, TensorType, Var
from tests.support.launch import check_step

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
