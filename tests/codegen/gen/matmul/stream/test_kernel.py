"""The schedule that streams: shapes, dtypes, codes, rotations, and the order of its first loads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot import ops
from poot.codegen.gen.lower import lower
from poot.codegen.gen.matmul.parts import Segment
from poot.codegen.gen.matmul.stream.kernel import columns_at_once
from poot.codegen.kir.nodes import For, If, Ins, Stmt
from poot.ir.graph import Graph
from poot.planner.request import Request, Schedule
from poot.trace import slot, trace, weight
from tests.support.launch import check_step, request_of
from tests.support.products import BODIES, matmul_text
from tests.support.streams import CARD, card, norm_text, turned_text

WITHIN = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}


def check(text: str | Graph, within: float, updates: tuple[tuple[int, int], ...] = (),
          units: int = 3, ins: list[np.ndarray] | None = None) -> Request:  # fmt: skip
    request = check_step(
        text, "matmul", updates, limits=card(units), within=within, bound=(1, 2), ins=ins
    )
    assert request.schedule.name == "stream"
    return request


@pytest.mark.parametrize(
    "rows, depth, cols, dtype",
    [
        (1, 512, 7, "f32"), (2, 1032, 5, "bf16"), (1, 4096, 20, "bf16"), (3, 72, 33, "bf16"),
        (4, 144, 50, "f16"), (1, 576, 40, "f32"), (1, 8, 1, "bf16"), (4, 2816, 9, "bf16"),
        (8, 520, 21, "bf16"), (6, 64, 50, "f32"),
    ],
)  # fmt: skip
def test_rows_and_depths_that_fill_their_pieces_or_not(rows, depth, cols, dtype):
    check(matmul_text(rows, depth, cols, True, dtype), WITHIN[dtype])


@pytest.mark.parametrize("units", [1, 4, 64])
def test_columns_are_dealt_to_any_number_of_groups(units):
    check(matmul_text(1, 64, 37, True, "bf16"), WITHIN["bf16"], units=units)


@pytest.mark.parametrize(
    "rows, depth, cols, dtype",
    [(1, 72, 130, "bf16"), (1, 512, 67, "bf16"), (2, 512, 70, "bf16"), (4, 4096, 35, "bf16"),
     (3, 264, 99, "f32")],
)  # fmt: skip
def test_a_subgroup_takes_several_columns_at_once(rows, depth, cols, dtype):
    text = matmul_text(rows, depth, cols, True, dtype)
    limits = card(1)
    request = request_of(text, "matmul", (), limits, bound=(1,))
    params = dict(request.schedule.params) | {"warps": 4}
    schedule = Schedule("stream", tuple(sorted(params.items())))
    check_step(text, "matmul", limits=limits, schedule=schedule, within=WITHIN[dtype], bound=(1,))


def test_turned_pairs_and_codes_of_several_columns_at_once():
    check(turned_text(2, False), 2e-5, ((1, 5),), units=2)
    check(turned_text(7, True), 2e-5, ((1, 5),), units=2)
    check(quantised("q8_0", 70), 1e-4, units=1)


@pytest.mark.parametrize("name", ["residual", "swiglu", "qkv_with_rope_and_cache", "q4_1"])
def test_every_form_of_few_rows(name):
    text, updates = BODIES[name]
    check(text, 5e-5, updates)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("interleaved", [False, True])
def test_pairs_are_turned_at_the_end(rows, interleaved):
    check(turned_text(rows, interleaved), 2e-5, ((1, 5),), units=5)


@pytest.mark.parametrize("rows, depth", [(1, 64), (2, 72), (4, 4096)])
def test_folds_follow_folds(rows, depth):
    check(norm_text(rows, depth, 10), 1e-4)


def quantised(kind: str, cols: int = 9) -> Graph:
    def product(x, codes, scales):
        decode = ops.dequant_q8_0 if kind == "q8_0" else ops.dequant_int8
        return ops.linear(x, decode(codes, scales))

    groups = 4 if kind == "q8_0" else 1
    specs = (slot((2, 128), "f32"), weight((cols, 32), "u32"), weight((cols, groups), "f32"))
    return trace(product, specs)


@pytest.mark.parametrize("kind", ["q8_0", "int8"])
def test_codes_with_a_scale_a_run_or_a_row(kind):
    check(quantised(kind), 1e-4)


def test_a_nan_in_one_row_stays_in_it():
    x, w = np.ones((3, 64), np.float32), np.ones((20, 64), np.float32)
    x[2, 7] = np.nan
    check(matmul_text(3, 64, 20, True), 1e-6, ins=[x, w])


def test_an_infinity_at_the_end_of_a_row_that_fills_no_piece_stays_one():
    x, w = np.ones((1, 72), np.float32), np.ones((9, 72), np.float32)
    w[3, 71] = np.inf
    check(matmul_text(1, 72, 9, True), 1e-6, ins=[x, w])


def order(body: tuple[Stmt, ...]) -> list[str]:
    """Loads of the weight and waits as they stand, control looked through."""
    out: list[str] = []
    for stmt in body:
        if isinstance(stmt, Ins):
            if stmt.op in ("grid_wait", "grid_trigger"):
                out.append(stmt.op)
            if stmt.op == "load" and stmt.attr("cache") in ("early", "stream"):
                out.append(str(stmt.attr("cache")))
        elif isinstance(stmt, If):
            out += order(stmt.then)
        elif isinstance(stmt, For):
            out += order(stmt.body)
    return list(dict.fromkeys(out))


def test_weights_are_asked_for_before_the_launch_before_is_done():
    request = request_of(matmul_text(1, 64, 20, True), "matmul", (), CARD, bound=(1,))
    (call,) = lower(request, CARD).calls
    assert order(call.kernel.body) == ["grid_trigger", "early", "grid_wait", "stream"]
    assert call.attributes.overlap


def test_what_may_be_computed_by_the_launch_before_is_read_after_it():
    request = request_of(matmul_text(1, 64, 20, True), "matmul", (), CARD)
    (call,) = lower(request, CARD).calls
    assert order(call.kernel.body) == ["grid_trigger", "grid_wait", "stream"]


@pytest.mark.parametrize("numbers", [{"warps": 4, "depth": 3}, {"warps": 1, "depth": 1}])
def test_other_numbers_of_the_schedule(numbers):
    text = matmul_text(2, 520, 11, True, "bf16")
    request = request_of(text, "matmul", (), CARD, bound=(1,))
    params = dict(request.schedule.params) | numbers
    schedule = Schedule("stream", tuple(sorted(params.items())))
    check_step(text, "matmul", limits=CARD, schedule=schedule, within=3e-2, bound=(1,))
    assert replace(request, schedule=schedule) != request


@pytest.mark.parametrize(
    "rows, products, columns, loads, beside",
    [
        (1, 1, 24, 3, 4), (1, 1, 24, 8, 2), (1, 1, 24, 16, 1), (1, 1, 1, 3, 1), (1, 1, 2, 3, 2),
        (2, 1, 24, 16, 2), (2, 2, 24, 16, 1), (4, 1, 24, 4, 4), (2, 1, 1, 16, 1),
    ],
)  # fmt: skip
def test_columns_at_once_fill_the_loads_or_share_the_rows(rows, products, columns, loads, beside):
    text = matmul_text(rows, 64, 64, True)
    (eqn,) = (e for e in request_of(text, "matmul", (), CARD).body.eqns if e.op == "matmul")
    assert columns_at_once(Segment((eqn,) * products, (0,)), columns, 16, loads) == beside
