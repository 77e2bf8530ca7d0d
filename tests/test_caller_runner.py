"""A program over memory that the caller gives: the process's own, and a card's in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

import poot
from poot import ops
from poot.api import Program
from poot.backends.cpu.pool import aligned
from poot.backends.cuda.device import CudaDevice
from poot.caller_runner import MOST_BOUND, CallerRunner, can_lie_at
from poot.codegen.attributes import Attributes
from poot.errors import BackendError, BindError, RangeError, ValidationError
from tests.support.everywhere import compile_on
from tests.support.ptx_device import ptx_device
from tests.support.sim_device import SimDevice

STREAM = 0x5EA


class Host:
    """The process's memory, for the CPU."""

    def __init__(self, device: object) -> None:
        self.made: dict[int, np.ndarray] = {}

    def take(self, nbytes: int) -> int:
        data = aligned(nbytes)
        self.made[data.ctypes.data] = data
        return data.ctypes.data

    def bytes(self, address: int, nbytes: int) -> np.ndarray:
        (data,) = (m for at, m in self.made.items() if at <= address < at + m.size)
        return data[address - data.ctypes.data :][:nbytes]


class Card:
    """A card's memory, for the device that runs PTX on numpy."""

    def __init__(self, device: CudaDevice) -> None:
        self._driver = device.driver

    def take(self, nbytes: int) -> int:
        return self._driver.allocate(nbytes)

    def bytes(self, address: int, nbytes: int) -> np.ndarray:
        return self._driver._bytes(address, nbytes)  # pyright: ignore[reportAttributeAccessIssue] - the stand-in's


