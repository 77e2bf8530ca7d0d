"""What a compile makes, whole."""

from __future__ import annotations

import poot
from tests.support.steps import append_graph


def test_every_stage_of_each_entry_point_is_there():
    program = poot.compile({"a": append_graph(1), "b": append_graph(2)}, "cpu-avx2")
    whole = program.whole()
    assert list(whole.entries) == ["a", "b"]
    for name, entry in whole.entries.items():
        assert entry.source is program.sources[name]
        assert entry.reports[-1].graph is entry.final
        assert entry.plan.name == name
    codes = {c.key for c in whole.codes}
    for request, low in whole.lowered.items():
        assert len(whole.call_keys[request]) == len(low.calls)
        assert codes.issuperset(whole.call_keys[request])
