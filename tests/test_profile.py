"""Times of launches."""

from __future__ import annotations

import json

from poot.profile import Profile

LAUNCHES = (("matmul", "gemm", 3.0), ("exp", "elementwise", 1.0), ("matmul", "gemm", 2.0))
PROFILE = Profile("main", LAUNCHES)


def test_times_add_up_and_print_the_longest_first():
    assert PROFILE.us == 6.0
    first, second = str(PROFILE).splitlines()
    assert first.split() == ["5.0", "us", "2", "x", "gemm", "(matmul)"]
    assert second.endswith("elementwise (exp)")


def test_the_trace_is_json_with_launches_one_after_another():
    events = json.loads(json.dumps(PROFILE.chrome_trace()))["traceEvents"]
    assert [e["ts"] for e in events] == [0.0, 3.0, 4.0]
    assert events[1]["name"] == "elementwise"
