"""A plan driven on a device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.errors import OutOfDeviceMemory
from poot.ir.graph import Weight
from poot.runner import DeviceRunner, upload_shared
from tests.support.everywhere import compile_on
from tests.support.faulty import FaultyDevice
from tests.support.steps import WEIGHTS, X, append_graph


def runner_on(device: FaultyDevice) -> DeviceRunner:
    program = replace(compile_on("simulator", append_graph()), device=device)
    lists = program.lists()
    shared = upload_shared(lists, device, WEIGHTS)
    return DeviceRunner(lists, device, device.load(program.codes), shared)


@pytest.fixture
def device() -> FaultyDevice:
    return FaultyDevice()


@pytest.fixture
def runner(device: FaultyDevice) -> DeviceRunner:
    made = runner_on(device)
    write(made, pos=2, at=5)
    return made


def write(runner: DeviceRunner, pos: int, at: int) -> None:
    runner.write_slot("main", "x", [(0, X)])
    runner.write_slot("main", "pos", [(0, np.array(pos, np.int32))])
    runner.write_slot("main", "at", [(0, np.array(at, np.int32))])


def go(runner: DeviceRunner, entry: str, *, fed: bool = False) -> None:
    """What a session does in a step."""
    runner.prepare(entry, fed)
    runner.send(entry, fed)
    runner.run(entry)


def state(runner: DeviceRunner) -> np.ndarray:
    (kv,) = [i for i in append_graph().inputs if i.name == "kv"]
    return runner.read_state(kv)


def test_a_step_reads_records_and_outputs_in_one_copy(runner: DeviceRunner, device: FaultyDevice):
    runner.prepare("main", False)
    runner.send("main", False)
    device.faults.calls.clear()
    runner.run("main")
    failed, (total, following) = runner.results("main", False)
    assert device.faults.calls == ["run", "copy_out"]
    assert failed is None
    assert following == 3
    np.testing.assert_array_equal(total, [5, 5, 5, 5])


def test_a_failed_step_has_no_outputs_and_leaves_state(runner: DeviceRunner):
    write(runner, 2, 8)
    go(runner, "main")
    failed, outputs = runner.results("main", False)
    assert failed is not None
    assert outputs == []
    assert not state(runner).any()
    assert str(runner.failure("main", False)) == str(failed)


def test_a_list_is_prepared_once(runner: DeviceRunner, device: FaultyDevice):
    for _ in range(2):
        runner.prepare("main", True)
        go(runner, "main", fed=True)
    assert device.faults.calls.count("prepare") == 2  # the entry point, and its feed
    assert runner.record("main")


def test_a_feed_clamps_what_it_refuses_and_the_next_step_starts_anew(
    runner: DeviceRunner, device: FaultyDevice
):
    write(runner, 99, 5)
    go(runner, "main", fed=True)
    failed = runner.failure("main", True)
    assert str(failed) == "slot 'pos' needs values in 0..7: [] is 99"
    assert not state(runner).any()
    write(runner, 1, 5)
    device.faults.calls.clear()
    go(runner, "main")
    assert device.faults.calls == ["copy_in", "run"]  # with the word put right
    assert runner.failure("main", False) is None
    go(runner, "main")
    assert device.faults.calls[2:] == ["copy_out", "run"]
    assert state(runner)[[1, 5]].tolist() == [[2] * 4, [3] * 4]


def test_parts_of_a_slot_are_written_where_they_belong(runner: DeviceRunner):
    runner.write_slot("main", "x", [(1, np.array([7.0, 8.0], np.float32))])
    go(runner, "main")
    assert state(runner)[2].tolist() == [2, 7, 8, 2]


def test_a_fork_has_states_and_slots_of_its_own_and_shares_weights(
    runner: DeviceRunner, device: FaultyDevice
):
    go(runner, "main")
    taken = device.allocated
    fork = runner.fork()
    weights = sum(i.var.type.nbytes for i in append_graph().inputs if isinstance(i.storage, Weight))
    assert device.allocated - taken == taken - max(weights, 64)
    fork.write_slot("main", "pos", [(0, np.array(0, np.int32))])
    go(fork, "main")
    assert state(fork)[0].tolist() == [2] * 4
    assert state(runner)[0].tolist() == [0] * 4


def test_a_closed_runner_has_given_its_memory_back(runner: DeviceRunner, device: FaultyDevice):
    runner.close()
    assert device.allocated <= 64  # the weights


def test_too_little_memory_is_the_devices_error(device: FaultyDevice):
    class Full(FaultyDevice):
        def allocate(self, nbytes: int, label: str):
            raise OutOfDeviceMemory(f"{label} asks {nbytes} bytes")

    with pytest.raises(OutOfDeviceMemory, match="asks"):
        runner_on(Full())


def test_launches_are_timed_by_step_and_kernel(runner: DeviceRunner):
    times = runner.timed("main")
    assert len(times) == len({(op, kernel, n) for n, (op, kernel, _) in enumerate(times)})
    assert any("matmul" in op for op, _, _ in times)
