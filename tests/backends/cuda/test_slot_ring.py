"""The ring that brings slots along: the node's text on numpy and through the assembler, and the
host's side of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poot.backends.cuda import slot_ring
from poot.backends.cuda.provider import Driver
from poot.backends.cuda.slot_ring import MOST_NBYTES, NAME, SlotRing, take_text
from poot.errors import DeviceLost, LaunchError
from tests.support.fake_cuda import FakeDriver
from tests.support.ptx_device import PtxDriver
from tests.support.ptxas import ARCHES, assemble

SLOTS_NBYTES = 5000


def rings(driver: Driver, nbytes: int = SLOTS_NBYTES) -> tuple[SlotRing, object, int, int]:
    """A ring over a buffer of zeros: (ring, its node bound, the buffer, the count)."""
    slots_at, count_at = driver.allocate(nbytes), driver.allocate(16)
    driver.zero(slots_at, nbytes)
    driver.zero(count_at, 16)
    ring = SlotRing(driver, nbytes, count_at)
    function = driver.load(take_text("sm_90a").encode() + b"\0", NAME, 0)
    return ring, driver.bind([ring.call(function, slots_at)]), slots_at, count_at


def give(driver: Driver, ring: SlotRing, bound: object, first: int, raw: bytes) -> None:
    ring.wait()
    ring.put(first, raw)
    driver.launch(bound, False)
    ring.launched()


def held(driver: Driver, pointer: int, nbytes: int) -> np.ndarray:
    out = np.empty(nbytes, np.uint8)
    driver.copy_out(out, pointer)
    return out


@pytest.mark.parametrize("arch", ARCHES)
def test_the_node_assembles_without_spills(arch):
    report = assemble(take_text(arch), arch)
    assert (report.name, report.spills, report.stack_nbytes) == (NAME, 0, 0)
    assert not report.warnings


@given(
    st.lists(st.tuples(st.integers(0, 1249), st.integers(0, 1024)), min_size=1, max_size=6),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=25, deadline=None)
def test_each_launch_takes_its_entry_whatever_the_count(spans, start):
    for make in (PtxDriver, FakeDriver):
        driver = make()
        ring, bound, slots_at, count_at = rings(driver)
        driver.copy_in(count_at, np.array([start], np.uint32).view(np.uint8))
        ring._given = start
        ring._taken[0] = start
        want = np.zeros(SLOTS_NBYTES, np.uint8)
        rng = np.random.default_rng(start)
        for first, words in spans:
            words = min(words, 1250 - first)
            raw = rng.integers(0, 255, 4 * words, dtype=np.uint8)
            want[4 * first : 4 * (first + words)] = raw
            give(driver, ring, bound, 4 * first, raw.tobytes())
        np.testing.assert_array_equal(held(driver, slots_at, SLOTS_NBYTES), want)
        assert ring._taken[0] == (start + len(spans)) % 2**32
        assert not ring.is_full()


def test_entries_come_in_order_round_the_ring():
    driver = PtxDriver()
    ring, bound, slots_at, _ = rings(driver)
    rounds = 3 * ring._count + 1
    for n in range(rounds):
        give(driver, ring, bound, 4 * (n % 64), np.array([n], np.uint32).tobytes())
    last = {n % 64: n for n in range(rounds)}
    got = held(driver, slots_at, 256).view(np.uint32)
    np.testing.assert_array_equal(got, [last[n] for n in range(64)])


def test_a_slot_space_larger_than_an_entry_has_entries_of_the_most():
    ring, *_ = rings(FakeDriver(), 3 * MOST_NBYTES)
    assert (ring.room, ring._count) == (MOST_NBYTES, 32)
    ring, *_ = rings(FakeDriver(), 512)
    assert (ring.room, ring._count) == (512, 256)


def full(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> SlotRing:
    """A ring whose device has taken nothing of it."""
    monkeypatch.setattr(slot_ring, "_PATIENCE_S", 0.01)
    ring, *_ = rings(driver)
    for _ in range(ring._count):
        assert not ring.is_full()
        ring.put(0, b"")
        ring.launched()
    assert ring.is_full()
    return ring


def test_a_full_ring_waits_until_the_device_takes_one(monkeypatch):
    ring = full(FakeDriver(), monkeypatch)
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        ring._taken[0] = len(naps) // 3

    monkeypatch.setattr(slot_ring.time, "sleep", nap)
    ring.wait()
    assert len(naps) == 3
    assert not ring.is_full()


def test_a_ring_that_nobody_takes_from_is_an_error_and_not_a_wait(monkeypatch):
    driver = FakeDriver()
    ring = full(driver, monkeypatch)
    with pytest.raises(LaunchError, match=r"took 0 of \d+ entries of slots, and the stream is"):
        ring.wait()
    assert driver.asked[-1] == "synchronize"


def test_a_lost_device_is_told_by_who_waits_for_it(monkeypatch):
    driver = FakeDriver()
    ring = full(driver, monkeypatch)
    driver.fails["synchronize"] = "ILLEGAL_ADDRESS"
    with pytest.raises(DeviceLost, match="the context is lost"):
        ring.wait()


def test_memory_that_is_still_read_is_waited_for():
    driver = FakeDriver()
    ring, *_ = rings(driver)
    ring.drain()
    assert "synchronize" not in driver.asked
    ring.put(0, b"")
    ring.launched()
    ring.drain()
    assert driver.asked[-1] == "synchronize"


@pytest.mark.parametrize("nbytes", [4, 8, 12, 20, 4092])
def test_entries_lie_aligned_whatever_the_size_of_the_slots(nbytes):
    driver = PtxDriver()
    ring, bound, slots_at, _ = rings(driver, nbytes)
    for n in range(3):
        give(driver, ring, bound, nbytes - 4, np.array([n + 7], np.uint32).tobytes())
    assert held(driver, slots_at, nbytes).view(np.uint32)[-1] == 9


@pytest.mark.parametrize("first, nbytes", [(0, MOST_NBYTES + 4), (0, 6), (2, 4)])
def test_an_entry_takes_whole_words_that_fit(first, nbytes):
    ring, *_ = rings(FakeDriver())
    with pytest.raises(AssertionError, match="words"):
        ring.put(first, bytes(nbytes))
