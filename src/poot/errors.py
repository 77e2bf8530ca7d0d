"""Every error that poot raises: one tree, one class a stage.

A message names the op, the rule that broke, the values seen, the user's line and, where there is
one, the remedy. `need` builds such a message.
"""

from __future__ import annotations

from dataclasses import dataclass


class PootError(Exception):
    """The root of poot's errors. `loc` is the user's file:line, or empty."""

    def __init__(self, message: str, loc: str = "") -> None:
        self.message = message
        self.loc = loc
        super().__init__(f"{message}\n  at {loc}" if loc else message)

    def located(self, loc: str) -> PootError:
        """The same error, at the user's line."""
        return type(self)(self.message, loc)


class TraceError(PootError):
    """The traced function did what a graph can't hold."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A call of a foreign program that can't be done, why, and its file:line there."""

    op: str
    why: str
    loc: str


class UnsupportedOps(TraceError):
    """A foreign program calls what its front end can't do; `ops` lists every such call."""

    def __init__(self, message: str, loc: str = "", *, ops: tuple[Unsupported, ...] = ()) -> None:
        self.ops = ops
        super().__init__(message, loc)

    def located(self, loc: str) -> UnsupportedOps:
        return UnsupportedOps(self.message, loc, ops=self.ops)


class TypeRuleError(PootError):
    """An eqn breaks its op's typing rule."""


class ParseError(PootError):
    """A text is no graph, or no kernel."""


class VerifyError(PootError):
    """A graph or kernel is malformed."""


class PassError(PootError):
    """A pass broke what it promised to leave."""


class CapabilityError(PootError):
    """The device can't do what the program needs. Raised at compile, never at launch."""


class AttentionLds(CapabilityError):
    """Not even one lane's running state fits the device's workgroup memory."""


class ScratchBytes(CapabilityError):
    """A declared scratch passes the device's largest buffer."""


class DtypeLowering(CapabilityError):
    """The target has no row for an op at this dtype, and nothing to fall back to."""


class GridLimit(CapabilityError):
    """A launch passes the device's grid, folded to two axes."""


class BindingLimit(CapabilityError):
    """A buffer passes the device's largest binding, or a launch needs too many bindings."""


class MemoryBudget(CapabilityError):
    """The program needs more device memory than there is, or than it was given."""


class SimulationError(PootError):
    """A simulated kernel did what no kernel may. `kind` is "out-of-bounds", "uninitialised",
    "race", "divergent-barrier", "deadlock", "in-flight", "misaligned" or "undefined".
    """

    def __init__(self, message: str, loc: str = "", kind: str = "undefined") -> None:
        self.kind = kind
        super().__init__(message, loc)

    def located(self, loc: str) -> SimulationError:
        return SimulationError(self.message, loc, self.kind)


class PlanError(PootError):
    """The independent check found the plan wrong."""


class DonationError(PlanError):
    """A State can't be updated in place: something reads its old value later."""


class BindError(PootError):
    """What was bound doesn't fit its input: name, shape or dtype."""


class RangeError(BindError):
    """A slot holds a word outside its declared range."""


class SlotMapError(BindError):
    """A write map names a slot twice, or one outside the pool."""


class StaleArray(BindError):
    """An output left on the device was touched after its session's next step."""


class ValidationError(PootError):
    """A guard failed on the device. Nothing of the step was published.

    `guard` names the op, `index` the first element that failed, `value` what stood there and
    `bounds` (lo, hi), hi excluded, what it had to lie in (both None where the guard is no
    index_guard), `count` how many elements failed."""

    def __init__(
        self,
        message: str,
        loc: str = "",
        *,
        guard: str = "",
        index: tuple[int, ...] = (),
        value: int | None = None,
        bounds: tuple[int, int] | None = None,
        count: int = 0,
    ) -> None:
        self.guard = guard
        self.index = index
        self.value = value
        self.bounds = bounds
        self.count = count
        super().__init__(message, loc)

    def located(self, loc: str) -> ValidationError:
        return ValidationError(
            self.message,
            loc,
            guard=self.guard,
            index=self.index,
            value=self.value,
            bounds=self.bounds,
            count=self.count,
        )


class BackendError(PootError):
    """The driver refused, or is not there."""


class BackendUnavailable(BackendError):
    """The target asked for can't run here; the message says why and what to install."""


class CaptureUnavailable(BackendError):
    """This backend, or this provider, has no replay."""


class OutOfDeviceMemory(BackendError):
    """An allocation failed; the message holds the bytes asked and, where known, the bytes free."""


class LaunchError(BackendError):
    """The driver refused a launch; the message names the kernel."""


class DeviceLost(BackendError):
    """The device is gone; a new session on a new device works."""


class SessionBusy(PootError):
    """A second thread called a session that is in use."""


class MissingExtra(PootError, ImportError):
    """A library that one of poot's extras brings isn't there; the message names the extra."""


class FormatError(PootError):
    """A file isn't what it says it is: checkpoint, cache entry or bundle."""


class KnobError(PootError):
    """An environment variable of poot's is unknown, or holds what it can't mean."""


class RequestError(PootError):
    """A generation can't be done as asked: capacity, sampling options, messages, text."""


def need(claim: bool, what: str, *, error: type[PootError] = TypeRuleError, **seen: object) -> None:
    """Raise `error` unless `claim`: "needs {what}: name=value, ...". Values print by `str`."""
    if not claim:
        values = ", ".join(f"{name}={value}" for name, value in seen.items())
        raise error(f"needs {what}: {values}" if values else f"needs {what}")
