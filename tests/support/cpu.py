"""The CPU under its own limits and under half its vector width, and kernels run on it against the
simulator."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from poot.backends.cpu.device import CpuDevice
from poot.backends.cpu.machine import limits
from poot.codegen.kir.nodes import Kernel
from poot.codegen.kir.sim.run import simulate
from poot.codegen.kir.verify import verify
from tests.support.gpu import launch_arrays

WIDTHS = ("own", "half")


@functools.cache
def cpu(width: str = "own") -> CpuDevice:
    """The device; "half" compiles for half as many lanes a vector, without AVX-512."""
    own = limits()
    if width == "own":
        return CpuDevice()
    lanes = max(4, own.vector // 2)
    arch = "x86-64-v3" if own.arch.count("avx2") else own.arch
    return CpuDevice(replace(own, vector=lanes, subgroup=lanes, arch=arch))


def agrees(
    kernel: Kernel,
    arrays: Mapping[str, np.ndarray],
    grid: tuple[int, int, int] = (1, 1, 1),
    imms: Sequence[int | float] = (),
    *,
    width: str = "own",
    exact: bool = True,
) -> dict[str, np.ndarray]:
    """Runs the kernel in the simulator and on the CPU from the same arrays, and compares every
    parameter afterwards."""
    verify(kernel)
    want = {name: x.copy() for name, x in arrays.items()}
    simulate(kernel, want, grid, imms=imms)
    got = launch_arrays(cpu(width), kernel, arrays, grid, imms)
    for name, expected in want.items():
        found = got[name].reshape(expected.shape)
        if exact:
            np.testing.assert_array_equal(found, expected, name)
        else:
            np.testing.assert_allclose(found, expected, 1e-5, 1e-6, err_msg=name)
    return got
