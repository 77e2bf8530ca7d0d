"""A device that fails at the n-th call, or in the middle of a launch list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from poot.backends.base import Launch
from poot.errors import LaunchError
from tests.support.sim_device import SimDevice, SimExecutable

CALLS = ("allocate", "copy_in", "copy_out", "copy", "prepare", "run")


@dataclass(slots=True)
class Faults:
    """What was called, and when to fail: at call number `at` (from 0) of those still to come, or
    after `after` launches of the next list."""

    calls: list[str] = field(default_factory=list)
    at: int | None = None
    after: int | None = None

    def call(self, name: str) -> None:
        self.calls.append(name)
        if self.at is not None:
            self.at -= 1
            if self.at < 0:
                self.at = None
                raise LaunchError(f"{name} fails, as asked")


@dataclass(frozen=True, slots=True)
class FaultyExecutable:
    """A simulated launch list that may stop part-way."""

    inner: SimExecutable
    faults: Faults

    def run(self) -> None:
        self.faults.call("run")
        if self.faults.after is None:
            self.inner.run()
            return
        done, self.faults.after = self.faults.after, None
        replace(self.inner, launches=self.inner.launches[:done]).run()
        raise LaunchError(f"the list stops after {done} launches, as asked")

    def timed(self) -> list[float]:
        self.run()
        return [float("nan")] * len(self.inner.launches)

    def record(self) -> bool:
        return self.inner.record()

    @property
    def is_replay(self) -> bool:
        return True


class FaultyDevice(SimDevice):
    """The simulator's device; `faults` says what goes wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.faults = Faults()

    def allocate(self, nbytes: int, label: str):
        self.faults.call("allocate")
        return super().allocate(nbytes, label)

    def copy_in(self, buffer: object, offset: int, data) -> None:
        self.faults.call("copy_in")
        super().copy_in(buffer, offset, data)

    def copy_out(self, buffer: object, offset: int, nbytes: int):
        self.faults.call("copy_out")
        return super().copy_out(buffer, offset, nbytes)

    def copy(
        self, source: object, source_offset: int, target: object, target_offset: int, nbytes: int
    ) -> None:
        self.faults.call("copy")
        data = SimDevice.copy_out(self, source, source_offset, nbytes)
        SimDevice.copy_in(self, target, target_offset, data)

    def prepare(self, loaded: object, launches: Sequence[Launch], buffers: dict[str, object]):
        self.faults.call("prepare")
        return FaultyExecutable(super().prepare(loaded, launches, buffers), self.faults)