class Caller:
    """A runner with memory of its own for all that a run asks for."""

    def __init__(self, target: str, graph: object, weights: Mapping[str, object] | None = None):
        if target == "ptx":
            program = poot.compile(graph, ptx_device(), cache=False)  # pyright: ignore[reportArgumentType] - a graph
        else:
            program = compile_on(target, graph)  # pyright: ignore[reportArgumentType] - a graph
        self.runner = CallerRunner(program, weights or {}, "main")
        self.place = (Card if target == "ptx" else Host)(self.runner.device)  # pyright: ignore[reportArgumentType] - its device
        self.at: dict[str, tuple[int, int]] = {}
        for work in self.runner.work:
            self.put(work.space, np.full(work.nbytes, 0xFF if work.is_rest else 0xA5, np.uint8))
        for o in self.runner.outputs:
            self.put(o.space, np.full(-(-o.type.nbytes // 16) * 16, 0xA5, np.uint8))
        self.stream = STREAM if target == "ptx" else None

    def put(self, space: str, data: np.ndarray) -> None:
        raw = data.reshape(-1).view(np.uint8)
        address, _ = self.at.get(space, (self.place.take(raw.size), 0))
        self.place.bytes(address, raw.size)[:] = raw
        self.at[space] = (address, raw.size)

    def put_slot(self, name: str, data: np.ndarray) -> None:
        """To its place among poot's own, as a slot with a range goes."""
        (o,) = (o for o in self.runner.slots if o.name == name)
        raw = data.reshape(-1).view(np.uint8)
        at = self.at[o.place.space][0] + o.place.offset
        self.place.bytes(at, raw.size)[:] = raw

    def run(self) -> None:
        word = self.runner.word
        if word is not None:
            at = self.at[word.space][0] + word.offset
            self.place.bytes(at, 4).view(np.uint32)[:] = 1
        self.runner.run(self.at, self.stream)

    def get(self, space: str, dtype: type[np.generic] = np.float32) -> np.ndarray:
        address, nbytes = self.at[space]
        return self.place.bytes(address, nbytes).view(dtype)

    def failure(self) -> object:
        return self.runner.failure(self.get("results", np.uint8)[: self.runner.records_nbytes])


BOTH = pytest.mark.parametrize("target", ["cpu", "ptx"])


def step(kv, x, w):
    kv = ops.dynamic_update_slice(kv, x, 1, axis=0)
    return kv @ w, kv


STEP = poot.trace(step, (poot.state((4, 8)), poot.slot((1, 8), "f32"), poot.weight((8, 8))))


@BOTH
def test_slots_states_and_outputs_lie_in_the_callers_memory(target):
    w = np.arange(64, dtype=np.float32).reshape(8, 8)
    caller = Caller(target, STEP, {"w": w})
    kv, x = np.ones((4, 8), np.float32), np.full((1, 8), 3, np.float32)
    caller.put("state:kv", kv)
    caller.put("slot:x", x)
    caller.run()
    kv[1] = 3
    np.testing.assert_array_equal(caller.get("state:kv").reshape(4, 8), kv)
    np.testing.assert_allclose(caller.get("out:0").reshape(4, 8), kv @ w)
    caller.put("slot:x", 2 * x)
    caller.run()
    assert (caller.get("state:kv").reshape(4, 8)[1] == 6).all()


def test_a_run_is_enqueued_on_the_callers_stream_and_allocates_nothing():
    caller = Caller("ptx", STEP, {"w": np.eye(8, dtype=np.float32)})
    caller.put("state:kv", np.ones((4, 8), np.float32))
    caller.put("slot:x", np.ones((1, 8), np.float32))
    driver = caller.runner.device.driver  # pyright: ignore[reportAttributeAccessIssue] - the stand-in's
    before = dict(driver.sizes)
    driver.asked.clear()
    caller.run()
    assert driver.asked[0] == f"on stream {STREAM}"
    assert all(row.startswith("launch") for row in driver.asked[1:])
    assert driver.sizes == before


@BOTH
def test_lists_stay_bound_to_their_addresses(target):
    caller = Caller(target, STEP, {"w": np.eye(8, dtype=np.float32)})
    caller.put("state:kv", np.ones((4, 8), np.float32))
    for n in range(MOST_BOUND + 3):
        caller.at.pop("slot:x", None)
        caller.put("slot:x", np.full((1, 8), n, np.float32))
        caller.run()
        assert (caller.get("state:kv").reshape(4, 8)[1] == n).all()
    assert len(caller.runner._ready) == MOST_BOUND


def at(cache, x, pos):
    cache = ops.dynamic_update_slice(cache, x, pos, axis=0)
    return cache.sum(axis=0), cache


AT = poot.trace(
    at, (poot.state((4, 8)), poot.slot((1, 8), "f32"), poot.slot((), "i32", range=(0, 4)))
)


@BOTH
def test_a_slot_with_a_range_is_checked_by_the_run_and_writes_no_state(target):
    caller = Caller(target, AT)
    assert [o.name for o in caller.runner.slots if o.is_fed] == ["pos"]
    caller.put("state:cache", np.ones((4, 8), np.float32))
    caller.put("slot:x", np.full((1, 8), 5, np.float32))
    caller.put_slot("pos", np.array([2], np.int32))
    caller.run()
    assert caller.failure() is None
    np.testing.assert_array_equal(caller.get("out:0")[:8], np.full(8, 8, np.float32))
    caller.put_slot("pos", np.array([7], np.int32))
    caller.put("slot:x", np.full((1, 8), 9, np.float32))
    caller.run()
    failed = caller.failure()
    assert isinstance(failed, RangeError)
    assert "7" in failed.message
    assert caller.get("state:cache").sum() == 24 + 40


@BOTH
def test_a_guard_that_fails_is_told_and_writes_no_state(target):
    def guarded(cache, i):
        at = ops.reshape(ops.checked(i[0:1], 0, 4), ())
        rows = ops.dynamic_update_slice(cache, cache[0:1] + 1.0, at, axis=0)
        return rows.sum(axis=0), rows

    caller = Caller(target, poot.trace(guarded, (poot.state((4, 8)), poot.slot((4,), "i32"))))
    caller.put("state:cache", np.ones((4, 8), np.float32))
    for index, total in ((3, 40), (4, 40)):
        caller.put("slot:i", np.array([index, 9, 9, 9], np.int32))
        caller.run()
        assert isinstance(caller.failure(), ValidationError if index == 4 else type(None))
        assert caller.get("state:cache").sum() == total


@BOTH
def test_memory_that_nothing_can_be_bound_at_is_refused(target):
    caller = Caller(target, STEP, {"w": np.eye(8, dtype=np.float32)})
    caller.put("state:kv", np.ones((4, 8), np.float32))
    address, nbytes = caller.at["state:kv"]
    for odd in ((address + 4, nbytes), (address, nbytes - 4), (address, 0)):
        caller.at["slot:x"] = odd
        with pytest.raises(BindError, match="slot:x needs whole vectors of 16 bytes"):
            caller.run()
    assert can_lie_at(64, 32)
    assert not can_lie_at(64, 30)


def test_what_only_the_host_can_check_is_refused():
    specs = (
        poot.state((4, 2, 8)), poot.slot((1, 2, 8), "f32"),
        poot.slot((1,), "i32", kind="write_map", range=(-1, 4)),
    )  # fmt: skip
    graph = poot.trace(lambda pool, x, to: (x, ops.scatter_update(pool, x, to)), specs)
    with pytest.raises(BindError, match=r"slot 'to' i32\[1\] of kind write_map is checked by the"):
        CallerRunner(compile_on("cpu", graph), {}, "main")


def test_a_device_that_works_in_its_own_memory_and_an_unknown_entry_are_refused():
    program = poot.compile(STEP, SimDevice())
    with pytest.raises(BackendError, match="works in its own memory alone: compile for cuda or"):
        CallerRunner(program, {"w": np.eye(8, dtype=np.float32)}, "main")
    with pytest.raises(BindError, match="no entry point 'other'; entry points: main"):
        CallerRunner(program, {}, "other")
    profile = poot.compile(STEP, "h200")
    assert isinstance(profile, Program)
    with pytest.raises(BackendError, match="h200 works in its own memory alone"):
        CallerRunner(profile, {"w": np.eye(8, dtype=np.float32)}, "main")


def test_the_first_launch_waits_for_what_the_caller_enqueued_before(monkeypatch):
    """A launch that may overlap the one before would overlap the caller's."""

    plain = Program.lists

    def early(program):
        lists = plain(program)
        attributes = Attributes(overlap=True)
        main = lists.lists["main"]
        main, feed = (
            replace(each, launches=tuple(replace(x, attributes=attributes) for x in each.launches))
            for each in (main, main.feed)
        )
        return replace(lists, lists={"main": replace(main, feed=feed)})

    monkeypatch.setattr(Program, "lists", early)
    launches = Caller("ptx", AT).runner._launches
    assert [x.attributes.overlap for x in launches] == [False, *[True] * (len(launches) - 1)]
    assert len(launches) > 1
