"""A bound program: device memory, State, and the steps that change it. Used by one thread at a
time."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from poot.backends.base import Lease
from poot.errors import BindError, SessionBusy, ValidationError
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Graph, Input, Slot, State, TensorType, Weight
from poot.ir.tree import Tree, unflatten
from poot.program import Compiled
from poot.runner import Runner
from poot.slots import check_slot


def as_array(value: object, name: str, type: TensorType) -> np.ndarray:
    """What the caller gave, as numpy without a copy where that can be: numpy, DLPack, the buffer
    protocol, numbers.

    Raises BindError where it is no array."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)  # pyright: ignore[reportArgumentType] - it has __dlpack__
        except (BufferError, RuntimeError, TypeError) as e:
            raise BindError(f"{name} can't be read over DLPack: {e}; hand it over as numpy") from e
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as e:
        raise BindError(f"{name} needs an array of {type}: {e}") from e
    want = DTYPES[type.dtype]
    if (
        array.dtype == np.int64
        and want.kind in ("int", "uint")
        and not isinstance(value, np.ndarray)
    ):
        return array
    if array.dtype == np.float64 and want.kind == "float" and not isinstance(value, np.ndarray):
        return array.astype(want.numpy)
    return array


def check_weight(i: Input, value: object, allow_nonfinite: bool) -> np.ndarray:
    """A weight's array, of its type exactly. Raises BindError naming the input, what was seen and
    the remedy."""
    array = as_array(value, i.name, i.var.type)
    want = DTYPES[i.var.type.dtype].numpy
    if array.dtype != want or array.shape != i.var.type.shape:
        raise BindError(
            f"{i.name} needs {i.var.type}: got {array.dtype}[{','.join(map(str, array.shape))}]; "
            "convert it before the bind"
        )
    if not allow_nonfinite and DTYPES[i.var.type.dtype].kind == "float" and array.size:
        finite = np.isfinite(array.astype(np.float32) if array.dtype.itemsize < 4 else array)
        if not finite.all():
            at = np.unravel_index(int(np.argmin(finite)), array.shape)
            where = tuple(int(n) for n in at)
            raise BindError(
                f"{i.name} holds {array[at]} at {where}; repair the weights, or bind with "
                f"allow_nonfinite=True"
            )
    return array


