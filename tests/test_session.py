"""Sessions: steps, State, errors that lose nothing. On the oracle, which all targets must equal."""

import threading
from dataclasses import replace

import numpy as np
import pytest

import poot
from poot import ops
from poot.errors import (
    BackendUnavailable,
    BindError,
    LaunchError,
    RangeError,
    SessionBusy,
    SlotMapError,
    StaleArray,
    ValidationError,
)
from poot.session import Session
from poot.slots import ForwardSlotMap
from tests.support.everywhere import compile_on, on
from tests.support.faulty import FaultyDevice


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
    return poot.compile(
        {"one": poot.trace(step, specs(1)), "two": poot.trace(step, specs(2))}, target
    )


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

    graph = poot.trace(
        guarded, (poot.state((4, 2)), poot.slot((), "i32"), poot.slot((1, 2), "f32"))
    )
    session = poot.compile(graph, "oracle").bind()
    session.step(at=1, x=np.ones((1, 2), np.float32))
    before = session.state["kv"]
    with pytest.raises(
        ValidationError, match=r"needs values in 0..3: \[\] is 4; .*nothing was published"
    ):
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


def test_slots_are_read_and_written_by_name(session: Session):
    assert sorted(session.slots) == ["one:pos", "one:x", "two:pos", "two:x"]
    assert len(session.slots) == 4
    with pytest.raises(BindError, match="is of several entry points; slots: one:x, two:x"):
        session.slots["x"]
    with pytest.raises(BindError, match="no slot 'y'; slots: one:pos"):
        session.slots["y"]
    slot = session.slots["one:x"]
    with pytest.raises(BindError, match="holds nothing yet"):
        slot.read()
    slot.write(ones(1, 3.0))
    slot.update(0, [1, 2], [5.0, 6.0])
    np.testing.assert_array_equal(slot.read(), [[3, 5, 6, 3]])
    session.step("one", pos=0)
    np.testing.assert_array_equal(session.state["kv"][0], [3, 5, 6, 3])


def test_a_write_map_is_bound_whole_as_one():
    def write(pool, rows, x):
        return pool.sum(), ops.scatter_update(pool, x, rows)

    specs = (
        poot.state((4, 2)),
        poot.slot((2,), "i32", kind="write_map", range=(-1, 4)),
        poot.slot((2, 2), "f32"),
    )
    session = poot.compile(poot.trace(write, specs), "oracle").bind()
    x = np.ones((2, 2), np.float32)
    with pytest.raises(BindError, match="needs a ForwardSlotMap"):
        session.step(rows=np.array([0, 1], np.int32), x=x)
    with pytest.raises(SlotMapError, match="writes a pool of 4 slots"):
        session.step(rows=ForwardSlotMap(np.array([0, 1]), 5), x=x)
    session.step(rows=ForwardSlotMap(np.array([2, -1]), 4), x=x)
    assert session.state["pool"].sum(axis=1).tolist() == [0, 0, 2, 0]
    with pytest.raises(BindError, match="bound whole, as a ForwardSlotMap"):
        session.slots["rows"].update(0, 1)
    session.slots["rows"].write(ForwardSlotMap(np.array([-1, 0]), 4))
    session.step()
    assert session.state["pool"].sum(axis=1).tolist() == [2, 0, 2, 0]


def faulty() -> tuple[Session, FaultyDevice]:
    """A session on a device that fails when asked, with numbers in its State."""
    device = FaultyDevice()
    made = program_of(device)
    session = made.bind(WEIGHTS)
    session.state["kv"] = np.arange(32, dtype=np.float32).reshape(8, 4)
    session.step("one", x=ones(1, 7.0), pos=7)
    device.faults.calls.clear()
    return session, device


def program_of(device: FaultyDevice):
    graphs = {"one": poot.trace(step, specs(1)), "two": poot.trace(step, specs(2))}
    made = poot.compile(graphs, device.limits, cache=False)
    return replace(made, device=device, target="faulty")


def test_a_step_copies_what_changed_in_one_piece_and_reads_once():
    session, device = faulty()
    session.step("one", x=ones(1, 2.0), pos=3)
    assert device.faults.calls == ["copy_in", "run", "copy_out"]
    device.faults.calls.clear()
    session.step("one", x=ones(1, 2.0), pos=3)
    assert device.faults.calls == ["run", "copy_out"]
    device.faults.calls.clear()
    session.slots["one:x"].update(0, 2, 8.0)
    session.slots["one:x"].update(0, 2, 8.0)
    session.step("one")
    assert device.faults.calls == ["copy_in", "run", "copy_out"]


@pytest.mark.parametrize("n", range(3))
def test_a_step_that_fails_at_any_call_loses_nothing_silently(n: int):
    session, device = faulty()
    before = session.state["kv"].copy()
    device.faults.at = n
    with pytest.raises(LaunchError, match="as asked"):
        session.step("one", x=ones(1, 2.0), pos=3)
    if n < 1:  # before the first launch: State is as it was
        np.testing.assert_array_equal(session.state["kv"], before)
    else:  # what the step left of it is unknown, and said to be
        with pytest.raises(LaunchError, match="kv may be half written; write each"):
            session.state["kv"]
        with pytest.raises(LaunchError, match="stopped part-way"):
            session.step("one")
        with pytest.raises(LaunchError, match="stopped part-way"):
            session.fork()
        session.state["kv"] = before
    # slots given to the failed step are bound, and reach the device with the next one
    session.step("one", x=ones(1, 2.0), pos=3)
    want = before.copy()
    want[3] = 2.0
    np.testing.assert_array_equal(session.state["kv"], want)


