# pyright: basic
"""One compiled part of a graph of torch.compile, called with its tensors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch

from poot.api import Program, compile
from poot.errors import BindError, ValidationError
from poot.frontends.foreign import Foreign
from poot.frontends.lower import lower
from poot.frontends.torch.memory import DTYPES
from poot.frontends.torch.op import TorchRun
from poot.frontends.torch.partition import Piece
from poot.frontends.torch.program import with_ranges
from poot.frontends.torch.read import read_graph
from poot.frontends.torch.table import ATEN
from poot.frontends.torch.tensors import as_numpy, as_tensor
from poot.frontends.torch.watch import Watch
from poot.ir.graph import Slot
from poot.session import Session

LOG = logging.getLogger("poot")
Tensors = Mapping[str, Any]


class Bound(Protocol):
    """A program with its weights on the device. What was captured in a CUDA graph stays there for
    its replays."""

    is_captured: bool

    def run(self, slots: Tensors) -> list[Any]:
        """The results, flat. Raises BindError or ValidationError where nothing came of it."""
        ...

    def close(self) -> None: ...


class HostBound:
    """Tensors of the host: poot takes them to the target, and results back."""

    def __init__(self, program: Program, weights: Tensors, results: Sequence[Any]) -> None:
        arrays = {n: as_numpy(t, n) for n, t in weights.items()}
        self.session: Session = program.bind(arrays, allow_nonfinite=True)
        self.results = results
        self.is_captured = False

    def run(self, slots: Tensors) -> list[Any]:
        given = {n: as_numpy(t, n) for n, t in slots.items()}
        arrays = self.session.step(device_outputs=False, **given)
        assert isinstance(arrays, tuple)
        pairs = zip(arrays, self.results, strict=True)
        return [as_tensor(np.asarray(a), like) for a, like in pairs]

    def close(self) -> None:
        self.session.close()


class StreamBound:
    """Tensors of a device that runs in torch's memory, on its current stream."""

    def __init__(self, program: Program, weights: Tensors, results: Sequence[Any]) -> None:
        held = {n: t.detach().contiguous() for n, t in weights.items()}
        self.made = TorchRun(program, held, "main", allow_nonfinite=True)
        self.results = results
        self.is_captured = False

    def run(self, slots: Tensors) -> list[Any]:
        types = {o.name: DTYPES[o.type.dtype] for o in self.made.runner.slots}
        given = {n: t.detach().to(types[n]) for n, t in slots.items() if n in types}
        self.is_captured |= self.made.is_capturing
        flat = self.made.run(given, {})
        self.made.finish()
        return [_placed(t, like) for t, like in zip(flat, self.results, strict=True)]

    def close(self) -> None:
        """What it holds goes with it."""


def _placed(tensor: Any, like: Any) -> Any:
    """A tensor of the dtype and strides of `like`, which may be a fake one."""
    held = tensor.to(like.dtype).reshape(like.shape)
    pairs = zip(like.stride(), like.shape, strict=True)
    is_shared = any(stride == 0 and extent > 1 for stride, extent in pairs)
    if is_shared or held.stride() == tuple(like.stride()):
        return held
    size, stride = tuple(like.shape), tuple(like.stride())
    return torch.empty_strided(size, stride, dtype=like.dtype, device=held.device).copy_(held)


class Part:
    """A compiled part of a graph. What it isn't made for at a call (integers past its limits, an
    index out of bounds) torch does, or refuses, in that call. Threads take turns."""

    def __init__(self, piece: Piece, weights: frozenset[str], target: str, mode: str) -> None:
        self.piece, self.weights, self.mode = piece, weights, mode
        graph = piece.module.graph
        foreign = with_ranges(read_graph(graph, weights, piece.consts))
        foreign = replace(foreign, limits=piece.limits)
        lowered = lower(foreign, ATEN, "torch.compile").graph
        self.program: Program = compile(lowered, target)
        self.names = [n.name for n in graph.nodes if n.op == "placeholder"]
        self.limits = _limits(foreign)
        self.slots = [i.name for i in lowered.inputs if isinstance(i.storage, Slot)]
        (out,) = (n for n in graph.nodes if n.op == "output")
        self.is_many = isinstance(out.args[0], (tuple, list))
        results = [n.meta["val"] for n in (out.args[0] if self.is_many else (out.args[0],))]
        self.results = results
        self.makes = StreamBound if target.startswith("cuda") else HostBound
        self.bound: Bound | None = None
        self.watch: Watch | None = None
        self.handed = 0
        self._lock = threading.Lock()

    def __call__(self, *tensors: Any) -> Any:
        given = dict(zip(self.names, tensors, strict=True))
        with self._lock:
            why = self._beyond(given)
            if not why:
                try:
                    results = self._bind(given).run({n: given[n] for n in self.slots})
                    return tuple(results) if self.is_many else results[0]
                except (BindError, ValidationError) as e:
                    why = e.message
            self.handed += 1
        if self.handed == 1:
            LOG.warning("a call is torch's, not poot's: %s (%s)", why, self.piece.name)
        return self.piece.module(*tensors)

    def rebind(self) -> None:
        """Binds the weights anew at the next call."""
        with self._lock:
            self.watch = None

    def release(self) -> None:
        """Gives back what the weights take on the device, until the next call binds them anew."""
        with self._lock:
            if self.bound is not None and not self.bound.is_captured:
                self.bound.close()
                self.bound = self.watch = None

    def _beyond(self, given: Tensors) -> str:
        """Why the integers of 64 bits that are given aren't what the part was made for; empty where
        they are."""
        for name, (low, high) in self.limits.items():
            tensor = given[name]
            if not tensor.numel():
                continue
            least, most = (int(x) for x in tensor.aminmax())
            if least < low or most >= high:
                return f"{name} holds {least}..{most}, and is taken in {low}..{high - 1}"
        return ""

    def _bind(self, given: Tensors) -> Bound:
        """The program over these weights: bound anew where one isn't what it was."""
        weights = {n: given[n] for n in self.names if n in self.weights}
        if self.bound is not None and self.watch is not None and not self.watch.changed(weights):
            return self.bound
        if self.bound is not None:
            self.bound.close()
        self.bound = None
        self.watch = Watch(weights, self.mode)
        self.bound = self.makes(self.program, weights, self.results)
        return self.bound


def _limits(foreign: Foreign) -> dict[str, tuple[int, int]]:
    """For each slot of integers of 64 bits what it may hold, hi excluded."""
    whole = (-(2**31), 2**31)
    wide = [g for g in foreign.givens if g.is_wide and isinstance(g.storage, Slot)]
    return {g.name: foreign.limits.get(g.ref.id, whole) for g in wide}