class States(MutableMapping[str, np.ndarray]):
    """`session.state`: State by name, read and written by copy."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def _input(self, name: str) -> Input:
        found = self._session.state_inputs.get(name)
        if found is None:
            known = ", ".join(sorted(self._session.state_inputs)) or "none"
            raise BindError(f"there is no State {name!r}; States: {known}")
        return found

    def __getitem__(self, name: str) -> np.ndarray:
        with self._session.exclusive():
            return self._session.runner.read_state(self._input(name))

    def __setitem__(self, name: str, value: object) -> None:
        i = self._input(name)
        array = as_array(value, name, i.var.type)
        want = DTYPES[i.var.type.dtype].numpy
        if array.dtype != want or array.shape != i.var.type.shape:
            shape = ",".join(map(str, array.shape))
            raise BindError(f"State {name} needs {i.var.type}: got {array.dtype}[{shape}]")
        with self._session.exclusive():
            self._session.runner.write_state(i, array)

    def __delitem__(self, name: str) -> None:
        raise BindError(f"State {name!r} can't be deleted; session.reset() zeroes it")

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

    def __call__(self, **slots: object) -> object:
        return self.session.step(self.entry, **slots)


class Session:
    """Device memory and State of one bound program. `Program.bind` makes it; `close` frees what it
    owns."""

    def __init__(
        self,
        program: Compiled,
        runner: Runner,
        graphs: Mapping[str, Graph],
        device_outputs: bool = False,
    ) -> None:
        self.program = program
        self.runner = runner
        self._device_outputs = device_outputs
        self._lease = Lease()
        self._graphs = graphs
        self._lock = threading.Lock()
        self._held: dict[tuple[str, str], np.ndarray] = {}
        self._slot_inputs = {
            entry: {i.name: i for i in g.inputs if isinstance(i.storage, Slot)}
            for entry, g in graphs.items()
        }
        self.state_inputs = {
            i.name: i for g in graphs.values() for i in g.inputs if isinstance(i.storage, State)
        }
        self.state = States(self)

    @contextmanager
    def exclusive(self) -> Generator[None]:
        """One thread at a time. Raises SessionBusy in a second one."""
        if not self._lock.acquire(blocking=False):
            raise SessionBusy(
                "this session is in use by another thread; give each thread its own by session.fork()"
            )
        try:
            yield
        finally:
            self._lock.release()

    def _graph(self, entry: str) -> Graph:
        if entry not in self._graphs:
            raise BindError(
                f"there is no entry point {entry!r}; entry points: "
                f"{', '.join(sorted(self._graphs))}"
            )
        return self._graphs[entry]

    def _check_slots(
        self, entry: str, graph: Graph, slots: Mapping[str, object]
    ) -> dict[str, np.ndarray]:
        """Every slot checked, before anything is written. Raises BindError or RangeError."""
        inputs = self._slot_inputs[entry]
        unknown = sorted(set(slots) - set(inputs))
        if unknown:
            known = ", ".join(sorted(inputs)) or "none"
            raise BindError(
                f"entry point {entry!r} has no slot {', '.join(unknown)}; slots: {known}"
            )
        given = {
            name: check_slot(inputs[name], as_array(v, name, inputs[name].var.type))
            for name, v in slots.items()
        }
        missing = sorted(n for n in inputs if n not in given and (entry, n) not in self._held)
        if missing:
            raise BindError(f"entry point {entry!r} needs the slots {', '.join(missing)}")
        return given

    def step(self, entry: str = "main", /, **slots: object) -> object:
        """Runs an entry point and returns its outputs as numpy, nested as the traced function
        nested them.

        A slot not given keeps what it was given last. Raises BindError, RangeError, ValidationError
        (nothing is
        published) or a BackendError."""
        graph = self._graph(entry)
        with self.exclusive():
            given = self._check_slots(entry, graph, slots)
            for name, array in given.items():
                held = self._held.get((entry, name))
                if held is None or held.tobytes() != array.tobytes():
                    self.runner.write_slot(entry, name, array)
                    self._held[entry, name] = array.copy()
            self._lease.end()
            bad = self.runner.run(entry)
            if bad is not None:
                raise ValidationError(bad[0], bad[1])
            outputs = self._outputs(entry)
        return unflatten(graph.tree, outputs) if isinstance(graph.tree, Tree) else tuple(outputs)

    def _outputs(self, entry: str) -> Sequence[object]:
        """As numpy, or where they are for as long as a new lease says."""
        if not self._device_outputs:
            return self.runner.outputs(entry)
        self._lease = Lease()
        return self.runner.device_outputs(entry, self._lease)

    def capture(self, entry: str = "main") -> Replay:
        """A runner of one entry point whose launches are recorded once, where the backend can
        (`is_replay`)."""
        self._graph(entry)
        with self.exclusive():
            return Replay(self, entry, self.runner.record(entry))

    def reset(self) -> None:
        """Zeroes every State."""
        with self.exclusive():
            for i in self.state_inputs.values():
                self.runner.write_state(
                    i, np.zeros(i.var.type.shape, DTYPES[i.var.type.dtype].numpy)
                )

    def fork(self) -> Session:
        """Another session over the same weights, with a copy of State and slots."""
        with self.exclusive():
            other = Session(self.program, self.runner.fork(), self._graphs, self._device_outputs)
            other._held = {}
            for (entry, name), array in self._held.items():
                other.runner.write_slot(entry, name, array)
                other._held[entry, name] = array
        return other

    def profile(self, entry: str = "main", **slots: object) -> Profile:
        """Runs the entry point once more with a time for each launch. It is a step: State moves
        on."""
        graph = self._graph(entry)
        with self.exclusive():
            for name, array in self._check_slots(entry, graph, slots).items():
                self.runner.write_slot(entry, name, array)
                self._held[entry, name] = array.copy()
            return Profile(entry, tuple(self.runner.timed(entry)))

    def wait(self) -> None:
        """Returns when everything enqueued is done."""
        with self.exclusive():
            self.runner.wait()

    def close(self) -> None:
        """Frees the session's device memory. Using it after raises BindError."""
        with self.exclusive():
            self.runner.close()


@dataclass(frozen=True, slots=True)
class Profile:
    """Time of each launch: (step, kernel, microseconds); nan where the backend can't tell."""

    entry: str
    launches: tuple[tuple[str, str, float], ...]

    @property
    def us(self) -> float:
        """The sum, in microseconds."""
        return float(sum(t for *_, t in self.launches))

    def __str__(self) -> str:
        by_kernel: dict[str, tuple[int, float]] = {}
        for op, kernel, us in self.launches:
            n, total = by_kernel.get(f"{kernel} ({op})", (0, 0.0))
            by_kernel[f"{kernel} ({op})"] = (n + 1, total + us)
        rows = sorted(by_kernel.items(), key=lambda row: -row[1][1])
        return "\n".join(f"{total:>12.1f} us {n:>5} x {name}" for name, (n, total) in rows)

    def chrome_trace(self) -> dict[str, object]:
        """The launches one after another, as a Chrome trace (write it with json.dump)."""
        at = 0.0
        events: list[dict[str, object]] = []
        for op, kernel, us in self.launches:
            events.append(
                {"name": kernel, "cat": op, "ph": "X", "ts": at, "dur": us, "pid": 0, "tid": 0}
            )
            at += us
        return {"traceEvents": events}


def bind_weights(
    graphs: Mapping[str, Graph], weights: Mapping[str, object], allow_nonfinite: bool
) -> dict[str, np.ndarray]:
    """Every Weight's array, checked. Raises BindError on a missing, unknown or ill-typed one."""
    inputs = {i.name: i for g in graphs.values() for i in g.inputs if isinstance(i.storage, Weight)}
    missing = sorted(set(inputs) - set(weights))
    unknown = sorted(set(weights) - set(inputs))
    if missing or unknown:
        parts = [f"missing {', '.join(missing[:8])}"] if missing else []
        parts += [f"unknown {', '.join(unknown[:8])}"] if unknown else []
        raise BindError(f"the weights don't match the program: {'; '.join(parts)}")
    return {name: check_weight(i, weights[name], allow_nonfinite) for name, i in inputs.items()}
