"""What the schedules of selected attention decide: tiles, rows, splits, and what they refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poot.errors import AttentionLds
from poot.ir.text import parse
from poot.limits import DeviceLimits, profile
from poot.planner.request import Choice
from poot.planner.schedules import choose
from poot.planner.selected import shape_of, tile_nbytes, union_room
from poot.planner.steps import canonical_body
from tests.support.selected_forms import Form, best_text, form_text

LAVAPIPE, H200 = profile("lavapipe"), profile("h200")


def chosen(form: Form, limits: DeviceLimits = LAVAPIPE) -> Choice:
    return choose(canonical_body(parse(form_text(form)[0])), "attention", (), limits)


def number(form: Form, name: str, limits: DeviceLimits = LAVAPIPE) -> int:
    return chosen(form, limits).schedule.get(name)


def test_query_heads_that_share_a_list_stand_in_one_tile():
    assert number(Form(heads=12, kv_heads=2), "heads") == 6
    assert number(Form(heads=12, kv_heads=2, lists=2), "heads") == 6
    assert number(Form(heads=12, kv_heads=2, lists=12), "heads") == 1


def test_a_decode_has_a_row_a_tile_and_a_prefill_several():
    assert number(Form(rows=1), "rows") == 1
    assert number(Form(rows=64, heads=2, kv_heads=2), "rows") == 16
    assert chosen(Form(rows=64, heads=2, kv_heads=2)).scratch[0].dtype == "i32"


def test_splits_are_of_decodes_of_few_tiles():
    long = Form(1, 2, 2, 1, 9000, 4, 4, 4, 512, positions=(8999,))
    assert number(long, "splits", H200) > 1
    assert number(long, "splits", replace(H200, compute_units=1)) == 1
    assert number(Form(), "splits", H200) == 1


def test_a_device_that_cuts_loops_short_has_more_splits():
    long = Form(2, 2, 2, 1, 33000, 4, 4, 16, 2000, positions=(32999,) * 2)
    assert number(long, "splits", replace(LAVAPIPE, loop_trips=0)) == 1
    assert number(long, "splits") > 1


def test_a_tile_fits_the_workgroup_memory_or_heads_go_first():
    form = Form(heads=16, kv_heads=1, width=256, value_width=256)
    for nbytes in (232448, 65536, 32768, 16384):
        limits = replace(LAVAPIPE, workgroup_nbytes=nbytes)
        got = chosen(form, limits).schedule
        assert got.get("heads") * got.get("rows") <= 32
    with pytest.raises(AttentionLds, match="for one row"):
        chosen(form, replace(LAVAPIPE, workgroup_nbytes=2048))


def test_the_union_has_room_for_every_block_of_its_rows():
    (eqn,) = parse(form_text(Form(keys=400, listed=3))[0]).eqns
    assert union_room(eqn, 4) == 16
    assert union_room(eqn, 64) == 100


def test_a_tiles_bytes_grow_with_its_rows():
    s = shape_of(parse(form_text(Form(rows=4))[0]).eqns[0])
    assert tile_nbytes(s, 64, 2, 2, 16) > tile_nbytes(s, 64, 2, 1, 16)


def best(blocks: int, limits: DeviceLimits) -> Choice:
    return choose(canonical_body(parse(best_text((1, 1, 1, blocks), 1, 4))), "none", (), limits)


def test_a_row_of_blocks_is_staged_where_it_fits():
    assert best(40000, H200).schedule.get("stage") == 1
    assert best(40000, H200).schedule.get("lanes") == 1024
    assert best(32768, LAVAPIPE).schedule.get("stage") == 0
    assert best(9, LAVAPIPE).schedule.get("lanes") == 16


def test_on_cuda_a_row_that_registers_hold_is_held_there():
    assert best(32768, H200).schedule.name == "held_topk"
    assert best(32768, H200).schedule.get("parts") == 1
    assert best(100, H200).schedule.get("lanes") == 128
    assert best(32772, H200).schedule.name == "block_topk"


def scored(batch: int, blocks: int, width: int) -> Choice:
    text = f"""in v0: bf16[{batch},4,1,{width}]
               in v1: bf16[{batch},{blocks},{width}]
               v2: f32[{batch},1,1,{blocks}] = block_scores(v0, v1) scale=1.0
               out v2"""
    return choose(canonical_body(parse(text)), "none", (), H200)


def test_few_blocks_are_shared_by_as_many_subgroups_as_there_are():
    assert scored(1, 32768, 128).schedule.get("turns") == 1
    assert scored(8, 32768, 128).schedule.get("turns") == 2
    assert scored(8, 32768, 64).schedule.get("turns") == 4
    assert scored(32, 32768, 128).schedule.get("groups") == 2 * H200.compute_units
