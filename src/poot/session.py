"""A bound program: device memory, State, and the steps that change it. Used by one thread at a
time."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import numpy as np

from poot.binding import as_array, bind_weights, dotted, need_flag, need_names
from poot.bound_slots import Bound, Slots
from poot.device_array import DeviceArray
from poot.errors import BackendError, BindError, LaunchError, StaleArray
from poot.foreign_array import on_device
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Input, Slot, State
from poot.ir.transaction import can_be_fed
from poot.ir.tree import Tree, unflatten
from poot.launch_lists import Signature
from poot.locks import Exclusive, Locked
from poot.profile import Profile
from poot.program import Bindable
from poot.quick_step import QuickStep
from poot.runner import Failure, Runner
from poot.slots import WRITE_MAP
from poot.step_slots import HeldSlots, SlotCheck


class Writing:
    """Where anything but a guard stops the body, the States that it writes are unknown."""

    def __init__(self, session: Session, signature: Signature) -> None:
        self._session, self._signature = session, signature

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._session.states_stopped(self._signature)


class States(MutableMapping[str, np.ndarray]):
    """`session.state`: State by name, read and written by copy."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def _input(self, name: str) -> Input:
        found = self._session.state_inputs.get(name) if name in self else None
        if found is None:
            known = ", ".join(sorted(self._session.state_inputs)) or "none"
            raise BindError(f"there is no State {name!r}; States: {known}")
        return found

    def __getitem__(self, name: str) -> np.ndarray:
        with self._session.exclusive():
            i = self._input(name)
            self._session.need_known(name)
            return self._session.runner.read_state(i)

    def __setitem__(self, name: str, value: object) -> None:
        i = self._input(name)
        array = as_array(on_device(self._session.runner.device, value, name), name, i.var.type)
        want = DTYPES[i.var.type.dtype].numpy
        if array.dtype != want or array.shape != i.var.type.shape:
            shape = ",".join(map(str, array.shape))
            raise BindError(f"State {name} needs {i.var.type}: got {array.dtype}[{shape}]")
        with self._session.exclusive():
            self._session.runner.write_state(i, array)
            self._session.state_written(name)

    def __delitem__(self, name: str) -> None:
        raise BindError(f"State {name!r} can't be deleted; session.reset() zeroes it")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._session.state_inputs

    def __iter__(self) -> Iterator[str]:
        return iter(self._session.state_inputs)

    def __len__(self) -> int:
        return len(self._session.state_inputs)


@dataclass(frozen=True, slots=True)
class Replay:
    """A captured entry point: call it with slots by name. `is_replay` is False where the backend
    re-encodes."""

    session: Session
    entry: str
    is_replay: bool

    def __call__(self, *, device_outputs: bool | None = None, **slots: object) -> object:
        return self.session.step(self.entry, device_outputs=device_outputs, **slots)


@dataclass(frozen=True, slots=True)
class StepTicket:
    """Outputs of one step, by its number: theirs until the session's next."""

    session: Session
    number: int

    @contextmanager
    def held(self) -> Generator[None]:
        with self.session.locked():
            self.session.need_step(self.number)
            yield


