"""The numbers of a tiled attention."""

from tests.support.tiled import prefill, shape_of


def test_consumers_and_a_producer_make_the_group():
    shape = shape_of(prefill(300, 700, 128))
    assert (shape.rows, shape.threads, shape.panels) == (128, 384, 2)
    assert shape.groups == shape.tiling.groups == 2 * 3


def test_a_wide_block_has_room_for_one_buffer_of_queries():
    assert shape_of(prefill(300, 700, 256)).buffers == 1
    assert shape_of(prefill(300, 700, 128)).buffers == 2
