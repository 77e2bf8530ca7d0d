"""What was made on a stream is given back once; a loss is remembered; a refusal meets nobody."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import cast

import pytest

from poot.backends.hip.driver import HipApi
from poot.backends.hip.line import HipBuffer, Line, close_quietly
from poot.errors import BackendError, DeviceLost


def line_of(log: list[str], **more: object) -> Line:
    calls: dict[str, object] = {
        "index": 0,
        "enter": lambda: None,
        "wait": lambda what: log.append("wait"),
        "free": lambda address: log.append(f"free {address}"),
        "drop_stream": lambda: log.append("stream"),
    }
    return Line(cast("HipApi", SimpleNamespace(**{**calls, **more})))


def refusing(error: BackendError):
    def refuse(*args: object) -> None:
        raise error

    return refuse


def test_what_is_dropped_is_given_back_by_the_next_who_enters():
    log: list[str] = []
    line = line_of(log)
    buffer = HipBuffer(line, 16, 4, "a")
    buffer.free()
    del buffer
    gc.collect()
    assert log == []
    with line.held():
        assert log == ["wait", "free 16"]


def test_close_gives_back_what_is_left_the_last_first_and_but_once():
    log: list[str] = []
    line = line_of(log)
    kept = [HipBuffer(line, 16 * n, 4, "a") for n in (1, 2)]
    line.close()
    for buffer in kept:
        buffer.free()
    line.close()
    line.give_back()
    assert log == ["wait", "free 32", "free 16", "stream"]


def test_a_refusal_to_give_back_meets_nobody():
    line = line_of([], free=refusing(BackendError("no")))
    HipBuffer(line, 16, 4, "a").free()
    with line.held():
        assert line.is_alive


def test_a_loss_is_told_to_who_is_next():
    line = line_of([], free=refusing(DeviceLost("gone")))
    HipBuffer(line, 16, 4, "a").free()
    with pytest.raises(DeviceLost, match="hip:0 was lost before: gone"), line.held():
        pass
    assert line.lost == "gone"
    assert not line.is_alive


def test_a_loss_inside_is_remembered():
    line = line_of([])
    with pytest.raises(DeviceLost), line.held():
        raise DeviceLost("gone")
    assert line.lost == "gone"


def test_a_close_that_finds_the_loss_says_so_but_where_nobody_can_be_told():
    for close in (Line.close, close_quietly):
        log: list[str] = []
        line = line_of(log, free=refusing(DeviceLost("gone")))
        HipBuffer(line, 16, 4, "a")
        if close is close_quietly:
            close(line)
        else:
            with pytest.raises(DeviceLost, match="gone"):
                close(line)
        assert log == ["wait"]
        line.close()
