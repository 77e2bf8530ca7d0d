"""Costs and rooms of ops."""

from __future__ import annotations

import pytest

from poot.ir.ops import OPS
from poot.ir.text import parse
from poot.passes.regions.table import (
    ELEMENTWISE,
    FEW_ROWS,
    NO_ROOM,
    UPDATES,
    cost,
    is_mask,
    is_pullable,
    operand_rooms,
    reads_apart,
    rows_of,
)

# Ops that a kernel can't evaluate at a load: they anchor a launch, or are one.
ANCHORED = {
    "matmul", "reduce", "attention", "topk", "argmax", "scatter_update", "region", "block_topk",
    "selected_attention", "block_scores",
}  # fmt: skip


def eqn(line: str, *inputs: str):
    text = "".join(f"in v{n}: {t}\n" for n, t in enumerate(inputs))
    return parse(f"{text}{line}\nout v{len(inputs)}").eqns[0]


def test_every_op_is_pullable_or_named_as_not():
    single = {op for op in OPS if op in ELEMENTWISE}
    assert single < set(OPS)
    rows = {op for op in OPS if op not in ANCHORED}
    for op in rows:
        fake = parse("in v0: f32[2]\nv1: f32[2] = exp(v0)\nout v1").eqns[0]
        object.__setattr__(fake, "op", op)
        assert is_pullable(fake), op
        assert cost(fake) >= 0
    assert set(OPS) > UPDATES


def test_moves_are_free_and_functions_are_not():
    move = eqn("v1: f32[3,2] = transpose(v0) perm=(1, 0)", "f32[2,3]")
    slow = eqn("v1: f32[2,3] = tanh(v0)", "f32[2,3]")
    assert cost(move) == 0
    assert cost(slow) > 4


def test_a_rotation_reads_a_pair_and_an_add_its_own_index():
    turn = eqn("v3: f32[2,4] = rope(v0, v1, v2) interleaved=True", "f32[2,4]", "f32[2]", "f32[2]")
    add = eqn("v1: f32[2] = add(v0, v0)", "f32[2]")
    assert (reads_apart(turn), reads_apart(add)) == (2, 0)


@pytest.mark.parametrize("rows, wide", [(FEW_ROWS, True), (FEW_ROWS + 1, False)])
def test_a_matmul_of_few_rows_bears_more_before_its_left_operand(rows: int, wide: bool):
    e = eqn(f"v2: f32[{rows},5] = matmul(v0, v1)", f"f32[{rows},4]", "f32[4,5]")
    assert rows_of(e.out.type) == rows
    assert (operand_rooms(e)[0] > 8) is wide


def test_attention_bears_most_before_its_mask():
    e = eqn(
        "v4: f32[1,1,2,4] = attention(v0, v1, v2, v3) operands=(q, k, v, mask) scale=1.0",
        "f32[1,1,2,4]",
        "f32[1,1,3,4]",
        "f32[1,1,3,4]",
        "f32[1,1,2,3]",
    )
    rooms = operand_rooms(e)
    assert rooms[3] == max(rooms)
    assert [is_mask(e, n) for n in range(4)] == [False, False, False, True]


def test_what_is_written_over_has_to_lie_in_memory():
    e = eqn("v3: f32[4,2] = scatter_update(v0, v1, v2)", "f32[4,2]", "f32[1,2]", "i32[1]")
    assert operand_rooms(e)[0] == NO_ROOM
