"""Steps of a recorded entry point: on the CUDA text run on numpy, against steps launched one
by one, whatever is given and in whatever order."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot import ops
from poot.backends.cuda.device import CudaDevice
from poot.errors import BindError, LaunchError, PootError, RangeError, ValidationError
from poot.session import Session
from tests.support.fake_cuda import FakeDriver
from tests.support.ptx_device import ptx_device


def step(kv, x, pos, at):
    kv = ops.dynamic_update_slice(kv, x, pos, axis=0)
    kv = ops.dynamic_update_slice(kv, -x, ops.checked(at, 0, 8), axis=0)
    return {"sum": kv.sum(axis=0), "next": ops.minimum(pos + 1, 7)}, kv


def sessions() -> tuple[Session, Session, FakeDriver]:
    """The same program twice: recorded, and not."""
    specs = (
        poot.state((8, 4)),
        poot.slot((1, 4), "f32"),
        poot.slot((), "i32", kind="pos", range=(0, 8)),
        poot.slot((), "i32"),
    )
    device = ptx_device()
    program = poot.compile(poot.trace(step, specs), device, cache=False)
    quick, plain = program.bind(), program.bind()
    assert quick.capture().is_replay
    assert isinstance(device, CudaDevice)
    assert isinstance(device.driver, FakeDriver)
    return quick, plain, device.driver


def given(rng: np.random.Generator) -> dict[str, object]:
    slots: dict[str, object] = {
        "x": rng.standard_normal((1, 4)).astype(np.float32),
        "pos": rng.choice([np.int32(3), np.int32(7), 5, np.array(1, np.int32), np.int32(8)]),
        "at": np.int32(rng.integers(-1, 9)),
    }
    return {k: v for k, v in slots.items() if rng.random() < 0.8}


def said(session: Session, how: int, slots: dict[str, object]) -> object:
    try:
        if how == 0 and "x" in slots:
            session.slots["x"].update(0, 2, 5.0)
        out = session.step(**slots, device_outputs=how == 1)
        values = {k: np.asarray(v).tobytes() for k, v in out.items()}  # pyright: ignore[reportAttributeAccessIssue] - a dict as traced
        if how == 2:
            session.step(pos=session.step(device_outputs=True)["next"])  # pyright: ignore[reportIndexIssue] - as above
    except PootError as e:
        return type(e), e.message
    return values


@pytest.mark.parametrize("seed", range(4))
def test_a_recorded_step_gives_and_refuses_what_a_plain_one_does(seed: int):
    quick, plain, _ = sessions()
    rng = np.random.default_rng(seed)
    for _ in range(40):
        slots, how = given(rng), int(rng.integers(8))
        assert said(quick, how, slots) == said(plain, how, slots), slots
        assert quick.state["kv"].tobytes() == plain.state["kv"].tobytes()


def ready() -> tuple[Session, FakeDriver]:
    quick, plain, driver = sessions()
    plain.close()  # else its memory is freed whenever it is collected, in the midst of a test
    quick.step(x=np.ones((1, 4), np.float32), pos=0, at=1)
    driver.asked.clear()
    return quick, driver


def calls(driver: FakeDriver) -> list[str]:
    """What the driver was asked for, but for the launches inside of graphs."""
    found = [a for a in driver.asked if not a.startswith("launch")]
    driver.asked.clear()
    return found


def test_a_recorded_step_is_one_call():
    quick, driver = ready()
    quick.step(x=np.zeros((1, 4), np.float32), pos=np.int32(3), device_outputs=True)
    assert calls(driver) == ["replay"]
    quick.step(device_outputs=True)
    assert [c for c in calls(driver) if c.startswith("copy in")] == []


def test_a_guard_or_range_that_fails_publishes_nothing_and_the_next_step_goes_on():
    quick, _ = ready()
    before = quick.state["kv"].copy()
    with pytest.raises(RangeError):
        quick.step(pos=np.int32(8))
    with pytest.raises(ValidationError):
        quick.step(x=np.full((1, 4), 3, np.float32), at=np.int32(9))
    np.testing.assert_array_equal(quick.state["kv"], before)
    quick.step(at=np.int32(2), pos=np.int32(1))
    np.testing.assert_array_equal(quick.state["kv"][1:3], [[3] * 4, [-3] * 4])


def test_a_launch_that_fails_leaves_state_unknown_and_its_slots_bound():
    quick, driver = ready()
    driver.fails["replay"] = "INVALID_VALUE"
    with pytest.raises(PootError, match="INVALID_VALUE"):
        quick.step(x=np.full((1, 4), 2, np.float32), pos=np.int32(5))
    driver.fails.clear()
    with pytest.raises(LaunchError, match="kv may be half written"):
        quick.step()
    quick.reset()
    quick.step()
    np.testing.assert_array_equal(quick.state["kv"][5], [2] * 4)


def test_a_ring_that_is_full_for_good_fails_before_anything_ran(monkeypatch):
    monkeypatch.setattr("poot.backends.cuda.slot_ring._PATIENCE_S", 0.0)
    quick, _ = ready()
    before = quick.state["kv"].copy()
    ring = quick.runner.carried("main")._made._ring  # pyright: ignore - the ring itself is turned back
    ring._given += ring._count
    with pytest.raises(LaunchError, match="entries of slots"):
        quick.step(pos=np.int32(6))
    np.testing.assert_array_equal(quick.state["kv"], before)
    ring._given -= ring._count
    quick.step()
    np.testing.assert_array_equal(quick.state["kv"][6], [1] * 4)


def test_a_closed_session_says_so():
    quick, _ = ready()
    quick.close()
    with pytest.raises(BindError, match="closed"):
        quick.step(pos=np.int32(3))


def test_a_profile_has_the_slots_that_a_recording_would_have_brought():
    quick, _ = ready()
    quick.profile(pos=np.int32(4))
    np.testing.assert_array_equal(quick.state["kv"][4], [1] * 4)


def test_a_fork_of_a_recorded_session_has_its_slots():
    quick, _ = ready()
    quick.slots["x"].write(np.full((1, 4), 6, np.float32))
    other = quick.fork()
    for session in (other, quick):
        session.step(pos=np.int32(2))
        np.testing.assert_array_equal(session.state["kv"][2], [6] * 4)
