"""Launch lists out of a manifest."""

from __future__ import annotations

import pytest

from poot.errors import FormatError
from tests.support.bundles import changed, program, read, whole

pytestmark = pytest.mark.quick


def test_lists_come_back_as_they_were():
    got, want = read(whole()).lists, program().lists()
    for name, made in want.lists.items():
        back = got.lists[name]
        assert back.launches == made.launches
        assert (back.steps, back.late, back.fed) == (made.steps, made.late, made.fed)
        assert [(t, p.offset) for t, p in back.outputs] == [(t, p.offset) for t, p in made.outputs]
        assert back.feed is not None
        assert made.feed is not None
        assert back.feed.launches == made.feed.launches


def refused(change, why):
    with pytest.raises(FormatError, match=why):
        read(changed(change))


def first(m):
    return m["entries"][0]["launches"][0]


def ref(m):
    return first(m)["buffers"][0]


@pytest.mark.parametrize(
    "change, why",
    [
        (lambda m: first(m).update(kernel=999), "kernel needs an integer from 0"),
        (lambda m: first(m).update(grid=[1, 1]), "three counts"),
        (lambda m: first(m).update(grid=[1, 1, 1 << 40]), "grid needs an integer"),
        (lambda m: first(m)["buffers"].pop(), "buffers: got"),
        (lambda m: first(m).update(imms=[1, 2, 3]), "immediates: got 3"),
        (lambda m: ref(m).update(offset=1 << 40), "which has"),
        (lambda m: ref(m).update(nbytes=1 << 40), "which has"),
        (lambda m: ref(m).update(offset=4, nbytes=4), "no multiple of 64"),
        (lambda m: ref(m).update(buffer="nowhere"), "no buffer"),
        (lambda m: ref(m).update(nbytes=0), "nbytes needs an integer from 1"),
        (lambda m: first(m).update(maps=[{}]), "needs buffer"),
        (lambda m: first(m).update(attributes={"overlap": 1}), "cluster"),
        (lambda m: m["entries"][0].update(late=[]), "late says of 0 records"),
        (lambda m: m["entries"][0].update(results_nbytes=0), "records_nbytes"),
        (lambda m: m["entries"][0].update(records_nbytes=8), "outside records_nbytes"),
        (lambda m: m["entries"][0].update(fed=[]), "a record for each slot"),
        (lambda m: m["entries"][0].update(feed=None), "fed needs a feed"),
        (lambda m: m["entries"][0]["outputs"][0].update(shape=[1 << 30]), "an output"),
        (lambda m: m["entries"][0]["outputs"][0].update(buffer="states"), "results"),
        (lambda m: m["entries"][0].update(name=""), "printable"),
        (lambda m: m["entries"].append(m["entries"][0]), "stands twice"),
        (lambda m: m.update(entries=[]), "needs an entry point"),
    ],
)
def test_a_reference_that_leaves_what_it_names_is_refused(change, why):
    refused(change, why)


def test_a_buffer_smaller_than_its_kernel_touches_is_refused():
    def shrink(m):
        for launch in m["entries"][0]["launches"]:
            for row in launch["buffers"]:
                if row["nbytes"] > 256:
                    row["nbytes"] = 64
                    return

    refused(shrink, "touches")


def test_a_launch_that_writes_to_weights_is_refused():
    def aim(m):
        kernels = m["kernels"]
        for launch in m["entries"][0]["launches"]:
            for n, p in enumerate(kernels[launch["kernel"]]["params"]):
                if p["access"] != "r":
                    p["elems"] = 1
                    launch["buffers"][n] = {"buffer": "weights", "offset": 0, "nbytes": 64}
                    return

    refused(aim, "writes to weights")
