# pyright: basic
"""`torch.compile(model, backend="poot")`.

torch hands over a graph of ATen calls. What poot has rows for is compiled in parts, the rest stays
torch's. Parameters are bound once and again only when they changed; gradients are torch's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch._dynamo import register_backend
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._guards import TracingContext
from torch.fx.experimental.proxy_tensor import make_fx

from poot.api import Program, compile
from poot.errors import TraceError
from poot.frontends.lower import lower
from poot.frontends.torch.decompose import decompositions
from poot.frontends.torch.partition import Left, partitioned
from poot.frontends.torch.program import with_ranges
from poot.frontends.torch.read import read_graph
from poot.frontends.torch.table import ATEN
from poot.frontends.torch.tensors import as_numpy, as_tensor
from poot.session import Session

LOG = logging.getLogger("poot")
Call = Callable[..., Any]


class Part:
    """A compiled part of a graph, called with its tensors."""

    def __init__(self, module: Any, weights: frozenset[str], target: str) -> None:
        foreign = with_ranges(read_graph(module.graph, weights))
        self.program: Program = compile(lower(foreign, ATEN, "torch.compile").graph, target)
        self.names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
        self.weights = weights
        (out,) = (n for n in module.graph.nodes if n.op == "output")
        results = out.args[0] if isinstance(out.args[0], (tuple, list)) else (out.args[0],)
        self.results = [n.meta["val"] for n in results]
        self.is_many = isinstance(out.args[0], (tuple, list))
        self.session: Session | None = None
        self.bound: tuple[object, ...] = ()

    def __call__(self, *tensors: Any) -> Any:
        given = dict(zip(self.names, tensors, strict=True))
        session = self._session({n: t for n, t in given.items() if n in self.weights})
        slots = {n: as_numpy(t, n) for n, t in given.items() if n not in self.weights}
        arrays = session.step(device_outputs=None, **slots)
        assert isinstance(arrays, tuple)
        pairs = zip(arrays, self.results, strict=True)
        tensors = tuple(as_tensor(np.asarray(a), like) for a, like in pairs)
        return tensors if self.is_many else tensors[0]

    def _session(self, weights: Mapping[str, Any]) -> Session:
        """The session over these weights: bound anew where one was replaced or written to."""
        now = tuple((t.data_ptr(), t._version) for t in weights.values())
        if self.session is None or now != self.bound:
            if self.session is not None:
                self.session.close()
            arrays = {n: as_numpy(t, n) for n, t in weights.items()}
            self.session = self.program.bind(arrays, allow_nonfinite=True)
            self.bound = now
        return self.session


class Backend:
    """A backend of torch.compile for one target. `programs` are those that it compiled so far, and
    `left` what it left to torch."""

    def __init__(self, target: str = "cpu") -> None:
        self.target = target
        self.programs: list[Program] = []
        self.left: list[Left] = []

    def __call__(self, module: Any, inputs: Sequence[Any], **options: Any) -> Call:
        self._need_host(inputs)
        backend = aot_autograd(
            fw_compiler=self.compile_graph, bw_compiler=_as_it_is, decompositions=decompositions()
        )
        return backend(module, inputs)

    def _need_host(self, inputs: Sequence[Any]) -> None:
        devices = {x.device.type for x in inputs if isinstance(x, torch.Tensor)} - {"cpu"}
        if devices:
            remedy = "Move the model to the CPU: poot takes its tensors to the target by itself"
            raise TraceError(f"backend poot needs tensors of the host: got {devices}. {remedy}")

    def compile_graph(self, module: Any, inputs: Sequence[Any]) -> Call:
        """The graph with what poot can do of it compiled. A graph of symbolic extents is made for
        each set of extents that it is called with."""
        if any(isinstance(x, torch.SymInt) for x in inputs) or _is_symbolic(inputs):
            return make_boxed_func(_BySizes(self, module))
        return make_boxed_func(self.compile_static(module, _static_indices()))

    def compile_static(self, module: Any, static: frozenset[int]) -> Call:
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        held = {n.name for i, n in enumerate(placeholders) if i in static and _is_float(n)}
        fused, names, left = partitioned(module)
        self.left += left
        for miss in left:
            LOG.info("left to torch: %s: %s at %s", miss.op, miss.why, miss.loc or "?")
        for name in names:
            (call,) = (n for n in fused.graph.nodes if n.op == "call_module" and n.target == name)
            inner = getattr(fused, name)
            own = [n for n in inner.graph.nodes if n.op == "placeholder"]
            pairs = zip(own, call.args, strict=True)
            weights = frozenset(o.name for o, given in pairs if given.name in held)
            part = Part(inner, weights, self.target)
            self.programs.append(part.program)
            setattr(fused, name, _Held(part))
        if not names:
            LOG.warning("backend poot compiled nothing of a graph: %s", self.left)
        fused.recompile()
        return fused


class _Held(torch.nn.Module):
    """A part as a module of the graph that calls it."""

    def __init__(self, part: Part) -> None:
        super().__init__()
        self.part = part

    def forward(self, *tensors: Any) -> Any:
        return self.part(*tensors)


class _BySizes:
    """A graph of symbolic extents, compiled for each set of extents that it meets."""

    def __init__(self, backend: Backend, module: Any) -> None:
        self.backend, self.module = backend, module
        self.static = _static_indices()
        self.made: dict[object, Call] = {}

    def __call__(self, *inputs: Any) -> Any:
        key = tuple(tuple(x.shape) if isinstance(x, torch.Tensor) else x for x in inputs)
        if key not in self.made:
            static = make_fx(self.module, tracing_mode="fake")(*inputs)
            self.made[key] = self.backend.compile_static(static, self.static)
        return self.made[key](*inputs)


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
    """The backend "poot" of torch.compile; `options={"target": "vulkan"}` names its target."""
    given = dict(options or {})
    target = given.pop("target", "cpu")
    if given:
        raise TraceError(f"backend poot has the option target: got {', '.join(sorted(given))}")
    return Backend(target)(module, inputs)


def register() -> None:
    """Makes the backend known to torch.compile by its name."""
    if "poot" not in torch._dynamo.list_backends():
        register_backend(poot, name="poot")
