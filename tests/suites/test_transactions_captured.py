"""Steps are transactions under capture too: the recording is the same list, and nothing of it waits
for the host."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot.errors import RangeError, ValidationError
from poot.session import Session
from tests.suites.test_transactions import (
    CAP,
    COUNTER,
    PAGED,
    X,
    agree,
    bytes_of,
    counter,
    fill,
    layered,
    paged,
    session_of,
)
from tests.support.captured import captured_or_refused
from tests.support.everywhere import DEVICES, on

EVERYWHERE = on("oracle", *DEVICES)


def captured(session: Session) -> Session:
    """The session, its entry point captured: steps replay from here on. Without graphs (pycuda
    alone) they go on as direct launches."""
    captured_or_refused(session)
    return session


@EVERYWHERE
def test_a_late_guard_undoes_its_writes_in_a_replay_and_the_next_holds(target):
    specs = (
        (poot.state((CAP, 3)), poot.state((CAP, 3))),
        poot.slot((), "i32", range=(0, CAP)),
        poot.slot((1, 3), "f32"),
    )
    session = captured(session_of(target, poot.trace(layered, specs)))
    one, bad = np.array([[2, 0, 0]], np.float32), np.full((1, 3), 64, np.float32)
    for at in range(3):
        session.step(at=at, x=one)
        before = bytes_of(session)
        with pytest.raises(ValidationError) as e:
            session.step(at=at, x=bad)
        assert e.value.value == 64 * 3 + 2 * at
        assert bytes_of(session) == before
    np.testing.assert_array_equal(session.state["pools.0"][:3], np.repeat(one, 3, 0))
    session.close()


@EVERYWHERE
def test_scattered_rows_are_undone_in_a_replay(target):
    session = captured(session_of(target, poot.trace(paged, PAGED)))
    fill(session)
    rng = np.random.default_rng(5)
    count = int(session.state["count"])
    for n in range(6):
        write = rng.permutation(CAP // 2)[:2].astype(np.int32) * 2
        slots = {"write": write, "read": rng.integers(0, CAP, (2, 3)).astype(np.int32)}
        before = bytes_of(session)
        with pytest.raises(ValidationError):
            session.step(limit=np.float32(-1e9), x=X[:2] + n, **slots)
        assert bytes_of(session) == before
        session.step(limit=np.float32(1e9), x=X[:2] + n, **slots)
        np.testing.assert_array_equal(session.state["pool"][write + 1], 2 * (X[:2] + n))
    assert session.state["count"] == count + 6
    session.close()


@EVERYWHERE
def test_a_replay_is_fed_from_the_last_and_refuses_what_is_out_of_range(target):
    session = captured(session_of(target, poot.trace(counter, COUNTER)))
    for _ in range(2):
        session.reset()
        out = session.step(x=np.ones(1, np.float32), at=0, device_outputs=True)
        for _ in range(CAP - 1):
            out = session.step(x=out["twice"], at=out["next"], device_outputs=True)
        np.testing.assert_array_equal(out["total"].numpy(), 2.0 ** np.arange(CAP))
        after = bytes_of(session)
        with pytest.raises(RangeError, match=r"slot 'at' needs values in 0..7: \[\] is 8$"):
            session.step(x=np.ones(1, np.float32), at=out["next"])
        assert bytes_of(session) == after
    session.close()


@EVERYWHERE
def test_replays_that_nobody_waits_for_each_have_their_own_slots(target):
    """Slots of steps that are enqueued one behind the other: none is written over too early."""
    session = captured(session_of(target, poot.trace(counter, COUNTER)))
    rows = 6000 if target == "cuda" else 40
    want = np.zeros(CAP, np.float32)
    for n in range(rows):
        session.step(x=np.array([n % 7], np.float32), at=n % CAP, device_outputs=True)
        want[n % CAP] += n % 7
    session.wait()
    np.testing.assert_array_equal(session.state["total"], want)
    session.close()


@on("simulator", "cpu", "vulkan", "cuda")
def test_random_programs_over_states_fail_and_hold_in_replays(target):
    assert sum(agree(target, seed, ready=captured) for seed in range(20, 28)) >= 4
