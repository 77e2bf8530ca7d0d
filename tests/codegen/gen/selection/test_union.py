"""The union of the lists of a tile's rows: ids in order, and whose they are."""

import numpy as np
import pytest

from poot.codegen.gen.attention.parts import attention_eqn, parts_of
from poot.codegen.gen.selection.union import lower_union
from poot.codegen.kir.sim.run import simulate
from poot.codegen.kir.sim.values import NUMPY
from poot.ir.text import parse
from poot.planner.selected import union_room
from tests.support.launch import LAVAPIPE, device_buffers, request_of
from tests.support.selected import count_of, list_of
from tests.support.selected_forms import PREFILL, Form, form_text

WIDE = Form(1, 1, 1, 4, 12000, 8, 8, 4, 5, positions=(11000, 3, 8190, 11999))


def wanted(form: Form, feed: dict, b: int, h: int, first: int, rows: int) -> dict[int, int]:
    """block -> bits of the rows that visit it."""
    out: dict[int, int] = {}
    for i, r in enumerate(range(first, min(first + rows, form.rows))):
        position = int(feed["positions"][b, r])
        first_own = count_of(position, form.ratio, form.always)
        own = () if form.always == "none" else range(first_own, position // form.ratio + 1)
        for block in [*list_of(feed["ids"][b, h, r]), *own]:
            out[block] = out.get(block, 0) | 1 << i
    return dict(sorted(out.items()))


@pytest.mark.parametrize("form", [*PREFILL, WIDE], ids=str)
def test_the_union_holds_each_block_once_with_its_rows(form):
    text, feed = form_text(form)
    request = request_of(parse(text), "attention")
    rows = request.schedule.get("rows")
    assert rows > 1
    parts = parts_of(attention_eqn(request.body))
    call = lower_union(request, LAVAPIPE, parts)
    buffers = device_buffers(request, list(feed.values()))
    arrays = {
        p.name: buffers[arg].view(NUMPY[p.dtype])
        for p, arg in zip(call.kernel.params, call.args, strict=True)
    }
    simulate(call.kernel, arrays, call.grid, buffer_races=True)
    room = union_room(parts.eqn, rows)
    tiles = arrays["union"].view(np.int32).reshape(form.batch, form.lists, -1, 1 + 2 * room)
    for b, h, t in np.ndindex(*tiles.shape[:3]):
        count = tiles[b, h, t, 0]
        got = dict(zip(tiles[b, h, t, 1:][:count], tiles[b, h, t, 1 + room :][:count], strict=True))
        assert {int(k): int(v) for k, v in got.items()} == wanted(form, feed, b, h, t * rows, rows)
        assert list(got) == sorted(got)
