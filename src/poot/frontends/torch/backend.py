# pyright: basic
"""`torch.compile(model, backend="poot")`.

torch hands over a graph of ATen calls. What poot has rows for is compiled in parts, the rest stays
torch's, and so does a part that a target can't do. Gradients are torch's.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo import register_backend
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._guards import TracingContext

from poot.api import Program
from poot.backends.registry import open_device
from poot.errors import BackendError, BackendUnavailable, PootError, TraceError
from poot.frontends.torch.decompose import decompositions
from poot.frontends.torch.part import Part
from poot.frontends.torch.partition import Left, Piece, partitioned
from poot.frontends.torch.read import line_of
from poot.frontends.torch.sized import sized
from poot.frontends.torch.watch import need_mode

LOG = logging.getLogger("poot")
Call = Callable[..., Any]
SIZES = 4


class Backend:
    """A backend of torch.compile for one target: without one, the cpu for tensors of the host, and
    for tensors of a CUDA device that device. `weights` says how a change of the weights is seen:
    "read" (all of their bytes are looked at in each call), "watched" (a sample in each call, and
    all in turns) or "versions" (as torch counts writes). `sizes` is of how many sets of extents, of
    a graph whose extents change, the weights stay bound, those used last. `programs` are those that
    it compiled so far, and `left` what it left to torch."""

    def __init__(
        self, target: str | None = None, *, weights: str = "watched", sizes: int = SIZES
    ) -> None:
        self.target = target
        self.weights = need_mode(weights)
        if type(sizes) is not int or sizes < 1:
            raise TraceError(f"backend poot takes sizes from 1 on: got {sizes!r}")
        self.sizes = sizes
        self.programs: list[Program] = []
        self.left: list[Left] = []
        self.parts: list[Part] = []

    def __call__(self, module: Any, inputs: Sequence[Any], **options: Any) -> Call:
        backend = aot_autograd(
            fw_compiler=self.compile_graph, bw_compiler=_as_it_is, decompositions=decompositions()
        )
        return backend(module, inputs)

    def rebind(self) -> None:
        """Binds all weights anew at the next call, whatever was seen of them."""
        for part in self.parts:
            part.rebind()

    def compile_graph(self, module: Any, inputs: Sequence[Any]) -> Call:
        """The graph with what poot can do of it compiled. A graph of symbolic extents is made for
        each set of extents that it is called with."""
        if any(isinstance(x, torch.SymInt) for x in inputs) or _is_symbolic(inputs):
            return make_boxed_func(_BySizes(self, module))
        return make_boxed_func(self.compile_static(module, _static_indices()))

    def compile_static(self, module: Any, static: frozenset[int]) -> Call:
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        held = {n.name for i, n in enumerate(placeholders) if i in static and _is_float(n)}
        device, target, why = self._target(placeholders)
        if why:
            self._leave(Left("the graph", why, ""), logging.WARNING)
            return module
        found = partitioned(module, device)
        for left in found.left:
            self._leave(left, logging.INFO)
        made = [self._compiled(found.module, piece, held, target) for piece in found.pieces]
        if not any(made):
            LOG.warning("backend poot compiled nothing of a graph: %s", self.left)
        found.module.recompile()
        return found.module

    def _target(self, placeholders: Sequence[Any]) -> tuple[str, str, str]:
        """The device of a graph's tensors, the target for them, and why there is none, or empty.
        Raises BackendUnavailable for a target of the caller's that isn't there."""
        values = [n.meta.get("val") for n in placeholders]
        devices = sorted({str(v.device) for v in values if isinstance(v, torch.Tensor)} - {"cpu"})
        if not devices:
            return "cpu", self.target or "cpu", ""
        if len(devices) > 1 or not devices[0].startswith("cuda"):
            return "", "", f"its tensors are on {', '.join(devices)}"
        (device,) = devices
        target = self.target or device
        if target.partition("/")[0] not in ("cuda", device) or (
            target == "cuda" and device != "cuda:0"
        ):
            return "", "", f"its tensors are on {device}, and the target is {target}"
        if self.target is None:
            try:
                open_device(device)
            except BackendUnavailable as e:
                return "", "", f"its tensors are on {device}: {e.message}"
        return device, target, ""

    def _compiled(self, fused: Any, piece: Piece, held: set[str], target: str) -> bool:
        """Puts a compiled part in the place of a piece; what can't be compiled stays torch's."""
        own = [n.name for n in piece.module.graph.nodes if n.op == "placeholder"]
        weights = frozenset(
            name
            for name, given in zip(own, piece.given, strict=True)
            if given.name in held or (given.op == "get_attr" and name not in piece.consts)
        )
        try:
            part = Part(piece, weights, target, self.weights)
        except BackendError:
            raise
        except PootError as e:
            calls = [n for n in piece.module.graph.nodes if n.op == "call_function"]
            loc = e.loc or next((at for n in calls if (at := line_of(n))), "")
            why = f"{type(e).__name__}: {e.message}"
            self._leave(Left(f"a part of {len(calls)} calls", why, loc), logging.WARNING)
            return False
        self.programs.append(part.program)
        self.parts.append(part)
        setattr(fused, piece.name, _Held(part))
        return True

    def _leave(self, left: Left, level: int) -> None:
        if left not in self.left:
            self.left.append(left)
            LOG.log(level, "left to torch: %s: %s at %s", left.op, left.why, left.loc or "?")


class _Held(torch.nn.Module):
    """A part as a module of the graph that calls it."""

    def __init__(self, part: Part) -> None:
        super().__init__()
        self.part = part

    def forward(self, *tensors: Any) -> Any:
        return self.part(*tensors)


@dataclass(frozen=True, slots=True)
class _Size:
    """A graph as it is compiled for one set of extents, and its parts."""

    call: Call
    parts: tuple[Part, ...]

    def release(self) -> None:
        for part in self.parts:
            part.release()


class _BySizes:
    """A graph of symbolic extents, compiled for each set of extents that it meets. The weights stay
    bound for the sets used last, as many as the backend's `sizes`."""

    def __init__(self, backend: Backend, module: Any) -> None:
        self.backend, self.module = backend, module
        self.static = _static_indices()
        self.made: dict[object, _Size] = {}
        self.last: OrderedDict[object, _Size] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, *inputs: Any) -> Any:
        key = tuple(tuple(x.shape) if isinstance(x, torch.Tensor) else x for x in inputs)
        with self._lock:
            size = self.made.get(key) or self._make(key, inputs)
            oldest = self._use(key, size)
        if oldest is not None:
            oldest.release()
        try:
            return size.call(*inputs)
        finally:
            if key not in self.last:  # others took its place while it ran, and it bound anew
                size.release()

    def _make(self, key: object, inputs: Sequence[Any]) -> _Size:
        module = self.backend.compile_static(sized(self.module, inputs), self.static)
        held = [m.part for m in module.children() if isinstance(m, _Held)]
        size = self.made[key] = _Size(module, tuple(held))
        return size

    def _use(self, key: object, size: _Size) -> _Size | None:
        """Notes the use of a size, and gives the one that is no more among the last."""
        self.last[key] = size
        self.last.move_to_end(key)
        if len(self.last) <= self.backend.sizes:
            return None
        return self.last.popitem(last=False)[1]


