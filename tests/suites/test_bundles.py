"""A program from a bundle does what the compiled one does, bit for bit, on every target."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import poot
from poot.bundle.load import LoadedProgram
from poot.errors import RangeError, ValidationError
from poot.session import Session
from tests.support.bundles import graph, slots, weights
from tests.support.captured import captured_or_refused
from tests.support.everywhere import compile_on, device_of, on

# The simulator runs kernels' bodies, which no bundle holds.
EVERYWHERE = on(but="simulator")


@dataclasses.dataclass
class Pair:
    """One program twice: as compiled, and as loaded from its bundle."""

    compiled: Session
    loaded: Session

    def step(self, **given):
        return self.compiled.step(**given), self.loaded.step(**given)

    def same_states(self) -> None:
        for name in self.compiled.state:
            assert self.compiled.state[name].tobytes() == self.loaded.state[name].tobytes()


@pytest.fixture
def pair(target, tmp_path):
    program = compile_on(target, graph())
    program.save(tmp_path / "x.poot", weights())
    loaded = poot.load(tmp_path / "x.poot", device_of(target))
    assert isinstance(loaded, LoadedProgram)
    made = Pair(program.bind(weights()), loaded.bind(tmp_path / "x.safetensors"))
    yield made
    made.compiled.close()
    made.loaded.close()


def same(one, other) -> None:
    assert list(one) == list(other)
    for name in one:
        assert np.asarray(one[name]).tobytes() == np.asarray(other[name]).tobytes()


@EVERYWHERE
def test_steps_are_the_same_bit_for_bit(pair):
    for n in range(4):
        same(*pair.step(**slots(n)))
    pair.same_states()
    captured_or_refused(pair.loaded)
    same(*pair.step(**slots(5)))


@EVERYWHERE
def test_errors_are_the_same_and_publish_nothing(pair):
    pair.step(**slots(0))
    for wrong, kind in (({"at": 99}, ValidationError), ({"pos": -1}, RangeError)):
        said: list[str] = []
        for session in (pair.compiled, pair.loaded):
            with pytest.raises(kind) as e:
                session.step(**{**slots(1), **wrong})
            said.append(str(e.value))
        assert said[0] == said[1]
        pair.same_states()
    same(*pair.step(**slots(1)))


@EVERYWHERE
def test_outputs_left_on_the_device_feed_the_next_step(pair):
    for session in (pair.compiled, pair.loaded):
        out = session.step(**slots(3), device_outputs=True)
        session.step(**{**slots(4), "pos": out["next"]}, device_outputs=True)
        session.wait()
    pair.same_states()
    fork = pair.loaded.fork()
    same(pair.compiled.step(**slots(5)), fork.step(**slots(5)))
    fork.close()


@pytest.mark.parametrize("target", ["vulkan", "wgpu"])
def test_a_program_for_webgpus_baseline_runs_on_any_device_with_that_much(target, tmp_path):
    poot.compile(graph(), "webgpu-baseline").save(tmp_path / "x.poot", weights())
    session = poot.load(tmp_path / "x.poot", device_of(target)).bind(tmp_path / "x.safetensors")
    own = compile_on(target, graph()).bind(weights())
    for n in range(3):
        got, want = session.step(**slots(n)), own.step(**slots(n))
        np.testing.assert_allclose(got["out"], want["out"], rtol=1e-5, atol=1e-6)
        assert got["next"] == want["next"]
    session.close()
    own.close()
