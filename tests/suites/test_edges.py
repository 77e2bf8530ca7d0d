"""What a user may do wrong, on every target: arguments of another kind, a session or a device that
was closed. Each is a typed error, the same everywhere, and what was there goes on."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np
import pytest

import poot
from poot.api import Program
from poot.errors import BackendError, BindError, PootError, StaleArray
from poot.session import Session
from tests.support.captured import captured_or_refused
from tests.support.everywhere import DEVICES, compile_on, on
from tests.support.wrong import WRONG, typed_or_fine

X = np.ones(2, np.float32)
W = np.full(2, 3, np.float32)
EVERYWHERE = ("oracle", *DEVICES)


def step(w, kv, x):
    return x + w["k"], kv + 1.0


def graph() -> poot.ir.graph.Graph:
    specs = ({"k": poot.weight((2,))}, poot.state((2,)), poot.slot((2,), "f32"))
    return poot.trace(step, specs)


def bound(target: str) -> Session:
    session = compile_on(target, graph()).bind({"w.k": W})
    session.slots["x"].write(X)
    return session


# What is done with a session: each is a typed error or works, whatever `value` is.
DOES: dict[str, Callable[[Session, object], object]] = {
    "step": lambda s, value: s.step(value, x=X),
    "step a slot": lambda s, value: s.step(x=value),
    "step an unknown slot": lambda s, value: s.step(y=value),
    "step with device outputs": lambda s, value: s.step(x=X, device_outputs=value),
    "read a State": lambda s, value: s.state[value],
    "find a State": lambda s, value: value in s.state,
    "write a State": lambda s, value: s.state.__setitem__("kv", value),
    "write to a State": lambda s, value: s.state.__setitem__(value, X),
    "delete a State": lambda s, value: s.state.__delitem__(value),
    "take a slot": lambda s, value: s.slots[value],
    "find a slot": lambda s, value: value in s.slots,
    "write a slot": lambda s, value: s.slots["x"].write(value),
    "update a slot": lambda s, value: s.slots["x"].update(value),
    "update a slot somewhere": lambda s, value: s.slots["x"].update(value, 1.0),
    "update a slot to": lambda s, value: s.slots["x"].update(0, value),
    "capture": lambda s, value: s.capture(value),
    "replay": lambda s, value: s.capture()(x=value),
    "profile": lambda s, value: s.profile(value, x=X),
    "profile a slot": lambda s, value: s.profile(x=value),
    "bind": lambda s, value: as_program(s).bind(value),
    "bind a weight": lambda s, value: as_program(s).bind({"w.k": value}),
    "bind nonfinite": lambda s, value: as_program(s).bind({"w.k": W}, allow_nonfinite=value),
    "bind device outputs": lambda s, value: as_program(s).bind({"w.k": W}, device_outputs=value),
    "show a stage": lambda s, value: as_program(s).text(value),
    "show an entry point": lambda s, value: as_program(s).text("trace", value),
}


def as_program(session: Session) -> Program:
    assert isinstance(session.program, Program)
    return session.program


@on(*EVERYWHERE)
def test_wrong_kinds_are_typed_errors_and_the_session_goes_on(target: str):
    session = bound(target)
    for do in DOES.values():
        for value in WRONG:
            typed_or_fine(lambda do=do, value=value: do(session, value))
    session.reset()
    np.testing.assert_array_equal(session.step(x=X), X + W)
    np.testing.assert_array_equal(session.state["kv"], [1, 1])
    session.close()


# What every closed session refuses, with the same words.
CLOSED: dict[str, Callable[[Session], object]] = {
    "step": lambda s: s.step(x=X),
    "step an entry point that isn't there": lambda s: s.step("none"),
    "read": lambda s: s.state["kv"],
    "write": lambda s: s.state.__setitem__("kv", X),
    "read a slot": lambda s: s.slots["x"].read(),
    "write a slot": lambda s: s.slots["x"].write(X),
    "update a slot": lambda s: s.slots["x"].update(0, 1.0),
    "capture": lambda s: s.capture(),
    "reset": lambda s: s.reset(),
    "fork": lambda s: s.fork(),
    "profile": lambda s: s.profile(x=X),
    "wait": lambda s: s.wait(),
}


@on(*EVERYWHERE)
def test_a_closed_session_refuses_all_alike(target: str):
    session = bound(target)
    fork, replay = session.fork(), captured_or_refused(session)
    left = session.step(x=X, device_outputs=True)
    kept = left.copy()
    session.close()
    session.close()
    for name, do in {**CLOSED, "replay": lambda s: replay(x=X)}.items():
        with pytest.raises(BindError) as e:
            do(session)
        assert e.value.message == "this session is closed; bind the program again", name
    with pytest.raises(StaleArray):
        left.numpy()
    assert list(session.state) == ["kv"]
    np.testing.assert_array_equal(kept.numpy(), X + W)
    np.testing.assert_array_equal(fork.step(x=X), X + W)
    fork.close()
    again = as_program(session).bind({"w.k": W})
    np.testing.assert_array_equal(again.step(x=X), X + W)
    again.close()


@pytest.mark.parametrize("backend", ["cpu", "vulkan", "wgpu"])
def test_a_closed_device_refuses_and_another_opening_goes_on(backend: str):
    device = poot.backends.registry.open_device(backend)
    program = poot.compile(graph(), device, cache=False)
    session = program.bind({"w.k": W})
    session.step(x=X)
    device.close()
    device.close()
    for do in (
        lambda: program.bind({"w.k": W}),
        lambda: session.step(x=X),
        lambda: session.state["kv"],
        lambda: session.fork(),
        lambda: session.profile(x=X),
        lambda: session.reset(),
    ):
        with pytest.raises(BackendError, match="was closed; open the device again"):
            do()
    session.close()
    other = poot.compile(graph(), backend, cache=False).bind({"w.k": W})
    np.testing.assert_array_equal(other.step(x=X), X + W)
    other.close()


class NoArray:
    """What says that it is an array, and isn't."""

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        raise ValueError("no numbers here")


