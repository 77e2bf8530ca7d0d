"""What a generator makes of a request: kernels, grids, and which buffer each parameter is."""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.attributes import PLAIN, Attributes, TensorView
from poot.codegen.kir.nodes import Kernel


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One launch of a lowered step. `args` says which buffer each kernel parameter is: ("in", i),
    ("out", i) or ("scratch", i), in the order of kernel.params. The grid is counted in
    workgroups. `maps` says for each blob which buffer its tensor map views, and how."""

    kernel: Kernel
    grid: tuple[int, int, int]
    args: tuple[tuple[str, int], ...]
    imms: tuple[int | float, ...] = ()
    attributes: Attributes = PLAIN
    maps: tuple[tuple[tuple[str, int], TensorView], ...] = ()


@dataclass(frozen=True, slots=True)
class Lowered:
    """The calls of one step, in order; they share the request's scratch."""

    calls: tuple[KernelCall, ...]