class Session:
    """Device memory and State of one bound program. `Program.bind` makes it; `close` frees what it
    owns.

    A step is a transaction: where it raises ValidationError or RangeError, no State differs from
    before it. Where a launch or a copy failed in mid-step, what it left of the States that it
    writes is unknown, and the session refuses to go on until they are written or reset."""

    def __init__(
        self,
        program: Bindable,
        runner: Runner,
        signatures: Mapping[str, Signature],
        device_outputs: bool = False,
    ) -> None:
        self.program = program
        self.runner = runner
        self._signatures = signatures
        self._device_outputs = device_outputs
        self._slot_checks = {
            entry: {i.name: SlotCheck(i) for i in s.inputs if isinstance(i.storage, Slot)}
            for entry, s in signatures.items()
        }
        lock = threading.RLock()
        self._exclusive, self._locked = Exclusive(lock), Locked(lock)
        self._held = HeldSlots()
        self._quick: dict[str, QuickStep] = {}
        self._number = 0
        self._pending: tuple[str, tuple[str, ...]] | None = None
        self._failed: Failure | None = None
        self._unknown: set[str] = set()
        self.state_inputs = {
            i.name: i for s in signatures.values() for i in s.inputs if isinstance(i.storage, State)
        }
        self.state = States(self)
        self.slots = Slots(self)

    def exclusive(self) -> Exclusive:
        """What a session does it does in here: one thread at a time, until it is closed. Entering
        it raises SessionBusy in a second thread, and BindError after `close`."""
        return self._exclusive

    def locked(self) -> Locked:
        """One thread at a time, closed or not. Entering it raises SessionBusy in a second one."""
        return self._locked

    def _signature(self, entry: str) -> Signature:
        if (
            not isinstance(cast("object", entry), str) or entry not in self._signatures
        ):  # the user's
            raise BindError(
                f"there is no entry point {entry!r}; entry points: "
                f"{', '.join(sorted(self._signatures))}"
            )
        return self._signatures[entry]

    # Weights

    @property
    def binds(self) -> int:
        """How often Weights were bound: 1 at first. Forks share them, and the number."""
        return self.runner.binds

    def rebind(self, weights: Mapping[str, object], *, allow_nonfinite: bool = False) -> None:
        """Puts other arrays in the place of some Weights or of all, checked as by `Program.bind`.
        State stays as it is. Forks have the new ones too, so none may be in a step meanwhile.
        Raises BindError, and then nothing has changed, or a BackendError, after which the Weights
        are those of before or those given, each one; `binds` has grown by then."""
        named = need_names(weights, "rebind")
        given = {name: on_device(self.runner.device, x, name) for name, x in named.items()}
        arrays = bind_weights(self._signatures, given, allow_nonfinite, all_of_them=False)
        with self.exclusive():
            self._settle()
            self.runner.write_weights(arrays)

    # Slots

    def slot_inputs(self) -> dict[tuple[str, str], Input]:
        """Every slot by (entry point, name)."""
        return {
            (entry, name): check.input
            for entry, checks in self._slot_checks.items()
            for name, check in checks.items()
        }

    def bound_slot(self, entry: str, name: str) -> Bound | None:
        """What the slot holds, for `session.slots`."""
        return self._held.get((entry, name), self._slot_checks[entry][name])

    def bind_slot(self, entry: str, name: str, value: object) -> None:
        """Binds a whole slot between steps, checked as at a step. A device array is bound at a step
        alone."""
        if isinstance(value, DeviceArray):
            raise BindError(f"slot {name!r} takes a device array at a step, which checks it there")
        with self.exclusive():
            self._send(entry, {name: self._slot_checks[entry][name](value)})

    def change_slot(
        self, entry: str, name: str, host: np.ndarray | None, parts: list[tuple[int, np.ndarray]]
    ) -> None:
        """Writes runs of a slot's elements; `host` is the whole slot after it, where known."""
        self.runner.write_slot(entry, name, parts)
        self._held.put((entry, name), host)

    def _check_slots(
        self, entry: str, slots: Mapping[str, object]
    ) -> dict[str, np.ndarray | DeviceArray]:
        """Every slot checked, before anything is written. Raises BindError or RangeError."""
        checks = self._slot_checks[entry]
        given: dict[str, np.ndarray | DeviceArray] = {}
        for name, v in slots.items():
            check = checks.get(name)
            if check is None:
                raise self._unknown_slots(entry, slots)
            value = on_device(self.runner.device, v, name)
            if isinstance(value, DeviceArray):
                given[name] = self._check_device_array(check.input, value)
            else:
                given[name] = check(value)
        if len(given) < len(checks):
            held = self._held
            missing = sorted(n for n in checks if n not in given and (entry, n) not in held)
            if missing:
                raise BindError(f"entry point {entry!r} needs the slots {', '.join(missing)}")
        return given

    def _unknown_slots(self, entry: str, slots: Mapping[str, object]) -> BindError:
        checks = self._slot_checks[entry]
        unknown = sorted(set(slots) - set(checks))
        known = ", ".join(sorted(checks)) or "none"
        return BindError(
            f"entry point {entry!r} has no slot {', '.join(unknown)}; slots: {known}"
            f"{dotted(unknown, checks)}"
        )

    def _check_device_array(self, i: Input, given: DeviceArray) -> DeviceArray:
        """What the host can tell of a device array. Its words are checked by the device."""
        slot = i.storage
        assert isinstance(slot, Slot)
        if given.type != i.var.type:
            raise BindError(f"input {i.name!r} needs {i.var.type}: got {given.type}")
        if slot.kind == WRITE_MAP:
            raise BindError(
                f"slot {i.name!r} of kind write_map needs a ForwardSlotMap, made on the host"
            )
        if slot.range is not None and not can_be_fed(i):
            raise BindError(
                f"slot {i.name!r} {i.var.type} has a range that only the host can check; give it "
                "the array's .numpy()"
            )
        with given.held():
            if given.stored().device is not self.runner.device:
                raise BindError(
                    f"slot {i.name!r} got an array of another device; give it the array's .numpy()"
                )
        return given

    def _send(self, entry: str, given: Mapping[str, np.ndarray | DeviceArray]) -> None:
        """Binds what was given, where it differs from what is bound."""
        for name, value in given.items():
            key = entry, name
            if isinstance(value, DeviceArray):
                self._held.drop(key)
                with value.held():
                    self.runner.feed_slot(entry, name, value.stored())
                self._held.put(key, None)
                continue
            changed = self._held.take(key, value)
            if changed is not None:
                self.runner.write_whole(entry, name, changed)

    # Steps

    def _begin(self, entry: str, slots: Mapping[str, object]) -> tuple[str, ...]:
        """All that comes before the first launch. The names of the slots that the device has to
        check. What raises here has changed no State."""
        self._settle()
        self._need_known()
        given = self._check_slots(entry, slots)
        fed: tuple[str, ...] = ()
        for name, value in given.items():
            if isinstance(value, DeviceArray) and can_be_fed(self._slot_checks[entry][name].input):
                fed = (*fed, name)
        self.runner.prepare(entry, bool(fed))
        self._send(entry, given)
        try:
            self.runner.send(entry, bool(fed))
        except BackendError:
            self._unbind(entry, fed)
            raise
        self._number += 1
        self._failed = None
        return fed

    def _unbind(self, entry: str, fed: Sequence[str]) -> None:
        """Slots that the device has clamped, or may have, hold nothing."""
        for name in fed:
            self._held.drop((entry, name))

    def states_stopped(self, signature: Signature) -> None:
        """A step stopped part-way: what the States that it writes hold is unknown."""
        self._unknown |= set(signature.written)

    def _need_known(self) -> None:
        if self._unknown:
            raise LaunchError(
                f"a step stopped part-way, and {', '.join(sorted(self._unknown))} may be half "
                "written; write each by session.state, or session.reset() all to zeros"
            )

    def need_known(self, name: str) -> None:
        """Raises LaunchError where a step that stopped part-way may have half written a State."""
        if name in self._unknown:
            self._need_known()

    def state_written(self, name: str) -> None:
        """A State that was written whole is known again."""
        self._unknown.discard(name)

    def _settle(self) -> None:
        """Reads how the last step with device outputs went. Raises its error, once."""
        if self._pending is not None:
            entry, fed = self._pending
            failed = self.runner.failure(entry, bool(fed))
            self._pending = None
            self._note(failed, entry, fed)
            if failed is not None:
                raise failed

    def _note(self, failed: Failure | None, entry: str, fed: tuple[str, ...]) -> None:
        """A failed step's outputs don't exist, and slots that failed on the device are unbound."""
        self._failed = failed
        if failed is not None:
            self._unbind(entry, fed)

    def need_step(self, number: int) -> None:
        """Raises StaleArray where that step is not the last, and what it raises itself."""
        if number != self._number:
            raise StaleArray(
                "this output was valid until its session's next step (or close), which has "
                "been; keep one by out.copy() or out.numpy()"
            )
        self._settle()
        if self._failed is not None:
            raise self._failed

    def step(
        self, entry: str = "main", /, *, device_outputs: bool | None = None, **slots: object
    ) -> object:
        """Runs an entry point and returns its outputs as numpy, nested as the traced function
        nested them; with `device_outputs` (None: as the session was bound), as DeviceArrays that
        are valid until the next step.

        A slot not given keeps what it was given last; one may be given as a DeviceArray of the same
        device, or another library's array in its memory. Raises BindError, RangeError,
        ValidationError (nothing is published) or a BackendError. With `device_outputs` the errors
        of guards and of slots from the device are raised at the first of: reading an output, the
        next step, `wait`."""
        stays = self._device_outputs
        if device_outputs is not None:
            stays = need_flag(device_outputs, "device_outputs")
        with self._exclusive:
            signature = self._signature(entry)
            quick = self._quick.get(entry)
            if quick is None or not self._step_quickly(signature, quick, slots):
                fed = self._step_at_length(entry, signature, slots)
            else:
                fed = ()
            if stays:
                self._pending = (entry, fed)
                ticket = StepTicket(self, self._number)
                stored = self.runner.stored(entry) if quick is None else quick.stored
                return _nested(signature, [DeviceArray(s, ticket) for s in stored])
            with Writing(self, signature):
                failed, outputs = self.runner.results(entry, bool(fed))
            self._note(failed, entry, fed)
            if failed is not None:
                raise failed
        return _nested(signature, outputs)

    def _step_at_length(
        self, entry: str, signature: Signature, slots: Mapping[str, object]
    ) -> tuple[str, ...]:
        with self.runner.together():
            fed = self._begin(entry, slots)
            with Writing(self, signature):
                self.runner.run(entry)
        return fed

    def _step_quickly(
        self, signature: Signature, quick: QuickStep, slots: Mapping[str, object]
    ) -> bool:
        """The same for a recorded entry point whose slots are plain; False where these aren't, and
        then nothing has run."""
        if self._pending is not None:
            self._settle()
        if self._unknown or not quick.send(slots):
            return False
        self._number += 1
        self._failed = None
        try:
            quick.run()
        except BaseException:
            self.states_stopped(signature)
            raise
        return True

    def capture(self, entry: str = "main") -> Replay:
        """A runner of one entry point whose launches are recorded once, where the backend can
        (`is_replay`)."""
        with self.exclusive():
            self._signature(entry)
            is_replay = self.runner.record(entry)
            carried = self.runner.carried(entry)
            if carried is not None:
                checks = self._slot_checks[entry]
                self._quick[entry] = QuickStep(entry, checks, self._held, carried)
            return Replay(self, entry, is_replay)

    def reset(self) -> None:
        """Zeroes every State."""
        with self.exclusive():
            for i in self.state_inputs.values():
                self.runner.write_state(
                    i, np.zeros(i.var.type.shape, DTYPES[i.var.type.dtype].numpy)
                )
                self.state_written(i.name)

    def fork(self) -> Session:
        """Another session over the same weights, with a copy of State and slots."""
        with self.exclusive():
            self._need_known()
            fork = self.runner.fork()
            other = Session(self.program, fork, self._signatures, self._device_outputs)
            other._held = self._held.copy()
        return other

    def profile(self, entry: str = "main", **slots: object) -> Profile:
        """Runs the entry point once more with a time for each launch. It is a step: State moves on,
        and it raises what a step raises. Slots are given by the host."""
        with self.exclusive():
            signature = self._signature(entry)
            if any(isinstance(v, DeviceArray) for v in slots.values()):
                raise BindError("a profile takes slots from the host; give it .numpy()")
            self._begin(entry, slots)
            with Writing(self, signature):
                times = self.runner.timed(entry)
                failed = self.runner.failure(entry, False)
            self._note(failed, entry, ())
            if failed is not None:
                raise failed
            return Profile(entry, tuple(times))

    def wait(self) -> None:
        """Returns when everything enqueued is done. Raises what the last step's guards found."""
        with self.exclusive():
            self.runner.wait()
            self._settle()

    def close(self) -> None:
        """Frees the session's device memory. Using it after raises BindError, its outputs left on
        the device StaleArray; closing it again does nothing."""
        with self.locked():
            if not self._exclusive.is_open:
                return
            self._exclusive.is_open = False
            self._number += 1
            self._pending = None
            self._quick.clear()
            self.runner.close()


def _nested(signature: Signature, outputs: Sequence[object]) -> object:
    tree = signature.tree
    return unflatten(tree, list(outputs)) if isinstance(tree, Tree) else tuple(outputs)
