"""The C runtime does what Python does with the same bundle, bit for bit on the same device."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import poot
from poot.bundle.archive import pack_archive
from poot.bundle.write import MANIFEST
from poot.errors import RangeError, ValidationError
from tests.support import bundles
from tests.support.bundles import changed, graph, members, program, resealed, slots, weights, whole
from tests.support.c_runtime import (
    BIND,
    CAPABILITY,
    FORMAT,
    RANGE,
    SLOT_MAP,
    VALIDATION,
    Device,
    Failed,
    Handles,
    Program,
    Session,
    has_vulkan,
    leaves,
    library,
)
from tests.support.engine import Engine
from tests.support.everywhere import device_of, on

DEVICES = on("cpu", "vulkan", "cuda")


class Both:
    """A bundle in Python and in C, on one device."""

    def __init__(self, target: str, path: Path) -> None:
        source = poot.compile(graph(), "cpu-avx2" if target == "cpu" else device_of(target).limits)
        source.save(path, weights())
        beside = path.with_suffix(".safetensors")
        self.python = poot.load(path, device_of(target)).bind(beside)
        if target == "vulkan" and not has_vulkan():
            pytest.skip("no Vulkan headers: apt-get install libvulkan-dev")
        self.device, self.program = Device(target), Program(path.read_bytes())
        self.c = Session(self.program, self.device, beside)

    def step(self, n: int, **other: object) -> None:
        """A step in both, with the same outputs."""
        given = {**slots(n), **other}
        got = self.c.step(**given)
        for one, two in zip(leaves(self.python.step(**given)), got, strict=True):
            assert one.tobytes() == two.tobytes()

    def same_states(self) -> None:
        for name, value in self.python.state.items():
            assert self.c.state(name, value).tobytes() == value.tobytes()

    def close(self) -> None:
        self.python.close()
        self.c.close()
        self.program.close()
        self.device.close()


@pytest.fixture
def both(target, tmp_path):
    made = Both(target, tmp_path / "x.poot")
    yield made
    made.close()


@DEVICES
def test_steps_are_the_same_bit_for_bit(both):
    for n in range(6):
        both.step(n)
    both.same_states()
    both.c.reset()
    both.python.reset()
    both.same_states()
    both.step(7)


@DEVICES
def test_a_guard_that_fails_says_the_same_and_publishes_nothing(both):
    both.step(0)
    with pytest.raises(ValidationError) as e:
        both.python.step(**{**slots(1), "at": 99})
    with pytest.raises(Failed) as f:
        both.c.step(**{**slots(1), "at": 99})
    assert (f.value.status, f.value.message) == (VALIDATION, e.value.message)
    assert (f.value.where, f.value.value) == (e.value.loc, 99)
    both.same_states()
    both.step(2)


@DEVICES
def test_a_word_outside_its_range_says_the_same_before_anything_runs(both):
    both.step(0)
    for wrong in ({"pos": 8}, {"read": np.full((1, 8), 32)}):
        with pytest.raises(RangeError) as e:
            both.python.step(**{**slots(1), **wrong})
        with pytest.raises(Failed) as f:
            both.c.give(**wrong)
        assert (f.value.status, f.value.message) == (RANGE, e.value.message)
    both.step(1)


@DEVICES
def test_states_are_read_and_written_by_copy(both):
    value = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)
    both.c.write_state("states.0", value)
    both.python.state["states.0"] = value
    both.same_states()
    both.step(3)


@DEVICES
def test_a_part_of_a_slot_is_checked_and_written_alone(both):
    both.step(0)
    both.c.give_part("read", 3, np.array([7, 31], np.int32))
    both.python.slots["read"].update(0, [3, 4], [7, 31])
    for one, two in zip(leaves(both.python.step()), both.c.step(), strict=True):
        assert one.tobytes() == two.tobytes()
    with pytest.raises(Failed, match=r"slot 'read' needs values in 0\.\.31: \[0, 5\] is 32"):
        both.c.give_part("read", 4, np.array([7, 32], np.int32))
    for slot, first in (("read", 7), ("write", 0), ("nowhere", 0)):
        with pytest.raises(Failed) as e:
            both.c.give_part(slot, first, np.array([1, 2], np.int32))
        assert e.value.status == BIND


@DEVICES
@pytest.mark.parametrize(
    "ask, status, said",
    [
        (lambda s: s.step(), BIND, "needs the slot x"),
        (lambda s: s.step(1), BIND, "no entry point 1; there are 1"),
        (lambda s: s.give(nowhere=1), BIND, "has no slot nowhere"),
        (lambda s: s.give(pos=[1, 2]), BIND, "needs 4 bytes: got 8"),
        (lambda s: s.give(write=[-2]), RANGE, "0..31: [0] is -2"),
        (lambda s: s.give_part("read", 0, np.zeros(1, np.int32)), BIND, "holds nothing yet"),
        (lambda s: s.output(0), BIND, "wasn't the last step"),
        (lambda s: s.state("x", np.zeros(3)), BIND, "no State x"),
        (lambda s: s.state("states.0", np.zeros(3)), BIND, "has 512 bytes: got 24"),
    ],
)
def test_what_does_not_fit_is_refused(both, ask, status, said):
    with pytest.raises(Failed) as e:
        ask(both.c)
    assert e.value.status == status
    assert said in e.value.message


def test_a_write_map_that_names_a_slot_twice_is_refused(tmp_path):
    def put(pool, x, write):
        return x.sum(), ops_scatter(pool, x, write)

    def ops_scatter(pool, x, write):
        return poot.ops.scatter_update(pool, x, write)

    specs = (poot.state((8, 2)), poot.slot((3, 2), "f32"), poot.slot((3,), "i32", kind="write_map",
             range=(-1, 8)))  # fmt: skip
    poot.compile(poot.trace(put, specs), "cpu-avx2").save(tmp_path / "x.poot")
    device, made = Device("cpu"), Program((tmp_path / "x.poot").read_bytes())
    session = Session(made, device, None)
    session.step(x=np.ones((3, 2)), write=[-1, 4, -1])
    with pytest.raises(Failed) as e:
        session.give(write=[4, -1, 4])
    assert (e.value.status, "4 stands twice" in e.value.message) == (SLOT_MAP, True)
    session.close()
    made.close()
    device.close()


def test_a_program_tells_what_it_takes_and_gives():
    made = Program(whole())
    inputs = {t.name.decode(): t for t in made.tensors("input")}
    assert set(inputs) == {"w.a", "w.b", "w.c", "states.0", "states.1", "x", "pos", "at", "write",
                           "read"}  # fmt: skip
    pos = inputs["pos"]
    assert (pos.kind, pos.has_range, pos.low, pos.high, pos.rank) == (b"pos", 1, 0, 8, 0)
    assert list(inputs["w.b"].shape[:2]) == [16, 3]
    assert [t.nbytes for t in made.tensors("output")] == [8 * 3 * 4, 4]
    assert library().poot_program_target(made.handle) == b"llvm"
    assert library().poot_program_memory(made.handle) == program().memory().nbytes
    made.close()


def test_a_bundle_that_asks_for_absurd_memory_is_refused_before_it_is_taken(tmp_path):
    def grow(m):
        for row in m["buffers"]:
            row["nbytes"] += 1 << 50 if row["name"] == "states" else 0
        m["needs"]["buffer_nbytes"] += 1 << 50
        m["needs"]["memory_nbytes"] += 1 << 50

    (tmp_path / "x.poot").write_bytes(changed(grow))
    with pytest.raises(poot.errors.CapabilityError, match="needs buffer_nbytes"):
        poot.load(tmp_path / "x.poot", "cpu")
    device, made = Device("cpu"), Program(changed(grow))
    with pytest.raises(Failed, match="bytes of memory: there are") as e:
        Session(made, device, None)
    assert e.value.status == CAPABILITY
    made.close()
    device.close()


def test_another_devices_program_and_a_named_processors_are_refused(tmp_path):
    poot.compile(graph(), "lavapipe").save(tmp_path / "x.poot", weights())
    for data, said in (
        ((tmp_path / "x.poot").read_bytes(), "needs a device that takes spirv: the cpu takes llvm"),
        (changed(lambda m: m["needs"].update(arch="znver9,+avx2")), "for the processor znver9"),
        (changed(lambda m: m["needs"].update(arch="x86-64-v3,+xyz")), "lacks"),
    ):
        device, made = Device("cpu"), Program(data)
        with pytest.raises(Failed) as e:
            Session(made, device, None)
        assert e.value.status == CAPABILITY
        assert said in e.value.message
        made.close()
        device.close()


def test_weights_that_are_missing_or_others_are_refused(tmp_path):
    program().save(tmp_path / "x.poot", weights())
    data = (tmp_path / "x.safetensors").read_bytes()
    device, made = Device("cpu"), Program(whole())
    for raw, status in (
        (None, BIND),
        (b"", FORMAT),
        (data[:-100], FORMAT),
        (data.replace(program().key.encode(), b"0" * 64), BIND),
        (data.replace(b'"w.c"', b'"w.x"'), FORMAT),
    ):
        file = tmp_path / "y.safetensors"
        if raw is not None:
            file.write_bytes(raw)
        with pytest.raises(Failed) as e:
            Session(made, device, None if raw is None else file)
        assert e.value.status == status
    made.close()
    device.close()


CHANGES = [
    lambda m: m.update(version=2),
    lambda m: m["entries"][0]["launches"][0].update(kernel=999),
    lambda m: m["entries"][0]["launches"][0]["buffers"][0].update(offset=1 << 40),
    lambda m: m["entries"][0]["launches"][0]["buffers"].pop(),
    lambda m: m["entries"][0]["outputs"][0].update(shape=[1 << 30]),
    lambda m: m["entries"][0]["guards"].pop(),
    lambda m: m["entries"][0]["inputs"][0].update(storage="const"),
    lambda m: m["residents"][1].update(offset=0, buffer=m["residents"][0]["buffer"]),
    lambda m: m["buffers"][0].update(nbytes=1 << 50),
    lambda m: m["kernels"][0].update(file="consts/consts.bin"),
    lambda m: m["kernels"][0].update(name="a b"),
    lambda m: m.update(entries=[]),
    lambda m: m.pop("needs"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_manifest_that_lies_is_refused_as_in_python(change):
    data = changed(change)
    with pytest.raises(poot.errors.FormatError):
        bundles.read(data)
    with pytest.raises(Failed) as e:
        Program(data)
    assert e.value.status == FORMAT


def test_a_damaged_object_file_is_refused_at_the_bind(tmp_path):
    program().save(tmp_path / "x.poot", weights())
    name = next(n for n in members() if n.endswith("panels.o"))
    device = Device("cpu")
    for raw in (b"", members()[name][:100], members()[name].replace(b"\x3e\0\1\0", b"\x28\0\1\0")):
        made = Program(resealed({name: raw}))
        with pytest.raises(Failed) as e:
            Session(made, device, tmp_path / "x.safetensors")
        assert e.value.status == FORMAT
        made.close()
    device.close()


def test_json_with_more_keys_than_any_program_is_refused():
    head = json.loads(members()[MANIFEST]) | {str(n): n for n in range(20000)}
    with pytest.raises(Failed, match="too many keys"):
        Program(pack_archive({**members(), MANIFEST: json.dumps(head).encode()}))


@on("vulkan")
def test_an_engines_own_device_and_command_buffer_serve(target, tmp_path):
    if not has_vulkan():
        pytest.skip("no Vulkan headers: apt-get install libvulkan-dev")
    device_of(target)
    engine = Engine()
    source = poot.compile(graph(), engine.driver.limits)
    source.save(tmp_path / "x.poot", weights())
    python = poot.load(tmp_path / "x.poot", device_of(target)).bind(tmp_path / "x.safetensors")
    device, made = engine.adopted(), Program((tmp_path / "x.poot").read_bytes())
    session = Session(made, device, tmp_path / "x.safetensors")
    with pytest.raises(Failed) as e:
        engine.record(session)
    assert (e.value.status, "needs the slot x" in e.value.message) == (BIND, True)
    session.give(**slots(0))
    recording = engine.record(session)
    for n in range(3):
        session.give(**slots(n))
        engine.driver.run(recording, "an engine's frame")
        got = session.settle()
        for one, two in zip(leaves(python.step(**slots(n))), got, strict=True):
            assert one.tobytes() == two.tobytes()
    session.give(**{**slots(3), "at": 99})
    engine.driver.run(recording, "an engine's frame")
    with pytest.raises(Failed) as e:
        session.settle()
    assert e.value.status == VALIDATION
    for name, value in python.state.items():
        assert session.state(name, value).tobytes() == value.tobytes()
    engine.driver.release(recording)
    session.close()
    made.close()
    device.close()


def test_a_device_without_its_handles_is_refused(tmp_path):
    if not has_vulkan():
        pytest.skip("no Vulkan headers: apt-get install libvulkan-dev")
    with pytest.raises(Failed, match="needs all its handles"):
        Device.adopt(Handles())
    device, made = Device("cpu"), Program(whole())
    program().save(tmp_path / "x.poot", weights())
    session = Session(made, device, tmp_path / "x.safetensors")
    with pytest.raises(Failed, match="needs a Vulkan device"):
        session.record(0)
    session.close()
    made.close()
    device.close()
