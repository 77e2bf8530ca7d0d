"""The oracle as a target: numpy, by definition right."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from poot.backends.base import Device
from poot.carried import Carried
from poot.device_array import Stored
from poot.failures import feed_failure, guard_failure, guards_of
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Graph, Input, Slot, State
from poot.ir.transaction import fed_inputs
from poot.limits import profile
from poot.oracle import Folded, fold
from poot.oracle import run as run_oracle
from poot.passes.records import form_records
from poot.runner import Failure, Parts


class OracleWeights:
    """Weights that forks share, by copy; what was computed of them; how often they were bound."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.arrays = {name: np.array(x) for name, x in arrays.items()}
        self.folded = Folded()
        self.binds = 1

    def bind(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Puts others in the place of some. What was computed of the old ones goes."""
        self.arrays = self.arrays | {name: np.array(x) for name, x in arrays.items()}
        self.folded = Folded()
        self.binds += 1


class OracleRunner:
    """One session on the oracle. What depends on weights alone is computed at an entry point's
    first step, and shared with other entry points and forks."""

    def __init__(self, graphs: Mapping[str, Graph], weights: OracleWeights) -> None:
        limits = profile("oracle")
        self._sources = graphs
        self._graphs = {name: form_records(g, limits).graph for name, g in graphs.items()}
        self.weights = weights
        self._binds = weights.binds  # those that `_left` was made of
        self._left: dict[str, tuple[Graph, dict[str, np.ndarray]]] = {}
        self._states: dict[str, np.ndarray] = {}
        self._slots: dict[tuple[str, str], np.ndarray] = {}
        self._outputs: dict[str, list[np.ndarray]] = {}
        self._failed: Failure | None = None
        for g in graphs.values():
            for i in g.inputs:
                if isinstance(i.storage, State):
                    self._states[i.name] = np.zeros(
                        i.var.type.shape, DTYPES[i.var.type.dtype].numpy
                    )

    @property
    def device(self) -> Device | None:
        return None

    def together(self) -> AbstractContextManager[object]:
        return nullcontext()

    def prepare(self, entry: str, fed: bool) -> None:
        """Folds the entry point's weights, once after each time they were bound."""
        held = self.weights
        if self._binds != held.binds:
            self._left.clear()
            self._binds = held.binds
        if entry not in self._left:
            graph = self._graphs[entry]
            own = {i.name for i in graph.inputs}
            weights = {n: x for n, x in held.arrays.items() if n in own}
            self._left[entry] = fold(graph, weights, shared=held.folded)

    def _slot(self, entry: str, name: str) -> Input:
        return next(i for i in self._sources[entry].inputs if i.name == name)

    def write_slot(self, entry: str, name: str, parts: Parts) -> None:
        type = self._slot(entry, name).var.type
        held = self._slots.get((entry, name))
        made = np.zeros(type.shape, DTYPES[type.dtype].numpy) if held is None else held.copy()
        for first, values in parts:
            made.reshape(-1)[first : first + values.size] = values.reshape(-1)
        self._slots[entry, name] = made

    def write_whole(self, entry: str, name: str, raw: bytes) -> None:
        type = self._slot(entry, name).var.type
        self._slots[entry, name] = np.frombuffer(raw, DTYPES[type.dtype].numpy).reshape(type.shape)

    def feed_slot(self, entry: str, name: str, source: Stored) -> None:
        self._slots[entry, name] = source.read()

    def read_state(self, i: Input) -> np.ndarray:
        return self._states[i.name].copy()

    def write_state(self, i: Input, array: np.ndarray) -> None:
        self._states[i.name] = array.copy()

    @property
    def binds(self) -> int:
        return self.weights.binds

    def write_weights(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.weights.bind(arrays)

    def record(self, entry: str) -> bool:
        return False

    def carried(self, entry: str) -> Carried | None:
        return None

    def send(self, entry: str, fed: bool) -> None:
        """Checks the slots that came from a device array."""
        self._failed = self._check_fed(entry) if fed else None

    def run(self, entry: str) -> None:
        """Runs the step; what it changes is kept only if nothing failed."""
        self.prepare(entry, False)
        graph, given = self._left[entry]
        if self._failed is not None:
            return
        feed: dict[str, object] = dict(given)
        for i in graph.inputs:
            if isinstance(i.storage, State):
                feed[i.name] = self._states[i.name]
            elif isinstance(i.storage, Slot):
                feed[i.name] = self._slots[entry, i.name]
        result = run_oracle(graph, feed)
        self._failed = guard_failure(guards_of(self._sources[entry]), result.witnesses)
        if self._failed is None:
            self._states.update(result.states)
            self._outputs[entry] = list(result.outputs)

    def _check_fed(self, entry: str) -> Failure | None:
        slots = fed_inputs(self._sources[entry])
        records: list[np.ndarray] = []
        for i in slots:
            assert isinstance(i.storage, Slot)
            assert i.storage.range is not None
            x = self._slots[entry, i.name].reshape(-1)
            bad = np.flatnonzero((x < i.storage.range[0]) | (x >= i.storage.range[1]))
            first = int(bad[0]) if bad.size else 0
            records.append(np.array([bad.size, first, x[first] if bad.size else 0], np.int64))
        return feed_failure(slots, records)

    def failure(self, entry: str, fed: bool) -> Failure | None:
        return self._failed

    def results(self, entry: str, fed: bool) -> tuple[Failure | None, list[np.ndarray]]:
        if self._failed is not None:
            return self._failed, []
        return None, [np.array(x) for x in self._outputs[entry]]

    def stored(self, entry: str) -> list[Stored]:
        types = [v.type for v in self._sources[entry].outputs]
        if self._failed is not None:  # never read: the array's ticket raises first
            return [Stored(t, None, array=np.zeros(t.shape, DTYPES[t.dtype].numpy)) for t in types]
        arrays = self._outputs[entry]
        return [Stored(t, None, array=x) for t, x in zip(types, arrays, strict=True)]

    def timed(self, entry: str) -> list[tuple[str, str, float]]:
        self.run(entry)
        return [("oracle", "numpy", float("nan"))]

    def fork(self) -> OracleRunner:
        other = OracleRunner(self._sources, self.weights)
        other._states = {n: x.copy() for n, x in self._states.items()}
        other._slots = {key: x.copy() for key, x in self._slots.items()}
        other._left, other._binds = dict(self._left), self._binds
        return other

    def wait(self) -> None:
        """Everything is done when it was asked."""

    def close(self) -> None:
        self.weights = OracleWeights({})
        self._left.clear()
        self._outputs.clear()
