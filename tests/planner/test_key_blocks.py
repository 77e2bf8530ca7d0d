"""What the CPU's attention schedule decides: rows of a group, blocks, splits, and what is left to
`streaming`."""

from __future__ import annotations

from dataclasses import replace

from poot.ir.text import parse
from poot.limits import DeviceLimits, profile
from poot.planner.key_blocks import MOST_ROWS, MOST_TOGETHER, choose_key_blocks
from poot.planner.request import Choice
from poot.planner.steps import canonical_body
from tests.support.attention_forms import Form, form_text
from tests.support.selected_forms import Form as Selected
from tests.support.selected_forms import form_text as selected_text

AVX2 = profile("cpu-avx2")


def chosen(form: Form, limits: DeviceLimits = AVX2) -> Choice | None:
    return choose_key_blocks(canonical_body(parse(form_text(form)[0])), limits)


def number(form: Form, name: str, limits: DeviceLimits = AVX2) -> int:
    choice = chosen(form, limits)
    assert choice is not None
    return choice.schedule.get(name)


def test_rows_of_the_heads_that_share_a_key_stand_together():
    assert number(Form(heads=6, kv_heads=2, rows=1), "rows") == 3
    rows = number(Form(heads=8, kv_heads=1, rows=64), "rows")
    assert MOST_ROWS[0] <= rows < MOST_ROWS[0] + 8


def test_tiles_of_rows_are_even():
    assert number(Form(heads=2, rows=80), "rows") == 40
    assert number(Form(heads=2, rows=1024), "rows") == MOST_ROWS[0]


def test_a_group_holds_whole_strips():
    for rows in (1, 5, 17, 40, 100):
        form = Form(rows=rows)
        assert number(form, "rows") % number(form, "strip") == 0


def test_a_decode_of_few_groups_is_split_where_each_split_has_blocks_enough():
    one = Form(batch=1, heads=2, kv_heads=1, rows=1, keys=4096)
    choice = chosen(one)
    assert choice is not None
    splits = choice.schedule.get("splits")
    assert splits > 1
    assert choice.scratch[0].elems == 2 * splits * (one.value_width + 2)
    assert number(replace(one, keys=64), "splits") == 1
    assert number(replace(one, batch=64), "splits") == 1
    assert number(one, "splits", replace(AVX2, cores=1)) == 1


def test_what_does_not_fit_the_workgroup_memory_is_left_to_others():
    assert chosen(Form(width=4096), replace(AVX2, workgroup_nbytes=65536)) is None
    assert chosen(Form(width=64)) is not None


def test_a_group_has_fewer_rows_where_their_arrays_do_not_fit():
    form = Form(rows=256, width=64, value_width=64)
    rows = [
        number(form, "rows", replace(AVX2, workgroup_nbytes=n << 10)) for n in (512, 48, 32, 20)
    ]
    assert rows == sorted(rows, reverse=True)
    assert rows[0] == MOST_ROWS[0]
    assert 0 < rows[-1] <= MOST_ROWS[-1]


def test_no_rows_are_left_to_others():
    assert chosen(Form(rows=0)) is None
    assert chosen(Form(batch=0)) is None


def test_few_rows_leave_the_keys_as_they_lie():
    assert number(Form(heads=6, kv_heads=2, rows=1), "few") == 1
    assert number(Form(heads=32, kv_heads=2, rows=1), "few") == 1
    assert number(Form(heads=34, kv_heads=2, rows=1), "few") == 0
    assert number(Form(heads=16, kv_heads=2, rows=1, width=576), "few") == 1
    assert number(Form(heads=32, kv_heads=2, rows=1, width=576), "few") == 0
    assert number(Form(rows=64), "few") == 0


def test_key_heads_of_a_pool_or_a_split_key_stand_together_where_threads_keep_their_groups():
    long = Form(batch=1, heads=16, kv_heads=4, rows=1, keys=4096, paged=True)
    assert (number(long, "heads"), number(long, "splits")) == (4, 4)
    assert number(replace(long, paged=False), "heads") == 1
    assert number(replace(long, paged=False, shared=8), "heads") == 4
    assert number(replace(long, keys=64), "heads") == 1
    assert number(replace(long, batch=4, keys=64), "heads") == 4
    assert number(replace(long, keys=64), "heads", replace(AVX2, cores=1)) == 4


def test_no_more_key_heads_stand_together_than_their_rows_may():
    form = Form(batch=1, heads=64, kv_heads=8, rows=1, keys=4096, paged=True)
    heads = number(form, "heads")
    assert 1 < heads < 8
    assert heads * number(form, "rows") <= MOST_TOGETHER
    assert number(replace(form, rows=16), "heads") == 1


def test_a_decode_over_selected_blocks_counts_its_slots_and_a_prefill_is_left_to_tiles():
    def of(form: Selected) -> Choice | None:
        return choose_key_blocks(canonical_body(parse(selected_text(form)[0])), AVX2)

    one = of(Selected(heads=8, kv_heads=2, keys=8192, listed=4))
    assert one is not None
    assert one.schedule.get("splits") == 1
    many = of(Selected(1, 8, 2, 1, 8192, listed=500, positions=(8000,)))
    assert many is not None
    assert many.schedule.get("splits") > 1
    assert of(Selected(rows=3)) is None
    assert of(Selected(lists=4)) is None
