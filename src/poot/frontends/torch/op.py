"""A compiled program as a torch op: `as_custom_op`."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Mapping, Sequence

import torch

from poot.api import Program
from poot.backends.cuda import CudaDevice
from poot.caller_runner import CallerRunner, Operand
from poot.errors import BackendError, BindError
from poot.frontends.torch.memory import DTYPES, Memory, host_bytes, seen
from poot.ir.tree import Tree, unflatten

NAMESPACE = "poot"
Flat = torch.Tensor | tuple[torch.Tensor, ...]
_NUMBERS = itertools.count()


class TorchRun:
    """Runs an entry point over torch's tensors, on the stream that is torch's current one."""

    def __init__(
        self,
        program: Program,
        weights: Mapping[str, object],
        entry: str,
        *,
        allow_nonfinite: bool = False,
    ) -> None:
        self.runner = CallerRunner(program, weights, entry, allow_nonfinite=allow_nonfinite)
        device = self.runner.device
        is_cuda = isinstance(device, CudaDevice)
        self.device = torch.device("cuda", device.index) if is_cuda else torch.device("cpu")
        self._lock = threading.Lock()
        self._last: torch.Tensor | None = None

    @property
    def is_capturing(self) -> bool:
        """Whether what is enqueued now goes into a CUDA graph."""
        return self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()

    def run(
        self, slots: Mapping[str, torch.Tensor], states: Mapping[str, torch.Tensor]
    ) -> list[torch.Tensor]:
        """The outputs, flat. States are written where they lie."""
        with self._lock, torch.no_grad():
            if not self.is_capturing:
                self._settle()
            memory = Memory(self.runner, self.device)
            for o in self.runner.slots:
                memory.give_slot(o, slots[o.name])
            for o in self.runner.states:
                memory.give_state(o, states[o.name])
            _need_apart(memory, self.runner.states)
            flat = memory.take_outputs(self.runner.outputs)
            self.runner.run(memory.at, self._stream())
            if self.runner.records_nbytes:
                self._last = memory.results
                if self.device.type == "cpu":
                    self._settle()
        taken: set[int] = set()
        made: list[torch.Tensor] = []
        for o, raw in zip(self.runner.outputs, flat, strict=True):
            value = seen(raw, o.type)
            made.append(value.clone() if raw.data_ptr() in taken and o.type.elems else value)
            taken.add(raw.data_ptr())
        return made

    def _stream(self) -> int | None:
        if self.device.type == "cpu":
            return None
        return torch.cuda.current_stream(self.device).cuda_stream

    def _settle(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            self._raise_failure(last)

    def _raise_failure(self, results: torch.Tensor) -> None:
        failed = self.runner.failure(host_bytes(results, self.runner.records_nbytes))
        if failed is not None:
            raise failed

    def finish(self) -> None:
        """Waits for the last run, and raises what its guards and ranges found, once."""
        with self._lock:
            self._settle()

    def wait(self) -> None:
        """Waits for the last run, and raises what its guards and ranges found. After replays of a
        CUDA graph with a run in it that is the last replay."""
        with self._lock:
            if self._last is not None:
                self._raise_failure(self._last)


def _need_apart(memory: Memory, states: tuple[Operand, ...]) -> None:
    """Raises BindError where a State's memory is another operand's too."""
    spans = sorted((at, at + nbytes, space) for space, (at, nbytes) in memory.at.items())
    for (_, end, one), (first, _, other) in itertools.pairwise(spans):
        if first < end and {one, other} & {o.space for o in states}:
            raise BindError(f"{one} and {other} share memory, and one of them is written")


class CustomOp:
    """A program's entry point as a torch op. Calling it takes tensors by name, or in the order of
    `names`, and gives the outputs nested as the traced function nested them; `op` is torch's own,
    which takes them flat and gives a tensor or a tuple of them."""

    def __init__(self, run: TorchRun, name: str, tree: object, written: frozenset[str]) -> None:
        self._run = run
        self._tree = tree
        operands = (*run.runner.slots, *run.runner.states)
        self.names = tuple(o.name for o in operands)
        self._slots = len(run.runner.slots)
        schema = _schema(operands, written, len(run.runner.outputs))
        safe = tuple(_safe(n) for n in self.names)
        mutated = tuple(_safe(n) for n in self.names if n in written)

        def call(*given: torch.Tensor) -> Flat:
            named = dict(zip(self.names, given, strict=True))
            states = {n: named[n] for n in self.names[self._slots :]}
            return _returned(self._run.run(named, states))

        def fake(*given: torch.Tensor) -> Flat:
            device = given[0].device
            return _returned(
                [
                    torch.empty(o.type.shape, dtype=DTYPES[o.type.dtype], device=device)
                    for o in self._run.runner.outputs
                ]
            )

        if len(set(safe)) < len(safe):
            raise BindError(f"a torch op needs names apart: {', '.join(self.names)}")
        made = torch.library.custom_op(name, call, mutates_args=mutated, schema=schema)
        made.register_fake(fake)  # pyright: ignore[reportUnknownMemberType] - torch types it in part
        self.op = made

    def __call__(self, *given: torch.Tensor, **named: torch.Tensor) -> object:
        if len(given) > len(self.names):
            raise BindError(f"the op takes {len(self.names)} tensors: got {len(given)}")
        whole = dict(zip(self.names, given, strict=False))
        twice = sorted(set(whole) & set(named))
        unknown = sorted(set(named) - set(self.names))
        missing = [n for n in self.names if n not in whole and n not in named]
        if twice or unknown or missing:
            raise BindError(
                f"the op takes {', '.join(self.names)}: missing {missing}, unknown {unknown}, "
                f"given twice {twice}"
            )
        whole.update(named)
        said: Flat = self.op(*(whole[n] for n in self.names))
        flat = [said] if isinstance(said, torch.Tensor) else list(said)
        return unflatten(self._tree, flat) if isinstance(self._tree, Tree) else tuple(flat)

    def wait(self) -> None:
        """Waits for the op's last run (the last replay, in a CUDA graph), and raises what its
        guards and ranges found: ValidationError or RangeError."""
        self._run.wait()


def _safe(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _returned(outputs: Sequence[torch.Tensor]) -> Flat:
    """As an op with that many outputs returns them."""
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _schema(operands: tuple[Operand, ...], written: frozenset[str], outputs: int) -> str:
    rows = [
        f"Tensor{f'(a{n}!)' if o.name in written else ''} {_safe(o.name)}"
        for n, o in enumerate(operands)
    ]
    made = ", ".join(["Tensor"] * outputs)
    return f"({', '.join(rows)}) -> {made if outputs == 1 else f'({made})'}"


def as_custom_op(
    program: Program,
    weights: Mapping[str, object] | None = None,
    *,
    entry: str = "main",
    name: str | None = None,
) -> CustomOp:
    """A program compiled for `cuda` or `cpu` as an op of torch's, for use in eager programs, inside
    `torch.compile` and in CUDA graphs.

    Its tensors are the entry point's slots, then its States, on the program's device. Slots are
    read and States written where they lie, outputs lie in torch's memory, and all of it runs on
    torch's current stream. These are copied on the device: a bool, a slot with a range (which is
    checked there), a slot that isn't contiguous, and one whose size or address isn't whole vectors
    of 16 bytes. Weights are bound here, once. `name` is the op's in torch ("poot::" comes before
    it); it stays registered as long as the process.

    A guard that fails, or a slot outside its range, writes no State; its error is raised by the
    next call, which waits, or by `wait` (on the CPU by the call itself). Raises BindError where the
    entry point has a slot that only the host can check (a write map), BackendError for another
    device."""
    run = TorchRun(program, {} if weights is None else weights, entry)
    if not (run.runner.slots or run.runner.states):
        raise BackendError(f"entry point {entry!r} takes no tensor: an op of torch's needs one")
    graph = program.entries[entry].source
    inputs = {i.var.id: i.name for i in graph.inputs}
    written = frozenset(inputs[a.id] for a, b in graph.states if a.id != b.id)
    chosen = name or f"{_safe(entry)}_{program.key[:8]}_{next(_NUMBERS)}"
    return CustomOp(run, f"{NAMESPACE}::{chosen}", graph.tree, written)
