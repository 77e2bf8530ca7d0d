"""Runs a kernel over numpy arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from poot.codegen.kir.nodes import Ins, Kernel, Lit, Roles, Ty, walk
from poot.codegen.kir.ops import KIR_OPS
from poot.codegen.kir.sim.exact import WAVES, run_group
from poot.codegen.kir.sim.memory import Space
from poot.codegen.kir.sim.portable import VECTOR
from poot.codegen.kir.sim.program import Program, compile_kernel
from poot.codegen.kir.sim.races import GroupTracker, LaunchTracker
from poot.codegen.kir.sim.sparse import SparseBuffer
from poot.codegen.kir.sim.team import TensorMap
from poot.codegen.kir.sim.values import NUMPY, constant
from poot.codegen.kir.sim.wave import Coord, Place, Value, Wave
from poot.errors import SimulationError

Buffer = npt.NDArray[np.generic] | SparseBuffer
Group = int | tuple[int, ...]
# Lanes and workgroup elements that run together at most; more groups go one batch behind the other.
_LANES, _ELEMS = 1 << 14, 1 << 22


@dataclass(frozen=True, slots=True)
class Stats:
    """What a simulation did: elements loaded from and stored to each buffer and workgroup array, by
    the active lanes, and the groups that ran.
    """

    loads: dict[str, int]
    stores: dict[str, int]
    groups: int


def runs_as_vector(kernel: Kernel) -> bool:
    """Whether whole workgroups can run as one vector: no roles, nothing asynchronous, only
    barriers of the group.
    """
    for stmt in walk(kernel.body):
        if isinstance(stmt, Roles):
            return False
        if isinstance(stmt, Ins):
            is_portable = KIR_OPS[stmt.op].portable
            if not is_portable or (stmt.op == "barrier" and stmt.attr("scope") != "group"):
                return False
    return True


def _as_coord(group: Group, grid: Coord) -> Coord:
    if isinstance(group, tuple):
        x, y, z = (*group, 0, 0, 0)[:3]
        return x, y, z
    return group % grid[0], group // grid[0] % grid[1], group // (grid[0] * grid[1])


def _chosen(groups: Iterable[Group] | None, grid: Coord) -> list[Coord]:
    total = grid[0] * grid[1] * grid[2]
    picked = [_as_coord(g, grid) for g in (range(total) if groups is None else groups)]
    for g in picked:
        if any(not 0 <= g[axis] < grid[axis] for axis in range(3)):
            raise SimulationError(f"undefined: group {g} is not in grid {grid}")
    return picked


def _buffers(
    kernel: Kernel, given: Mapping[str, Buffer], uninitialised: Sequence[str], races: bool
) -> dict[str, Space]:
    names = [p.name for p in kernel.params]
    if sorted(given) != sorted(names):
        raise SimulationError(f"undefined: buffers {sorted(given)} for parameters {sorted(names)}")
    spaces: dict[str, Space] = {}
    for p in kernel.params:
        buffer = given[p.name]
        if buffer.size < p.elems:
            what = f"{p.name} needs {p.elems} elements and the array has {buffer.size}"
            raise SimulationError(f"out-of-bounds: {what}", kind="out-of-bounds")
        is_sparse = isinstance(buffer, SparseBuffer)
        if is_sparse and p.name in uninitialised:
            raise SimulationError(f"undefined: {p.name} is sparse, its contents are what it says")
        if not isinstance(buffer, SparseBuffer):
            right = buffer.dtype == NUMPY[p.dtype] or (
                p.dtype == "bool" and buffer.dtype == np.uint32
            )
            if not right or not buffer.flags.c_contiguous:
                raise SimulationError(
                    f"undefined: {p.name} needs a contiguous {p.dtype} array, got {buffer.dtype}"
                )
            buffer = buffer.reshape(-1)
        written = np.zeros(p.elems, np.bool_) if p.name in uninitialised else None
        is_tracked = races and "w" in p.access and not is_sparse
        tracker = LaunchTracker(p.name, p.elems) if is_tracked else None
        spaces[p.name] = Space(p.name, p.dtype, p.elems, buffer, written, tracker)
    return spaces


def _shared_spaces(kernel: Kernel, groups: int) -> dict[str, Space]:
    """Fresh workgroup memory for groups that run together: nothing is written yet."""
    spaces: dict[str, Space] = {}
    for s in kernel.shared:
        if s.dtype == "mbar":
            continue
        total = s.elems * groups
        data = np.zeros(total, NUMPY[s.dtype])
        tracker = GroupTracker(s.name, total, groups * kernel.threads)
        written = np.zeros(total, np.bool_)
        spaces[s.name] = Space(s.name, s.dtype, s.elems, data, written, tracker, is_shared=True)
    return spaces


@dataclass(frozen=True, slots=True)
class _Launch:
    grid: Coord
    width: int
    imms: dict[str, Value]
    buffers: dict[str, Space]
    maps: dict[str, TensorMap]


def _maps(
    kernel: Kernel, given: Mapping[str, TensorMap], spaces: Mapping[str, Space]
) -> dict[str, TensorMap]:
    """The tensor map of each blob: as many extents and strides as its box has edges, over a buffer
    of its dtype.
    """
    for blob in kernel.blobs:
        found = given.get(blob.name)
        if found is None or found.buffer not in spaces:
            raise SimulationError(f"undefined: blob {blob.name} has no tensor map over a buffer")
        ranks = {len(blob.box), len(found.dims), len(found.strides)}
        if len(ranks) != 1 or spaces[found.buffer].dtype != blob.dtype or found.strides[0] != 1:
            what = f"its box {blob.box} of {blob.dtype}, innermost stride 1: {found}"
            raise SimulationError(f"undefined: the tensor map of {blob.name} has to fit {what}")
    return dict(given)


def _run_vector(program: Program, batch: Sequence[Coord], launch: _Launch) -> dict[str, Space]:
    kernel = program.kernel
    assert program.block.plain is not None, kernel.name
    lane = np.tile(np.arange(kernel.threads), len(batch))
    slot = np.repeat(np.arange(len(batch)), kernel.threads)
    width = min(launch.width, kernel.threads)
    place = Place(tuple(batch), launch.grid, lane, slot, kernel.threads, width)
    shared = _shared_spaces(kernel, len(batch))
    wave = Wave(place, list(program.registers), {**launch.buffers, **shared}, launch.imms)
    for step in program.block.plain:
        step(wave)
    return shared


def _run_waves(
    program: Program,
    chosen: Sequence[Coord],
    launch: _Launch,
    totals: dict[str, list[int]],
) -> None:
    for group in chosen:
        shared = run_group(
            program, group, launch.grid, launch.width, launch.imms, launch.buffers, launch.maps
        )
        _count(totals, shared)


def _count(totals: dict[str, list[int]], spaces: Mapping[str, Space]) -> None:
    for name, space in spaces.items():
        totals[name][0] += space.loads
        totals[name][1] += space.stores


def _run_vectors(
    program: Program, chosen: Sequence[Coord], launch: _Launch, totals: dict[str, list[int]]
) -> None:
    kernel = program.kernel
    room = max(1, _ELEMS // max(1, sum(s.elems for s in kernel.shared)))
    batch = max(1, min(_LANES // kernel.threads, room))
    for at in range(0, len(chosen), batch):
        _count(totals, _run_vector(program, chosen[at : at + batch], launch))


def simulate(
    kernel: Kernel,
    buffers: Mapping[str, Buffer],
    grid: int | tuple[int, ...],
    groups: Iterable[Group] | None = None,
    imms: Sequence[int | float] = (),
    subgroup: int | None = None,
    *,
    blobs: Mapping[str, TensorMap] | None = None,
    uninitialised: Sequence[str] = (),
    buffer_races: bool = False,
    in_waves: bool = False,
) -> Stats:
    """Runs the workgroups of a launch over the arrays, in place, and says what it read and wrote.

    `groups` chooses some (numbers, x fastest, or coordinates), in that order; None runs all. `imms`
    are in the kernel's order. Arrays are contiguous, of the parameter's dtype (bool: numpy bool, or
    u32 words), and may be larger than the parameter. `subgroup` is the width where the kernel asks
    for none. `blobs` says what is in the tensor maps. `uninitialised` names arrays whose contents
    nothing wrote; `buffer_races` also looks for lanes that meet in an array (not a sparse one).

    A kernel without roles, asynchronous work and barriers of less than a group runs many groups at
    once as one vector of lanes; others, and all with `in_waves`, run subgroup by subgroup. Raises
    SimulationError.
    """
    edges = (grid,) if isinstance(grid, int) else grid
    x, y, z = (*edges, 1, 1, 1)[:3]
    chosen = _chosen(groups, (x, y, z))
    if kernel.subgroup is not None and subgroup not in (None, kernel.subgroup):
        what = f"{kernel.name} is written for subgroups of {kernel.subgroup}, not {subgroup}"
        raise SimulationError(f"undefined: {what}")
    if len(imms) != len(kernel.imms):
        raise SimulationError(f"undefined: {len(kernel.imms)} immediates, {len(imms)} given")
    words = {i.name: constant(Lit(v, Ty(i.dtype))) for i, v in zip(kernel.imms, imms, strict=True)}
    spaces = _buffers(kernel, buffers, uninitialised, buffer_races)
    width = kernel.subgroup or subgroup or min(32, kernel.threads)
    maps = _maps(kernel, blobs or {}, spaces)
    launch = _Launch((x, y, z), width, words, spaces, maps)
    totals = {s.name: [0, 0] for s in (*kernel.params, *kernel.shared)}
    as_vector = runs_as_vector(kernel) and not in_waves
    program = compile_kernel(kernel, VECTOR if as_vector else WAVES)
    with np.errstate(all="ignore"):
        (_run_vectors if as_vector else _run_waves)(program, chosen, launch, totals)
    _count(totals, spaces)
    loads = {name: n for name, (n, _) in totals.items()}
    return Stats(loads, {name: n for name, (_, n) in totals.items()}, len(chosen))
