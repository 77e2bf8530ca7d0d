"""Layouts: what they say, and what they refuse."""

from __future__ import annotations

import pytest

from poot.errors import RequestError
from poot.llm.layout import Layout, decode_entry, prefill_entry


def test_a_layout_counts_slots_and_positions():
    layout = Layout(blocks=10, capacity=100, decode_rows=(1, 4, 8), prefill=((1, 16), (4, 32)))
    assert (layout.slots, layout.positions) == (160, 131)
    assert [layout.decode_bucket(n) for n in (1, 2, 4, 5, 8)] == [1, 4, 4, 8, 8]


def test_entry_points_are_named_by_their_rows():
    assert [decode_entry(4), decode_entry(4, sampled=True)] == ["decode_4", "sample_4"]
    assert prefill_entry(2, 64) == "prefill_2x64"


@pytest.mark.parametrize(
    "options, words",
    [
        ({"blocks": 1}, "2 blocks or more"),
        ({"capacity": 0}, "a capacity of 1 or more"),
        ({"kv": "int2"}, "a KV cache of f32, f16, bf16, int8, fp8: kv=int2"),
        ({"decode_rows": ()}, "rising decode rows"),
        ({"decode_rows": (4, 1)}, "rising decode rows"),
        ({"decode_rows": (0, 1)}, "rising decode rows"),
        ({"prefill": ()}, "prefill buckets"),
        ({"prefill": ((2, 16),)}, "one of them of 1 row"),
        ({"prefill": ((1, 1),)}, "tokens >= 2"),
        ({"adapters": -1}, "adapters from 0"),
        ({"rank": 0}, "a rank from 1 up"),
    ],
)
def test_a_layout_of_no_program_is_refused(options: dict[str, object], words: str):
    with pytest.raises(RequestError, match=words):
        Layout(**{"blocks": 9, "capacity": 64} | options)  # pyright: ignore[reportArgumentType] - by name
