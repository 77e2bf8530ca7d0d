"""Launch lists over a driver in numpy: lifetimes, and recordings that bring slots along."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from poot.backends.base import Attributes, BufferRef, Launch
from poot.backends.cuda.device import CudaDevice
from poot.backends.cuda.executable import CudaExecutable
from poot.codegen.attributes import PLAIN
from poot.codegen.kir.nodes import Kernel
from poot.errors import BackendError, CaptureUnavailable, DeviceLost, LaunchError
from tests.support.counting import count_up, counted, opened_card, words
from tests.support.fake_cuda import FakeDriver, fake_device


def opened(kernel: Kernel, **options: object) -> tuple[CudaDevice, FakeDriver]:
    driver = FakeDriver({kernel.name: kernel}, **options)  # pyright: ignore[reportArgumentType] - fields by name
    return fake_device(driver), driver


def test_modules_and_graphs_go_with_their_last_reference():
    kernel = count_up()
    device, driver = opened(kernel)
    states, run = counted(device, kernel)
    run.record()
    del run
    gc.collect()
    assert {"release", "unload count_up"} <= set(driver.asked)
    device.free(states)
    assert driver.memory_at == {}


def test_a_freed_buffer_is_not_launched_over():
    kernel = count_up()
    device, _ = opened(kernel)
    states, run = counted(device, kernel)
    device.free(states)
    with pytest.raises(LaunchError, match="buffer states of launches of count_up has been freed"):
        run.run()
    with pytest.raises(BackendError, match="needs a live buffer"):
        device.copy_out(states, 0, 4)


def brought(device: CudaDevice, kernel: Kernel) -> tuple[object, CudaExecutable]:
    """`counted`, recorded with its buffer brought along."""
    states, run = counted(device, kernel)
    assert run.record_with("states") == 256
    return states, run


def test_a_recording_brings_bytes_along_without_a_copy():
    device, driver = opened(count_up())
    states, run = brought(device, count_up())
    driver.asked.clear()
    run.run_with(8, np.array([40, 41], np.int32).tobytes())
    assert driver.asked == ["replay", "launch poot_take_slots", "launch count_up"]
    np.testing.assert_array_equal(words(device, states)[:5], [1, 1, 41, 42, 1])
    run.run()
    np.testing.assert_array_equal(words(device, states)[:5], [2, 2, 42, 43, 2])
    assert run.is_replay


def test_runs_that_nobody_waits_for_each_bring_their_own():
    device, driver = opened(count_up(), is_behind=True)
    states, run = brought(device, count_up())
    for n in range(100):
        run.make_room()
        run.run_with(0, np.array([n], np.int32).tobytes())
    assert "launch count_up" not in driver.asked
    got = words(device, states)
    assert (got[0], got[1]) == (100, 100)


def test_a_run_that_failed_to_launch_takes_no_entry():
    device, driver = opened(count_up())
    states, run = brought(device, count_up())
    driver.fails["replay"] = "INVALID_VALUE"
    with pytest.raises(BackendError, match="INVALID_VALUE"):
        run.run_with(0, np.array([7], np.int32).tobytes())
    driver.fails.clear()
    run.run_with(0, np.array([9], np.int32).tobytes())
    assert words(device, states)[0] == 10


def test_a_full_ring_waits_in_a_run_too(monkeypatch):
    device, driver = opened(count_up(), is_behind=True)
    states, run = brought(device, count_up())
    monkeypatch.setattr("poot.backends.cuda.slot_ring._PATIENCE_S", 0.0)
    for n in range(600):
        run.run_with(0, np.array([n], np.int32).tobytes())
    assert driver.asked.count("synchronize") == 2
    assert tuple(words(device, states)[:2]) == (600, 600)


def test_a_device_that_is_lost_or_closed_is_not_written_for():
    for end, error in ((CudaDevice.close, BackendError), (lambda d: None, DeviceLost)):
        device, _ = opened(count_up())
        _, run = brought(device, count_up())
        end(device)
        if error is DeviceLost:
            device.driver.lost = "an access outside of every allocation"
        with pytest.raises(error):
            run.make_room()
        with pytest.raises(BackendError):
            run.run_with(0, b"")


def test_only_a_buffer_of_its_launches_comes_along():
    device, driver = opened(count_up())
    _, run = counted(device, count_up())
    assert run.record_with("other") == 0
    assert run.is_replay
    run.run()
    assert "launch poot_take_slots" not in driver.asked
    assert run.record_with("states") == 0


def test_without_graphs_nothing_comes_along():
    device, _ = opened(count_up(), has_graphs=False)
    _, run = counted(device, count_up())
    with pytest.raises(CaptureUnavailable):
        run.record_with("states")
    assert not run.is_replay


def test_the_first_launch_after_the_slots_waits_for_them():
    kernel = count_up()
    device, _ = opened(kernel)
    states = device.allocate(256, "states")
    early = Attributes(overlap=True)
    launch = Launch(0, (2, 1, 1), (BufferRef("states", 0, 256),), attributes=early)
    loaded = device.load([device.emit(kernel)])
    run = device.prepare(loaded, [launch, launch], {"states": states})
    assert run.record_with("states")
    _, calls = run._graph  # pyright: ignore[reportGeneralTypeIssues] - as the fake driver makes it
    assert [c.attributes for c in calls] == [PLAIN, PLAIN, early]


def test_a_graph_with_a_ring_gives_its_memory_back_when_it_is_done():
    device, driver = opened(count_up(), is_behind=True)
    states, run = brought(device, count_up())
    run.run_with(0, b"")
    del run
    gc.collect()
    assert driver.asked.index("synchronize") < driver.asked.index("release")
    device.free(states)
    assert driver.memory_at == {}


@pytest.mark.cuda
def test_a_real_recording_brings_bytes_along():
    device = opened_card("cuda-bindings")
    states, run = brought(device, count_up())
    want = np.zeros(64, np.int32)
    rng = np.random.default_rng(0)
    for n in range(2000):
        first, count = int(rng.integers(64)), int(rng.integers(64))
        raw = rng.integers(-1000, 1000, min(count, 64 - first), dtype=np.int32)
        run.make_room()
        run.run_with(4 * first, raw.tobytes())
        want[first : first + raw.size] = raw
        want += 1
        if n % 97 == 0:
            np.testing.assert_array_equal(words(device, states), want)
    np.testing.assert_array_equal(words(device, states), want)
    del run
    gc.collect()
    device.close()


@pytest.mark.parametrize("rounds", [1, 300])
def test_an_interrupt_after_a_replay_loses_no_count_of_slots(
    rounds: int, monkeypatch: pytest.MonkeyPatch
):
    k = count_up()
    driver = FakeDriver({k.name: k}, is_behind=True)
    device = fake_device(driver)
    states, run = counted(device, k)
    assert run.record_with("states")

    def bring(n: int) -> None:
        run.make_room()
        run.run_with(0, np.array([n], np.int32).tobytes())

    for n in range(rounds):
        bring(n)
    replay = FakeDriver.replay

    def interrupted(driver: FakeDriver, graph: object) -> None:
        replay(driver, graph)
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr(FakeDriver, "replay", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bring(2000)
    bring(3000)
    assert words(device, states)[0] == 3001


def test_a_list_runs_on_another_stream_as_its_launches():
    device, driver = opened(count_up())
    states, run = counted(device, count_up())
    run.record()
    driver.asked.clear()
    run.run_on(77)
    assert driver.asked == ["on stream 77", "launch count_up"]
    assert (words(device, states) == 1).all()
    device.free(states)  # pyright: ignore[reportArgumentType] - a buffer of the device
    with pytest.raises(LaunchError, match="has been freed"):
        run.run_on(77)
