"""The numbers of a form."""

from tests.support.subgroup_tiles import prefill, shape_of


def test_a_group_has_the_rows_of_its_subgroups():
    shape = shape_of(prefill(300, 100, 128))
    assert (shape.warps, shape.own_rows, shape.rows, shape.threads) == (4, 32, 128, 128)


def test_a_staged_row_is_longer_than_its_channels_so_that_rows_lie_in_different_banks():
    shape = shape_of(prefill(20, 100, 192, value_width=128, shared=64))
    assert (shape.key_pitch, shape.value_pitch, shape.own_width) == (200, 136, 128)
    for pitch in (shape.key_pitch, shape.value_pitch):
        banks = {row * pitch * 2 % 128 // 16 for row in range(8)}
        assert len(banks) == 8


def test_keys_without_a_bound_in_whole_tiles_need_no_look():
    assert shape_of(prefill(20, 128)).tiling.is_even
    assert not shape_of(prefill(20, 100)).tiling.is_even
