"""Sessions: steps, State, errors that lose nothing. On the oracle, which every target must equal."""

import threading

import numpy as np
import pytest

import poot
from poot import ops
from poot.errors import BackendUnavailable, BindError, RangeError, SessionBusy, ValidationError
from poot.session import Session


def step(w, kv, x, pos):
    q = ops.linear(x, w["q"])
    kv = ops.dynamic_update_slice(kv, q, pos, axis=0)
    return {"sum": kv.sum(axis=0), "q": [q]}, kv


def specs(rows: int = 1):
    return (
        {"q": poot.weight((4, 4))},
        poot.state((8, 4)),
        poot.slot((rows, 4), "f32"),
        poot.slot((), "i32", kind="pos", range=(0, 9 - rows)),
    )


def program(target: str = "oracle"):
    return poot.compile({"one": poot.trace(step, specs(1)), "two": poot.trace(step, specs(2))}, target)


WEIGHTS = {"w.q": np.eye(4, dtype=np.float32)}


@pytest.fixture
def session() -> Session:
    return program().bind(WEIGHTS)


def ones(rows: int, value: float = 1.0) -> np.ndarray:
    return np.full((rows, 4), value, np.float32)


def test_outputs_nest_as_the_function_nested_them(session: Session):
    out = session.step("one", x=ones(1), pos=0)
    assert isinstance(out, dict)
    np.testing.assert_array_equal(out["sum"], [1, 1, 1, 1])
    np.testing.assert_array_equal(out["q"][0], ones(1))


def test_entry_points_share_weights_and_state(session: Session):
    session.step("one", x=ones(1), pos=0)
    session.step("two", x=ones(2, 2.0), pos=5)
    np.testing.assert_array_equal(session.state["kv"][:, 0], [1, 0, 0, 0, 0, 2, 2, 0])


def test_state_is_read_and_written_by_copy(session: Session):
    session.state["kv"] = np.arange(32, dtype=np.float32).reshape(8, 4)
    held = session.state["kv"]
    held[:] = 0
    assert session.state["kv"].sum() == 496
    assert list(session.state) == ["kv"]
    with pytest.raises(BindError, match=r"needs f32\[8,4\]"):
        session.state["kv"] = np.zeros((8, 5), np.float32)
    with pytest.raises(BindError, match="no State 'vk'; States: kv"):
        session.state["vk"]


def test_a_fork_has_its_own_state(session: Session):
    session.step("one", x=ones(1), pos=0)
    fork = session.fork()
    session.reset()
    assert session.state["kv"].sum() == 0
    assert fork.state["kv"].sum() == 4
    fork.step("one", pos=1)  # the slot x keeps what it held
    assert fork.state["kv"].sum() == 8


@pytest.mark.parametrize(
    "slots, error, words",
    [
        ({"x": ones(1), "pos": 8}, RangeError, "'pos' needs values in 0..7"),
        ({"x": ones(1), "pos": -1}, RangeError, "'pos' needs values in 0..7"),
        ({"x": ones(2), "pos": 0}, BindError, r"'x' needs f32\[1,4\]"),
        ({"x": ones(1)[0], "pos": 0}, BindError, r"'x' needs f32\[1,4\]"),
        ({"x": ones(1).astype(np.float64), "pos": 0}, BindError, "float64"),
        ({"x": ones(1), "pos": 0.5}, BindError, "pos"),
        ({"x": "text", "pos": 0}, BindError, "x"),
        ({"y": 1}, BindError, "no slot y; slots: pos, x"),
        ({"x": ones(1)}, BindError, "needs the slots pos"),
    ],
)
def test_a_bad_slot_is_refused_before_anything_runs(session: Session, slots, error, words):
    session.state["kv"] = np.ones((8, 4), np.float32)
    with pytest.raises(error, match=words):
        session.step("one", **slots)
    assert session.state["kv"].sum() == 32
    session.step("one", x=ones(1), pos=0)


@pytest.mark.parametrize(
    "weights, words",
    [
        ({}, "missing w.q"),
        (WEIGHTS | {"w.k": ones(1)}, "unknown w.k"),
        ({"w.q": np.eye(3, dtype=np.float32)}, r"needs f32\[4,4\]: got float32\[3,3\]"),
        ({"w.q": np.eye(4)}, r"got float64\[4,4\]"),
        ({"w.q": np.full((4, 4), np.nan, np.float32)}, r"holds nan at \(0, 0\)"),
    ],
)
def test_bad_weights_are_refused_by_name(weights, words: str):
    with pytest.raises(BindError, match=words):
        program().bind(weights)


def test_non_finite_weights_bind_when_asked(session: Session):
    other = program().bind({"w.q": np.full((4, 4), np.inf, np.float32)}, allow_nonfinite=True)
    out = other.step("one", x=ones(1), pos=0)
    assert isinstance(out, dict)
    assert np.isinf(out["sum"]).all()


def test_an_unknown_entry_point_is_refused_with_the_list(session: Session):
    with pytest.raises(BindError, match="no entry point 'three'; entry points: one, two"):
        session.step("three")


def test_a_second_thread_is_refused_and_the_session_goes_on(session: Session):
    seen: list[Exception] = []

    def other() -> None:
        try:
            session.step("one", x=ones(1), pos=0)
        except SessionBusy as e:
            seen.append(e)

    with session.exclusive():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert "session.fork()" in str(seen[0])
    session.step("one", x=ones(1), pos=0)


def test_a_failed_guard_publishes_nothing():
    def guarded(kv, at, x):
        index, ok = ops.index_guard(at, 0, 4)
        ops.validate(ok)
        return (index,), ops.dynamic_update_slice(kv, x, index, axis=0)

    graph = poot.trace(guarded, (poot.state((4, 2)), poot.slot((), "i32"), poot.slot((1, 2), "f32")))
    session = poot.compile(graph, "oracle").bind()
    session.step(at=1, x=np.ones((1, 2), np.float32))
    before = session.state["kv"]
    with pytest.raises(ValidationError, match=r"in \[0, 4\).*nothing was published"):
        session.step(at=4)
    np.testing.assert_array_equal(session.state["kv"], before)
    session.step(at=3)
    assert session.state["kv"].sum() == 4


def test_a_program_of_a_profile_compiles_but_does_not_bind():
    with pytest.raises(BackendUnavailable, match="without a device"):
        program("webgpu-baseline").bind(WEIGHTS)


def test_a_captured_entry_point_steps_as_step_does(session: Session):
    replay = session.capture("one")
    replay(x=ones(1), pos=2)
    assert session.state["kv"][2].sum() == 4


def test_a_closed_session_says_so(session: Session):
    session.close()
    with pytest.raises(BindError, match="closed"):
        session.step("one", x=ones(1), pos=0)
