"""What nobody foresaw harms at most the requests that it meets, never the engine."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import poot.llm.faults as faults
from poot.errors import PootError, RequestError, SessionBusy
from poot.llm.engine import Engine
from poot.llm.faults import Fault, fault, patiently
from poot.llm.request import Event, Finish, Request
from tests.llm.test_engine import Rig, adapter
from tests.support.paged_fake import continued


def test_a_fault_tells_of_the_error_and_where_it_came():
    assert fault(ValueError("no"), "here").message == "here: ValueError: no"


def test_what_another_threads_session_stops_is_done_again():
    tries: list[int] = []

    def action() -> int:
        tries.append(1)
        if len(tries) < 4:
            raise SessionBusy("another thread")
        return len(tries)

    assert patiently(action) == 4


def test_patience_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(faults, "BUSY_S", 0.01)

    def action() -> None:
        raise SessionBusy("another thread")

    with pytest.raises(SessionBusy):
        patiently(action)


def test_a_session_that_another_thread_uses_for_a_while_costs_no_request_anything():
    rig = Rig()
    step, refused = rig.session.step, [0]

    def busy(*given: object, **slots: object) -> object:
        refused[0] += 1
        if refused[0] % 3:
            raise SessionBusy("another thread")
        return step(*given, **slots)  # pyright: ignore[reportArgumentType] - what the engine gave

    rig.session.step = busy
    handle = rig.ask([1, 2], 6)
    rig.engine.run()
    assert list(handle.result(0).tokens) == continued([1, 2], 6)
    assert refused[0] > 12
    assert rig.engine.failed is None


@pytest.mark.parametrize("error", [ValueError, KeyError, RequestError, AssertionError])
def test_an_unforeseen_error_ends_the_requests_of_its_part_and_no_others(error: type[Exception]):
    rig = Rig()
    step = rig.session.step

    def poisoned(entry: str, /, **slots: object) -> object:
        tokens = slots.get("tokens")
        if isinstance(tokens, np.ndarray) and (tokens[:, :3] == [7, 8, 7]).all(-1).any():
            raise error("the step meets what it can't do")
        return step(entry, **slots)  # pyright: ignore[reportArgumentType] - what the engine gave

    rig.session.step = poisoned  # pyright: ignore[reportAttributeAccessIssue] - a method
    other = rig.ask([2], 60)
    for _ in range(8):  # more than the retries after a driver's error
        rig.engine.step()
        victim = rig.ask([7, 8, 7], 9)
        for _ in range(4):
            rig.engine.step()
        with pytest.raises(Fault, match=f"{error.__name__}.*can't do"):
            victim.result(0)
    rig.engine.run()
    assert list(other.result(0).tokens) == continued([2], 60)
    assert rig.engine.failed is None
    assert rig.is_whole()


@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_listener_that_raises_ends_its_own_request(at: int):
    rig = Rig()
    heard: list[Event] = []

    def listen(event: Event) -> None:
        heard.append(event)
        if len(heard) == at:
            raise ZeroDivisionError("the listener's")

    victim = rig.engine.submit(Request((1,), 4), listen)
    other = rig.ask([2], 9)
    rig.engine.run()
    with pytest.raises(Fault, match="listener raised: ZeroDivisionError"):
        victim.result(0)
    assert victim.finish is not None
    assert victim.finish.reason == "error"
    assert len(heard) == at
    assert list(other.result(0).tokens) == continued([2], 9)
    assert rig.is_whole()


def refused_in_a_listener(engine: Engine) -> list[str]:
    """What each command says that a listener gives."""
    said: list[str] = []
    commands = {
        "rebind": lambda: engine.rebind({}),
        "load_adapter": lambda: engine.load_adapter("a", adapter(1.0)),
        "unload_adapter": lambda: engine.unload_adapter("a"),
        "stop": engine.stop,
        "step": engine.step,
        "run": engine.run,
    }

    def listen(event: Event) -> None:
        if isinstance(event, Finish) or said:
            return
        for name, command in commands.items():
            with pytest.raises(RequestError, match="from a request's listener"):
                command()
            said.append(name)

    handle = engine.submit(Request((1,), 4), listen)
    if engine._thread is None:  # pyright: ignore[reportPrivateUsage] - whose steps these are
        engine.run()
    assert handle._done.wait(20)  # pyright: ignore[reportPrivateUsage] - there is nothing to read
    assert handle.finish is not None
    assert handle.finish.error is None
    return said


@pytest.mark.parametrize("is_own", [True, False], ids=["its own thread", "the caller's"])
def test_commands_that_need_a_place_between_steps_are_refused_in_a_listener(is_own: bool):
    rig = Rig()
    if is_own:
        rig.engine.start()
    assert len(refused_in_a_listener(rig.engine)) == 6
    rig.engine.load_adapter("a", adapter(1.0))
    rig.engine.stop()
    assert rig.is_whole()


def test_a_command_that_breaks_answers_and_leaves_the_others_queued_with_it_be():
    rig = Rig()
    rig.engine.start()
    got: list[BaseException] = []

    def load() -> None:
        try:
            rig.engine.load_adapter("x", None)  # pyright: ignore[reportArgumentType] - wrong on purpose
        except AttributeError as e:
            got.append(e)

    threads = [threading.Thread(target=load, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    handle = rig.ask([3], 5)
    for thread in threads:
        thread.join(10)
    assert [type(e) for e in got] == [AttributeError] * 8
    assert list(handle.result(10).tokens) == continued([3], 5)
    rig.engine.stop()
    assert rig.engine.failed is None


def test_a_fault_is_one_of_poots_errors():
    assert issubclass(Fault, PootError)
