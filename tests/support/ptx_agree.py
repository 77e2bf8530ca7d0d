"""One kernel by the kernel IR's simulator and by its PTX on numpy: both have to say the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from poot.codegen.kir.nodes import Kernel
from poot.codegen.kir.sim import simulate
from poot.codegen.kir.text import parse
from poot.codegen.kir.verify import verify
from poot.codegen.ptx.emit import emit_ptx
from poot.limits import DeviceLimits, profile
from tests.support.gpu import gpu, launch_code
from tests.support.ptxas import ARCHES, Report, assemble

H200 = profile("h200")
AMPERE = replace(H200, name="a100", arch="sm_80", workgroup_nbytes=166912)


def ptx_of(kernel: Kernel | str, limits: DeviceLimits = H200) -> str:
    """The kernel's PTX."""
    return emit_ptx(parse(kernel) if isinstance(kernel, str) else kernel, limits)[1]


def assembled(kernel: Kernel | str, arches: Sequence[str] = ARCHES) -> list[Report]:
    """What ptxas says of the kernel for each architecture."""
    limits = {"sm_80": AMPERE, "sm_90a": H200}
    return [assemble(ptx_of(kernel, limits[arch]), arch) for arch in arches]


def agree(
    kernel: Kernel | str,
    arrays: Mapping[str, np.ndarray],
    grid: tuple[int, int, int] = (1, 1, 1),
    imms: Sequence[int | float] = (),
    *,
    within: float = 0.0,
    arches: Sequence[str] = ARCHES,
) -> dict[str, np.ndarray]:
    """Runs both ways over the arrays (a parameter not given starts as zeros), assembles for the
    architectures without a spill, and gives what the PTX left in each.
    """
    k = parse(kernel) if isinstance(kernel, str) else kernel
    verify(k)
    assert [r.spills for r in assembled(k, arches)] == [0] * len(arches)
    device = gpu("ptx")
    got = launch_code(device, device.emit(k), arrays, grid, imms)
    mine = {p.name: np.array(arrays[p.name]) if p.name in arrays else np.zeros_like(got[p.name])
            for p in k.params}  # fmt: skip
    simulate(k, mine, grid, imms=imms)
    for name, want in mine.items():
        seen, wanted = (x.reshape(-1).astype(np.float64) for x in (got[name], want))
        np.testing.assert_allclose(seen, wanted, rtol=within, atol=within, err_msg=name)
    return got
