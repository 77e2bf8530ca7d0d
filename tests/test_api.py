"""From graphs to a program, and from a program to sessions."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot.api import resolve_target
from poot.errors import BackendUnavailable, BindError, MemoryBudget, PlanError
from poot.limits import profile
from tests.support.steps import WEIGHTS, X, append_graph


def test_a_target_is_a_profile_limits_or_a_device():
    assert resolve_target("h200").device is None
    assert resolve_target(profile("rdna3")).name == "rdna3"
    assert resolve_target("oracle").limits.target == "oracle"
    with pytest.raises(BackendUnavailable, match="no device 'nowhere'"):
        resolve_target("nowhere")


def test_a_bare_graph_is_the_entry_point_main():
    program = poot.compile(append_graph(), "oracle")
    assert list(program.entries) == ["main"]
    session = program.bind(WEIGHTS)
    out = session.step(x=X, pos=0, at=1)
    assert isinstance(out, dict)
    assert out["next"] == 1


def test_what_was_bound_was_copied():
    weight = np.eye(4, dtype=np.float32)
    session = poot.compile(append_graph(), "oracle").bind({"w": weight})
    first = session.step(x=X, pos=0, at=1)
    weight[:] = 0
    session.reset()
    again = session.step(x=X, pos=0, at=1)
    assert isinstance(first, dict)
    assert isinstance(again, dict)
    np.testing.assert_array_equal(first["sum"], again["sum"])


def test_entry_points_and_their_feeds_are_all_compiled():
    program = poot.compile({"a": append_graph(1), "b": append_graph(2)}, "webgpu-baseline")
    feeds = [e.feed for e in program.plan.entries]
    assert all(feed is not None and feed.steps for feed in feeds)
    wanted = {s.request for e in program.plan.lists for s in e.steps}
    assert set(program.lowered) == wanted


def test_a_guard_is_a_record_whatever_the_passes_are():
    for passes in ((), poot.api.PIPELINE):
        program = poot.compile(append_graph(), "webgpu-baseline", passes=passes)
        assert len(program.plan.entries[0].records) == 1


def test_too_small_a_budget_is_refused_at_compile():
    with pytest.raises(MemoryBudget, match="may take 100"):
        poot.compile(append_graph(), "webgpu-baseline", memory_budget=100)


def test_entry_points_that_disagree_are_refused():
    other = poot.trace(lambda w: w + 1.0, (poot.weight((2, 2)),))
    with pytest.raises(PlanError, match="disagree on w"):
        poot.compile({"a": append_graph(), "b": other}, "webgpu-baseline")


def test_progress_and_seconds_tell_of_each_stage():
    seen: list[str] = []
    program = poot.compile(
        append_graph(), "webgpu-baseline", progress=lambda stage, done, total: seen.append(stage)
    )
    assert set(seen) == {"passes", "kernels"}
    assert set(program.seconds) == {"passes", "plan", "kernels"}


@pytest.mark.parametrize("graphs", [None, 5, lambda: 1, {}, {"main": 3}])
def test_what_is_no_graph_is_refused_with_the_remedy(graphs):
    with pytest.raises(BindError, match=r"by poot\.trace"):
        poot.compile(graphs, "oracle")


def test_a_target_that_is_none_of_its_kinds_is_refused():
    with pytest.raises(BackendUnavailable, match="got 5"):
        poot.compile(append_graph(), 5)