def _is_symbolic(inputs: Sequence[Any]) -> bool:
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    return any(not isinstance(n, int) for t in tensors for n in t.shape)


def _static_indices() -> frozenset[int]:
    """Which inputs of the graph at hand torch knows to be the same tensors at every call."""
    context = TracingContext.try_get()
    known = context.fw_metadata.static_input_indices if context and context.fw_metadata else ()
    return frozenset(known or ())


def _is_float(node: Any) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


def _as_it_is(module: Any, inputs: Sequence[Any]) -> Call:
    return make_boxed_func(module.forward)


def poot(module: Any, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> Call:
    """The backend "poot" of torch.compile; `options={"target": "vulkan", "weights": "read"}` are
    what `Backend` takes, and so is "sizes"."""
    given = dict(options or {})
    strange = sorted(given.keys() - {"target", "weights", "sizes"})
    if strange:
        raise TraceError(
            f"backend poot has the options target, weights, sizes: got {', '.join(strange)}"
        )
    made = Backend(
        given.get("target"),
        weights=given.get("weights", "watched"),
        sizes=given.get("sizes", SIZES),
    )
    return made(module, inputs)


def register() -> None:
    """Makes the backend known to torch.compile by its name."""
    if "poot" not in torch._dynamo.list_backends():
        register_backend(poot, name="poot")
