"""Chosen workgroups of a step at its real addresses, by the simulator over sparse memory: for
programs too large to hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from poot.api import Program
from poot.codegen.kir.sim import SparseBuffer, simulate
from poot.codegen.kir.verify import check_arrays, verify
from poot.planner.plan import Place, Step

Fill = Callable[[np.ndarray], np.ndarray]


def only_step(program: Program, entry: str = "main") -> Step:
    """The step of an entry point that has one."""
    (step,) = program.entries[entry].plan.steps
    return step


def edge_groups(total: int) -> list[int]:
    """The first groups, the last, those around a grid's fold at 65535, and four at random."""
    rng = np.random.default_rng(total)
    near = [0, 1, 65534, 65535, 65536, total // 2, total - 2, total - 1, *rng.integers(0, total, 4)]
    return sorted({int(g) for g in near if 0 <= g < total})


def run_groups(
    program: Program, fills: Mapping[str, Fill], groups: Iterable[int], entry: str = "main"
) -> list[SparseBuffer]:
    """The outputs of a program of one step of one launch after these groups ran (numbers, x
    fastest; those past the grid are left out). `fills` gives each input's contents from element
    numbers; an output starts as NaN or as -1."""
    step = only_step(program, entry)
    (call,) = program.lowered[step.request].calls
    verify(call.kernel)
    check_arrays(call.kernel)
    places: dict[tuple[str, int], Place] = {("in", n): p for n, p in enumerate(step.ins)}
    buffers: dict[str, SparseBuffer] = {}
    outputs: list[SparseBuffer] = []
    for p, (kind, n) in zip(call.kernel.params, call.args, strict=True):
        if kind == "in":
            name = places[kind, n].name.partition(":")[2] or places[kind, n].name
            buffers[p.name] = SparseBuffer(p.dtype, p.elems, fills[name])
            continue
        buffers[p.name] = SparseBuffer(p.dtype, p.elems, _never(p.dtype))
        outputs.append(buffers[p.name])
    total = int(np.prod(call.grid))
    chosen = [g for g in groups if g < total]
    simulate(call.kernel, buffers, call.grid, chosen, call.imms)
    return outputs


def _never(dtype: str) -> Fill:
    is_float = dtype in ("f32", "f16", "bf16")
    return lambda at: np.full(at.shape, np.nan if is_float else -1)


def launches_of(program: Program) -> list[tuple[str, tuple[int, int, int]]]:
    """(kernel, grid) of every launch of a program, in order."""
    return [
        (call.kernel.name, call.grid)
        for entry in program.plan.entries
        for step in entry.steps
        for call in program.lowered[step.request].calls
    ]
