"""The kernel IR's simulator in numpy: what a kernel means, and what it does wrong."""

from __future__ import annotations

from poot.codegen.kir.sim.run import Stats, simulate
from poot.codegen.kir.sim.sparse import SparseBuffer
from poot.codegen.kir.sim.team import TensorMap

__all__ = ["SparseBuffer", "Stats", "TensorMap", "simulate"]
