"""The numbers of a grouped decode."""

from poot.codegen.gen.attention.grouped.shape import Form
from tests.support.grouped import decode, request_for


def shape(form, compute_units: int = 4) -> Form:
    return Form.of(request_for(form, compute_units))


def test_a_row_of_keys_is_copied_sixteen_bytes_a_lane():
    wide, narrow = shape(decode(2, 8, 2, 64, 128)), shape(decode(2, 8, 2, 64, 128, "f32"))
    assert (wide.chunk, wide.chunks, wide.copies) == (8, 16, 8)
    assert (narrow.chunk, narrow.chunks, narrow.copies) == (4, 32, 8)


def test_lengths_are_fixed_of_one_row_or_of_many():
    kinds = [
        shape(f).lengths
        for f in (
            decode(2, 8, 2, 64, 128),
            decode(1, 8, 2, 64, 128, live=True),
            decode(2, 8, 2, 64, 128, live=True),
        )
    ]
    assert kinds == ["fixed", "one", "many"]


def test_units_that_divide_evenly_are_never_split():
    assert not shape(decode(4, 8, 2, 64, 64), 4).is_split
    assert shape(decode(4, 8, 2, 64, 64, live=True), 4).is_split


def test_starting_a_unit_costs_as_much_as_48_kib():
    assert shape(decode(2, 8, 2, 64, 128)).start_cost == 6


def test_words_between_groups_hold_every_groups_part():
    form = shape(decode(3, 8, 2, 64, 128, live=True), 5)
    assert form.pairs == 4 * 64
    assert form.word_count == request_for(decode(3, 8, 2, 64, 128, live=True), 5).scratch[0].elems


def test_causal_bounds_the_keys():
    assert shape(decode(2, 8, 2, 64, 128, causal=20)).most == 21
    assert shape(decode(2, 8, 2, 64, 128, causal=-9)).most == 0