MAKES: dict[str, dict[str, object]] = {
    "weight": {"shape": (2,)},
    "state": {"shape": (2,)},
    "slot": {"shape": (2,)},
    "const": {"array": X},
    "trace": {"fn": lambda x: x, "specs": (poot.slot((2,), "f32"),)},
    "compile": {"graphs": graph(), "target": "oracle"},
    "jit": {"fn": lambda x: x},
    "load": {"path": "no-such-file.poot", "target": "oracle"},
    "parse": {"text": ""},
    "show": {"graph": graph()},
    "grad": {},
    "value_and_grad": {},
}


@pytest.mark.parametrize("name", MAKES)
def test_public_functions_raise_typed_errors_alone(name: str):
    fn = getattr(poot, name)
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        for value in WRONG:
            if parameter.name == "target" and isinstance(value, str):
                continue  # lists the devices: see tests/backends/test_registry.py
            if parameter.name == "progress" and callable(value):
                continue  # what it raises is its own
            given = MAKES[name] | {parameter.name: value}
            typed_or_fine(lambda given=given: fn(**given))


def test_no_public_name_is_left_out():
    untried = {
        "LoadedProgram",
        "PootError",
        "Program",
        "Session",
        "devices",
        "errors",
        "ops",
    }  # the suites above, or no function
    assert set(poot.__all__) == set(MAKES) | untried


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: poot.compile(graph(), "oracle", memory_budget="1G"), "memory_budget needs bytes"),
        (lambda: poot.compile(graph(), "oracle", memory_budget=-1), "0 or more: got -1"),
        (lambda: poot.compile(graph(), "oracle", memory_budget=True), "got True"),
        (lambda: poot.compile(graph(), "oracle", passes=("x",)), r"passes needs a tuple of"),
        (lambda: poot.compile(graph(), "oracle", cache="no"), "cache needs True or False"),
        (lambda: poot.compile(graph(), "oracle", progress=3), "progress needs a function"),
        (lambda: poot.compile({}, "oracle"), "got no entry point"),
        (lambda: poot.compile({3: graph()}, "oracle"), "names that are texts: got int 3"),
        (lambda: poot.compile({"": graph()}, "oracle"), "by 1 to 100 printable characters"),
        (lambda: poot.compile({"a" * 101: graph()}, "oracle"), "by 1 to 100 printable"),
        (lambda: poot.compile({"a\n": graph()}, "oracle"), "printable characters: got 'a"),
        (lambda: poot.compile({"a": 3}, "oracle"), "entry point 'a' needs a Graph: got int"),
        (lambda: poot.compile(graph(), 3), "a target is a device's name"),
        (lambda: poot.const([1, 2]), "const needs a numpy array: got=list. Write np.asarray"),
        (lambda: poot.trace(3, ()), "trace needs a Python function: got=int"),
        (lambda: poot.slot((2,), kind=None), "a kind that is a plain name: kind=None"),
        (lambda: poot.weight((2,), []), "needs a dtype among"),
        (lambda: poot.weight({}), "a tuple of whole extents: shape={}"),
        (lambda: poot.parse(3), "a text is needed: got int"),
        (lambda: poot.show(None), "show needs a Graph: got NoneType"),
        (lambda: poot.jit(lambda x: x)(NoArray()), "jit needs arrays and numbers: x is none"),
        (lambda: compile_on("oracle", graph()).bind([W]), "bind needs a dict by names: got list"),
        (lambda: compile_on("oracle", graph()).bind({3: W}), "texts: got int 3"),
        (
            lambda: compile_on("oracle", graph()).bind({"w": {"k": W}}),
            "unknown w; names are dotted, one for each array: w.k",
        ),
        (
            lambda: compile_on("oracle", graph()).bind({"w.k": W}, allow_nonfinite="yes"),
            "allow_nonfinite needs True or False: got str 'yes'",
        ),
    ],
)  # fmt: skip
def test_the_words_say_what_was_needed(call: Callable[[], object], words: str):
    with pytest.raises(PootError) as e:
        call()
    assert words in e.value.message