@pytest.mark.parametrize("done", [0, 1])
def test_a_launch_list_that_stops_part_way_leaves_state_unknown_until_it_is_reset(done: int):
    session, device = faulty()
    device.faults.after = done
    with pytest.raises(LaunchError, match=f"after {done} launches"):
        session.step("one", x=ones(1, 2.0), pos=3)
    with pytest.raises(LaunchError, match="may be half written"):
        session.profile("one")
    session.reset()
    session.step("one")
    assert session.state["kv"].sum() == 8


def test_a_slot_whose_update_failed_reaches_the_device_whole_later():
    session, device = faulty()
    session.slots["one:x"].update(0, 1, 9.0)
    device.faults.at = 0
    with pytest.raises(LaunchError, match="copy_in fails"):
        session.step("one", pos=0)
    session.step("one")
    np.testing.assert_array_equal(session.state["kv"][0], [7, 9, 7, 7])


def test_a_bind_or_fork_without_memory_leaves_the_session_usable():
    session, device = faulty()
    device.faults.at = 1
    with pytest.raises(LaunchError, match="allocate fails"):
        session.fork()
    session.step("one", pos=0)


def test_a_failed_read_of_a_pending_step_is_tried_again():
    session, device = faulty()
    out = session.step("one", x=ones(1, 2.0), pos=3, device_outputs=True)
    device.faults.at = 0
    with pytest.raises(LaunchError, match="copy_out fails"):
        out["sum"].numpy()
    np.testing.assert_array_equal(out["q"][0].numpy(), ones(1, 2.0))


def test_a_device_array_goes_only_where_it_lies(session: Session):
    other, _ = faulty()
    out = other.step("one", x=ones(1, 2.0), pos=3, device_outputs=True)
    with pytest.raises(BindError, match="an array of another device"):
        session.step("one", x=out["q"][0], pos=0)
    with pytest.raises(BindError, match=r"needs f32\[1,4\]: got f32\[4\]"):
        other.step("one", x=out["sum"])
    with pytest.raises(BindError, match="at a step, which checks it there"):
        other.slots["one:x"].write(out["q"][0])
    with pytest.raises(BindError, match="takes slots from the host"):
        other.profile("one", x=out["q"][0])
    session.step("one", x=out["q"][0].numpy(), pos=0)
    other.step("one", x=out["q"][0], pos=0)
    with pytest.raises(BindError, match="which the host doesn't know"):
        other.slots["one:x"].read()
    other.slots["one:x"].update(0, [3, 0], [1.0, 5.0])  # the rest stays as the device has it
    other.step("one", pos=1)
    np.testing.assert_array_equal(other.state["kv"][1], [5, 2, 2, 1])
    fork = other.fork()
    fork.step("one", pos=2)
    np.testing.assert_array_equal(fork.state["kv"][2], [5, 2, 2, 1])


def test_a_slot_that_failed_on_its_way_from_the_device_is_unbound():
    session, device = faulty()
    out = session.step("one", x=ones(1, 2.0), pos=3, device_outputs=True)
    device.faults.at = 0
    with pytest.raises(LaunchError, match="as asked"):
        session.step("one", x=out["q"][0])
    with pytest.raises(BindError, match="needs the slots x"):
        session.step("one", pos=0)


def test_outputs_of_a_closed_session_are_stale():
    session, _ = faulty()
    out = session.step("one", x=ones(1), pos=0, device_outputs=True)
    session.close()
    with pytest.raises(StaleArray):
        out["sum"].numpy()


def test_a_profile_is_a_step_that_raises_what_a_step_raises():
    graph = poot.trace(
        lambda kv, at, x: (at + 1, ops.dynamic_update_slice(kv, x, ops.checked(at, 0, 4), axis=0)),
        (poot.state((4,)), poot.slot((), "i32"), poot.slot((1,), "f32")),
    )
    session = poot.compile(graph, "oracle").bind()
    session.profile(at=1, x=np.ones(1, np.float32))
    with pytest.raises(ValidationError):
        session.profile(at=4)
    assert session.state["kv"].tolist() == [0, 1, 0, 0]


@on("oracle", "cpu", "vulkan", "wgpu", "cuda")
def test_weights_bound_anew_reach_forks_and_replays_and_state_stays(target: str):
    graph = poot.trace(step, specs(1))
    session = compile_on(target, graph).bind(WEIGHTS)
    replay, fork = session.capture("main"), session.fork()
    replay(x=ones(1), pos=0)
    fork.step(x=ones(1), pos=0)
    assert (session.binds, fork.binds) == (1, 1)
    given = np.arange(16, dtype=np.float32).reshape(4, 4)
    session.rebind({"w.q": given})
    given[:] = 0
    want = np.arange(16, dtype=np.float32).reshape(4, 4).sum(axis=1)
    for out in (replay(x=ones(1), pos=1), fork.step(x=ones(1), pos=1)):
        np.testing.assert_array_equal(out["q"][0][0], want)
        np.testing.assert_array_equal(out["sum"], want + 1)
    assert (session.binds, fork.binds) == (2, 2)


def test_weights_that_do_not_fit_change_nothing(session: Session):
    bad = [
        ({"w.q": np.eye(3, dtype=np.float32)}, "w.q needs f32"),
        ({"w.q": np.full((4, 4), np.nan, np.float32)}, "holds nan"),
        ({"w": 1}, "unknown w; names are dotted, one for each array: w.q"),
    ]
    for given, words in bad:
        with pytest.raises(BindError, match=words):
            session.rebind(given)
    session.rebind({"w.q": np.full((4, 4), np.inf, np.float32)}, allow_nonfinite=True)
    assert session.binds == 2
    session.close()
    with pytest.raises(BindError, match="closed"):
        session.rebind(WEIGHTS)
