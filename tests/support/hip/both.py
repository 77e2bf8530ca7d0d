"""A kernel run by fibers and by the simulator, which says what it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from poot.codegen.code import Code
from poot.codegen.emitters import emit
from poot.codegen.kir.nodes import Kernel
from poot.codegen.kir.sim import simulate
from poot.codegen.kir.sim.values import NUMPY
from poot.codegen.kir.verify import verify
from poot.limits import DeviceLimits, profile
from tests.support.gpu import launch_code
from tests.support.hip.fiber_device import FiberDevice, fiber_limits

LIMITS = {wave: fiber_limits(wave) for wave in (32, 64)}
MI300X, RDNA3 = profile("mi300x"), profile("rdna3")


def code_of(kernel: Kernel, limits: DeviceLimits = MI300X) -> Code:
    """The kernel as HIP, verified first."""
    verify(kernel)
    return emit(kernel, limits)


def text_of(kernel: Kernel, limits: DeviceLimits = MI300X) -> str:
    return code_of(kernel, limits).text


def body_of(kernel: Kernel, limits: DeviceLimits = MI300X) -> list[str]:
    """The lines inside the function, without their first indentation."""
    lines = text_of(kernel, limits).splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("void poot_"))
    return [line[2:] for line in lines[start + 1 : -1]]


def by_fibers(
    kernel: Kernel,
    arrays: Mapping[str, np.ndarray],
    grid: tuple[int, int, int] = (1, 1, 1),
    imms: Sequence[int | float] = (),
    wave: int = 64,
    order: int = 2,
) -> dict[str, np.ndarray]:
    device = FiberDevice(kernel.subgroup or wave, order)
    return launch_code(device, code_of(kernel, device.limits), arrays, grid, imms)


def by_simulator(
    kernel: Kernel,
    arrays: Mapping[str, np.ndarray],
    grid: tuple[int, int, int] = (1, 1, 1),
    imms: Sequence[int | float] = (),
) -> dict[str, np.ndarray]:
    out: dict[str, np.ndarray] = {}
    for p in kernel.params:
        dtype = "u32" if p.dtype == "bool" else p.dtype
        given = arrays.get(p.name)
        empty = np.zeros(p.elems, NUMPY[dtype])
        out[p.name] = empty if given is None else given.astype(NUMPY[dtype]).reshape(-1).copy()
    simulate(kernel, out, grid, imms=imms)
    return {n: x != 0 if _is_bool(kernel, n) else x for n, x in out.items()}


def _is_bool(kernel: Kernel, name: str) -> bool:
    return any(p.name == name and p.dtype == "bool" for p in kernel.params)


def agree(
    kernel: Kernel,
    arrays: Mapping[str, np.ndarray],
    grid: tuple[int, int, int] = (1, 1, 1),
    imms: Sequence[int | float] = (),
    *,
    within: float = 0.0,
    wave: int = 64,
    order: int = 2,
) -> dict[str, np.ndarray]:
    """Asserts that each buffer is the simulator's after the launch, to `within`, in this order of
    the fiber device's lanes."""
    got = by_fibers(kernel, arrays, grid, imms, wave, order)
    want = by_simulator(kernel, arrays, grid, imms)
    for name, mine in got.items():
        theirs = want[name]
        assert mine.dtype == theirs.dtype, name
        if mine.dtype.kind == "V":  # numpy knows no NaN of those
            mine, theirs = mine.astype(np.float32), theirs.astype(np.float32)
        if within == 0.0:
            np.testing.assert_array_equal(mine, theirs, err_msg=name)
        else:
            wide = np.float64
            np.testing.assert_allclose(
                mine.astype(wide), theirs.astype(wide), rtol=within, atol=within, err_msg=name
            )
    return got


def compile_ahead(kernels: Sequence[Kernel], wave: int = 64) -> None:
    """One library of them all, where `agree` would make one of each."""
    device = FiberDevice(wave)
    device.load([code_of(kernel, device.limits) for kernel in kernels])


def narrowed(wave: int, **numbers: int) -> DeviceLimits:
    """The fiber device's limits with some of them changed."""
    return replace(LIMITS[wave], **numbers)
