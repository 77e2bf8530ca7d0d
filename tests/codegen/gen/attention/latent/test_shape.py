"""A latent decode's units, its rows, and which keys a group takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.codegen.gen.attention.latent.shape import THREADS, Form, part_of
from poot.codegen.gen.job import open_job
from poot.codegen.kir.sim import simulate
from tests.support import latent
from tests.support.latent import H200, request_for

WIDE = latent.Form(heads=130, keys=1000, width=576, value_width=512)


def test_heads_are_cut_into_sets_of_64():
    form = Form.of(request_for(WIDE))
    assert form.sets == 3
    assert form.groups == 3 * form.splits


def test_a_split_keys_panels_come_from_two_places():
    form = Form.of(request_for(replace(WIDE, kind="split")))
    assert (form.panels, form.own_panels) == (9, 8)
    assert form.shared is not None
    whole = Form.of(request_for(WIDE))
    assert (whole.panels, whole.own_panels, whole.shared) == (9, 9, None)


@pytest.mark.parametrize("length, attrs", [(1000, ""), (1, ""), (130, ""), (0, ""),
                                           (1000, "causal=899 window=333")])  # fmt: skip
def test_parts_cover_the_live_keys_once_in_whole_tiles(length, attrs):
    given = latent.Form(keys=1000, lengths=(length,), attrs=attrs)
    request = request_for(given, replace(H200, compute_units=5))
    form = Form.of(request)
    job = open_job(request, H200, "part", THREADS)
    job.bind_inputs()
    k = job.k
    k.param("found", "i32", 2 * form.groups, "w")
    part = part_of(job, form)
    with k.if_(k.lane().eq(0)):
        k.store("found", k.group_id(0) * 2, part.first)
        k.store("found", k.group_id(0) * 2 + 1, part.end)
    _, feed = latent.latent_text(given)
    arrays = {f"in{n}": x for n, x in enumerate(feed)}
    arrays = {p.name: arrays[p.name].reshape(-1) for p in k.kernel().params if p.name in arrays}
    arrays["found"] = np.zeros(2 * form.groups, np.int32)
    simulate(k.kernel(), arrays, (form.groups, 1, 1))
    seen: list[int] = []
    for first, end in arrays["found"].reshape(-1, 2):
        own = list(range(first, end))
        begins_at = 567 if attrs else 0
        assert not own or (first - begins_at) % 64 == 0
        seen += own
    assert seen == list(range(567, 900) if attrs else range(length))
