"""The collector stands still within a pause, and afterwards is as it was found."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from poot import api
from poot.collector import collector_paused
from poot.ir.text import parse


@pytest.fixture(autouse=True)
def collector_on() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_the_outermost_pause_ends_it():
    with collector_paused():
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_mistake_ends_a_pause_too():
    with pytest.raises(ZeroDivisionError), collector_paused():
        raise ZeroDivisionError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()


def test_pauses_of_threads_that_overlap_end_with_the_last():
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with collector_paused():
            inside.set()
            leave.wait(10)

    other = threading.Thread(target=hold)
    with collector_paused():
        other.start()
        assert inside.wait(10)
    assert not gc.isenabled()
    leave.set()
    other.join()
    assert gc.isenabled()


def test_a_compile_pauses_it_and_gives_it_back():
    seen: list[bool] = []
    graph = parse('slot v0: f32[4] "x"\nv1: f32[4] = exp(v0)\nout v1')
    api.compile(graph, "lavapipe", cache=False, progress=lambda *_: seen.append(gc.isenabled()))
    assert seen
    assert not any(seen)
    assert gc.isenabled()
