"""The machine that runs one workgroup wave by wave: every op, every kind of barrier, asynchronous
work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from poot.codegen.kir.nodes import Kernel, Roles
from poot.codegen.kir.sim.barriers import BARRIERS, MEETINGS
from poot.codegen.kir.sim.clocks import Clocks, ClockTracker
from poot.codegen.kir.sim.copies import COPIES, open_stores
from poot.codegen.kir.sim.matrix import MATRIX
from poot.codegen.kir.sim.memory import Space
from poot.codegen.kir.sim.portable import PORTABLE
from poot.codegen.kir.sim.products import PRODUCTS
from poot.codegen.kir.sim.program import Machine, Program
from poot.codegen.kir.sim.team import Team, TensorMap, Warp, run_in_turn
from poot.codegen.kir.sim.values import NUMPY
from poot.codegen.kir.sim.wave import Coord, Place, Value
from poot.errors import SimulationError

WAVES = Machine(
    "wave",
    {**PORTABLE, **BARRIERS, **COPIES, **MATRIX, **PRODUCTS},
    MEETINGS,
    spins=True,
)


def _shared(kernel: Kernel, clocks: Clocks) -> dict[str, Space]:
    spaces: dict[str, Space] = {}
    for s in kernel.shared:
        if s.dtype != "mbar":
            data = np.zeros(s.elems, NUMPY[s.dtype])
            tracker = ClockTracker(s.name, s.elems, clocks)
            written = np.zeros(s.elems, np.bool_)
            spaces[s.name] = Space(s.name, s.dtype, s.elems, data, written, tracker, True)
    return spaces


def run_group(
    program: Program,
    group: Coord,
    grid: Coord,
    width: int,
    imms: Mapping[str, Value],
    buffers: Mapping[str, Space],
    maps: Mapping[str, TensorMap],
) -> dict[str, Space]:
    """Runs one workgroup; its workgroup memory as it was left."""
    kernel = program.kernel
    clocks = Clocks(kernel.threads, width)
    shared = _shared(kernel, clocks)
    blobs = {b.name: (b, maps[b.name]) for b in kernel.blobs}
    roles = [s for s in kernel.body if isinstance(s, Roles)]
    mbars = {s.name: s.elems for s in kernel.shared if s.dtype == "mbar"}
    team = Team({**buffers, **shared}, clocks, blobs, roles, mbars)
    for first in range(0, kernel.threads, width):
        lane = np.arange(first, min(first + width, kernel.threads))
        place = Place((group,), grid, lane, np.zeros_like(lane), kernel.threads, width)
        team.warps.append(Warp(team, place, list(program.registers), imms))
    names = [f"subgroup {w.number} of group {group}" for w in team.warps]
    run_in_turn([program.block.run(w) for w in team.warps], names)
    _check_end(team.warps, group)
    return shared


def _check_end(warps: Sequence[Warp], group: Coord) -> None:
    for warp in warps:
        if open_stores(warp):
            what = f"subgroup {warp.number} of group {group} ends before its bulk stores do"
            raise SimulationError(f"in-flight: {what}", kind="in-flight")
