"""Slots stand for the keys that a row visits, without gaps."""

import numpy as np
import pytest

from poot.codegen.gen.attention.parts import attention_eqn, parts_of
from poot.codegen.gen.index import ZERO
from poot.codegen.gen.job import open_job
from poot.codegen.gen.selection.visits import slots_of
from poot.codegen.kir.sim.run import simulate
from poot.codegen.kir.sim.values import NUMPY
from tests.support.launch import LAVAPIPE, device_buffers, request_of
from tests.support.selected import list_of, visited
from tests.support.selected_forms import Form, form_text


@pytest.mark.parametrize("ids", [[4, 0, 2], [1, -1, 3], [-1, 0, 1], [0, 1, 2]])
@pytest.mark.parametrize("always", ["tail", "own"])
@pytest.mark.parametrize("position, ratio", [(23, 4), (24, 4), (22, 4), (9, 1), (37, 4)])
def test_the_slots_of_a_row_are_its_keys(ids, always, position, ratio):
    form = Form(1, 1, 1, 1, 38, 4, 4, ratio, 3, always=always, positions=(position,))
    text, feed = form_text(form)
    feed["ids"][0, 0, 0] = ids
    request = request_of(text, "attention")
    job = open_job(request, LAVAPIPE, "slots", 8)
    job.bind_inputs()
    k = job.k
    k.param("y", "i32", 32, "w")
    slots = slots_of(job, parts_of(attention_eqn(request.body)), ZERO, ZERO, ZERO, 8)
    with k.if_(k.lane().eq(0)):
        k.store("y", 0, slots.count)
        with k.for_(0, slots.count, name="s") as s:
            k.store("y", s + 1, slots.key(s))
    kernel = k.kernel()
    buffers = device_buffers(request, list(feed.values()))
    arrays = {
        p.name: buffers[arg].view(NUMPY[p.dtype])
        for p, arg in zip(kernel.params, job.args, strict=False)
    }
    y = np.full(32, -9, np.int32)
    simulate(kernel, {**arrays, "y": y}, 1)
    want = visited(
        [b for b in list_of(np.array(ids)) if b * ratio <= position], position, ratio, always
    )
    got = sorted(int(x) for x in y[1 : 1 + y[0]] if x >= 0)
    assert sorted(set(got)) == want
