"""The order in which columns are dealt: each once, pairs together."""

from __future__ import annotations

import pytest

from poot.codegen.gen.index import Index
from poot.codegen.gen.job import Job, open_job
from poot.codegen.gen.matmul.parts import products_of
from poot.codegen.gen.matmul.stream.order import Order, half_of
from poot.codegen.kir.build import I32
from poot.errors import CapabilityError
from tests.support.launch import LAVAPIPE, request_of
from tests.support.products import matmul_text
from tests.support.streams import CARD, turned_text


def job() -> Job:
    return open_job(request_of(matmul_text(1, 8, 8, True), "matmul"), LAVAPIPE, "order", 1)


def number(value: object) -> int:
    literal = getattr(value, "literal", None)
    assert isinstance(literal, int), value
    return literal


def dealt(order: Order) -> list[list[int]]:
    """Each group's columns."""
    made = job()
    out: list[list[int]] = []
    for group in range(order.count):
        first, end = order.share(made, Index((), group))
        places = range(number(first), number(end))
        out.append([number(order.column(made, made.k.lit(p, I32))) for p in places])
    return out


@pytest.mark.parametrize("cols, count, half", [(37, 5, 0), (96, 5, 8), (96, 48, 8), (64, 3, 1)])
def test_every_column_is_one_groups_and_shares_are_even(cols, count, half):
    order = Order(cols, count, half)
    shares = dealt(order)
    assert sorted(c for share in shares for c in share) == list(range(cols))
    sizes = {len(share) for share in shares}
    assert max(sizes) - min(sizes) <= order.unit
    assert max(sizes) == order.most


def test_both_of_a_pair_are_one_groups():
    for share in dealt(Order(96, 5, 8)):
        for column in share:
            inner = column % 16
            assert column - inner + (inner + 8) % 16 in share


@pytest.mark.parametrize("half", [0, 1, 8])
def test_a_columns_place_is_where_it_was_dealt(half):
    made, order = job(), Order(96, 5, half)
    for place in range(96):
        column = order.column(made, made.k.lit(place, I32))
        assert number(order.place(made, column)) == place


def test_a_segments_pairs_are_its_rotations():
    for interleaved, half in ((True, 1), (False, 8)):
        request = request_of(turned_text(1, interleaved), "matmul", ((1, 5),), CARD)
        for segment in products_of(request).segments:
            assert half_of(request.body, segment) == half


def test_pairs_of_two_kinds_are_refused():
    text = """in v0: f32[1,64]
              in v1: f32[64,64]
              in v2: f32[1,8]
              v3: f32[64,64] = transpose(v1) perm=(1, 0)
              v4: f32[1,64] = matmul(v0, v3)
              v5: f32[1,1,4,16] = reshape(v4) shape=(1, 1, 4, 16)
              v6: f32[1,1,4,16] = rope(v5, v2, v2) interleaved=True
              v7: f32[1,1,4,16] = rope(v6, v2, v2) interleaved=False
              out v7"""
    request = request_of(text, "matmul", (), CARD)
    (segment,) = products_of(request).segments
    with pytest.raises(CapabilityError, match="two kinds"):
        half_of(request.body, segment)
