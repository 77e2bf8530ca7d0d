"""The stages of a compile, in order."""

from __future__ import annotations

from poot.cache import DiskCache
from poot.limits import profile
from poot.lowering import request_key
from poot.making import Options, make_whole, silent
from poot.passes.pipeline import PIPELINE
from tests.support.steps import append_graph

OPTIONS = Options(PIPELINE, False, None)
LIMITS = profile("webgpu-baseline")


def test_progress_hears_of_passes_and_then_of_each_kernel():
    heard: list[tuple[str, int, int]] = []
    seconds: dict[str, float] = {}
    graphs = {"a": append_graph(1), "b": append_graph(2)}
    whole = make_whole(graphs, LIMITS, OPTIONS, None, lambda *said: heard.append(said), seconds)
    count = len(whole.lowered)
    assert heard[:2] == [("passes", 0, 2), ("passes", 1, 2)]
    assert heard[2:] == [("kernels", n, count) for n in range(count + 1)]
    assert list(seconds) == ["passes", "plan", "kernels"]


def test_each_request_is_kept_under_its_key_and_taken_from_there(tmp_path):
    disk = DiskCache(tmp_path)
    graphs = {"main": append_graph()}
    first = make_whole(graphs, LIMITS, OPTIONS, disk, silent, {})
    keys = [request_key(r, LIMITS) for r in first.lowered]
    assert len(set(keys)) == len(keys)
    assert all(disk.get(key) is not None for key in keys)
    again = make_whole(graphs, LIMITS, OPTIONS, disk, silent, {})
    assert [c.key for c in again.codes] == [c.key for c in first.codes]
    assert [c.binary for c in again.codes] == [c.binary for c in first.codes]
    assert request_key(next(iter(first.lowered)), profile("lavapipe")) not in keys
