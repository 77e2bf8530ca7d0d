"""Buffers, residents and inputs out of a manifest."""

from __future__ import annotations

import pytest

from poot.errors import FormatError
from tests.support.bundles import changed, program, read, whole

pytestmark = pytest.mark.quick


def test_residents_and_buffers_come_back_as_they_were():
    got, want = read(whole()).lists, program().lists()
    assert got.residents == want.residents
    assert got.spaces == want.spaces


def resident(m, name):
    return next(r for r in m["residents"] if r["name"].split("@")[0] == name)


@pytest.mark.parametrize(
    "change, why",
    [
        (lambda m: m["buffers"][0].update(nbytes=1 << 50), "nbytes needs an integer"),
        (lambda m: m["buffers"][0].update(nbytes=64), "buffers take"),
        (lambda m: m["buffers"][0].update(name="../x"), "no name of a buffer"),
        (lambda m: m["buffers"].append(m["buffers"][0]), "stands twice"),
        (lambda m: resident(m, "states.0").update(shape=[1 << 40, 1 << 40]), "too large|takes"),
        (lambda m: resident(m, "states.0").update(shape=[1]), "takes 4 bytes"),
        (lambda m: resident(m, "states.0").update(dtype="f64"), "dtype needs one of"),
        (lambda m: resident(m, "states.0").update(buffer="arena"), "lies in no arena|inside it"),
        (lambda m: resident(m, "states.1").update(offset=0), "over each other"),
        (lambda m: resident(m, "states.0").update(offset=1), "whole words"),
        (lambda m: resident(m, "states.0").update(name="other"), "needs a resident of its type"),
        (lambda m: resident(m, "w.b").update(name="w.z"), "needs a resident of its type"),
        (lambda m: resident(m, "main:x").update(name="x"), "needs a resident of its type"),
        (lambda m: resident(m, "main:$ok").update(dtype="f32"), "the word of"),
        (lambda m: m["residents"].append(m["residents"][0]), "stands twice"),
        (lambda m: resident(m, "states.0").update(layout={"kind": "panels", "params": [0, 8]}),
         "no layouts"),
        (lambda m: resident(m, "w.a").update(layout={"kind": "panels", "params": [5, 8]}),
         "no axis"),
        (lambda m: resident(m, "w.a").update(layout={"kind": "panels", "params": [0, 1 << 40]}),
         "a panel is"),
        (lambda m: resident(m, "w.a").update(layout={"kind": "panels", "params": [0]}),
         "an axis and a width"),
        (lambda m: resident(m, "w.c").update(layout={"kind": "row_major", "params": [1]}),
         "no numbers"),
        (lambda m: m["entries"][0].update(fed=["x", "read"]), "no slot with a range"),
    ],
)  # fmt: skip
def test_what_does_not_lie_where_it_says_is_refused(change, why):
    with pytest.raises(FormatError, match=why):
        read(changed(change))
