"""The best blocks of rows held in registers: order, ties, NaN, counts, every shape of a group."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.gen.lower import lower
from poot.codegen.ptx.emit import emit_ptx
from poot.limits import profile
from tests.support.launch import check_step, request_of
from tests.support.ptxas import assemble
from tests.support.selected_forms import best_inputs, best_text

H200 = profile("h200")


def check(shape, k, ratio, ins, always="tail", dtype="f32"):
    request = check_step(best_text(shape, k, ratio, always, dtype), "none", limits=H200, ins=ins)
    assert request.schedule.name == "held_topk"
    return request


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("always", ["tail", "own"])
@pytest.mark.parametrize("shape, k, ratio", [((2, 2, 3, 33), 5, 4), ((2, 1, 4, 70), 70, 1)])
def test_rows_with_ties_and_nan_are_the_oracles(shape, k, ratio, always, dtype):
    check(shape, k, ratio, best_inputs(shape, ratio, dtype, ties=True), always, dtype)


@pytest.mark.parametrize(
    "blocks, k", [(1, 1), (15, 3), (64, 64), (257, 100), (2049, 7), (4096, 512), (9001, 900)]
)
def test_rows_of_any_length(blocks, k):
    shape = (1, 1, 2, blocks)
    check(shape, k, 4, best_inputs(shape, 4))


@pytest.mark.parametrize("k", [1, 512, 1024, 2048])
@pytest.mark.parametrize("kind", ["plain", "ties", "ramp", "one lane"])
def test_32768_blocks(k, kind):
    shape = (1, 1, 1, 32768)
    scores, _ = best_inputs(shape, 4, ties=kind == "ties")
    if kind == "ramp":
        scores = np.arange(32768, dtype=np.float32).reshape(shape)
    if kind == "one lane":
        scores.reshape(8, 1024, 4)[:, :70] += 100
    check(shape, k, 4, [scores, np.array([[131070]], np.int32)])


def test_all_equal_scores_take_the_lowest_blocks():
    shape, at = (1, 1, 1, 3000), np.array([[11199]], np.int32)
    for value in (0.0, -0.0, np.nan, -np.inf, np.inf):
        check(shape, 700, 4, [np.full(shape, value, np.float32), at])


@pytest.mark.parametrize("position", [-(2**31), -1, 0, 2, 3, 2**31 - 1])
def test_positions_at_the_ends_count_no_block_too_many(position):
    shape = (1, 1, 1, 20)
    check(shape, 5, 4, [best_inputs(shape, 4)[0], np.array([[position]], np.int32)])


def test_scores_are_computed_at_the_load():
    body = """in v0: f32[1,1,2,40]
              in v1: i32[1,2]
              v2: f32[1,1,2,40] = neg(v0)
              v3: i32[1,1,2,4] = block_topk(v2, v1) k=4 ratio=4
              out v3"""
    ins = [best_inputs((1, 1, 2, 40), 4)[0], np.array([[99, 158]], np.int32)]
    assert check_step(body, "none", limits=H200, ins=ins).schedule.name == "held_topk"


def test_longer_rows_than_registers_hold_are_counted_in_memory():
    shape = (1, 1, 1, 40000)
    request = request_of(best_text(shape, 8, 4), "none", limits=H200)
    assert request.schedule.name == "block_topk"


@pytest.mark.parametrize("blocks, k", [(32768, 512), (32768, 2048), (2049, 100), (1024, 64)])
def test_no_word_is_spilled(blocks, k):
    (call,) = lower(request_of(best_text((1, 1, 1, blocks), k, 4), "none", limits=H200), H200).calls
    report = assemble(emit_ptx(call.kernel, H200)[1], "sm_90a")
    assert (report.spills, report.stack_nbytes) == (0, 0)
