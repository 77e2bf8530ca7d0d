"""Kernels in text for tests: one-off bodies, and the files under tests/codegen/kir/kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from poot.codegen.kir.nodes import Kernel
from poot.codegen.kir.sim import Stats, TensorMap, simulate
from poot.codegen.kir.sim.values import NUMPY
from poot.codegen.kir.text import parse
from poot.codegen.kir.verify import verify
from tests.support.sources import ROOT

FOLDER = ROOT / "tests/codegen/kir/kernels"


def kernel_text(name: str) -> str:
    """A committed kernel's text."""
    return (FOLDER / f"{name}.kir").read_text()


def kernel_of(body: str, declarations: str = "", threads: int = 64, width: int = 0) -> Kernel:
    """A kernel around a body's text."""
    subgroup = f" subgroup={width}" if width else ""
    return parse(f"kernel k threads={threads}{subgroup} {{\n{declarations}\n{body}\n}}\n")


def run_kernel(
    body: str,
    declarations: str = "",
    buffers: Mapping[str, np.ndarray] | None = None,
    *,
    threads: int = 64,
    width: int = 0,
    grid: int = 1,
    is_verified: bool = True,
    blobs: Mapping[str, TensorMap] | None = None,
    in_waves: bool = False,
    buffer_races: bool = False,
    uninitialised: Sequence[str] = (),
) -> Stats:
    """Verifies and simulates a body."""
    kernel = kernel_of(body, declarations, threads, width)
    if is_verified:
        verify(kernel)
    return simulate(
        kernel,
        buffers or {},
        grid,
        blobs=blobs,
        in_waves=in_waves,
        buffer_races=buffer_races,
        uninitialised=uninitialised,
    )


def run_op(line: str, dtype: str, *args: np.ndarray, out: str = "", lanes: int = 1) -> np.ndarray:
    """What `d = line` gives, elementwise over arrays, whose values are named a, b, c in it. `out`
    is the result's dtype, where it is another; `lanes` elements go to each lane as a vector.
    """
    names = "abc"[: len(args)]
    sizes = {x: a.size for x, a in zip(names, args, strict=True)}
    total = max(sizes.values())
    kinds = {
        x: next(n for n, k in NUMPY.items() if k == a.dtype)
        for x, a in zip(names, args, strict=True)
    }
    head = [f"param p{x}: {kinds[x]}[{total}] r align=16" for x in names]
    result = out or dtype
    suffix = f"x{lanes}" if lanes > 1 else ""
    head.append(f"param po: {result}[{total}] w align=16")
    body = ["l: i32 = lane", f"i: i32 = mul l, {lanes}"]
    body += [f"{x}: {kinds[x]}{suffix} = load p{x}[i]" for x in names]
    body += [f"d: {result}{suffix} = {line}", "store po[i], d"]
    given: dict[str, np.ndarray] = {
        f"p{x}": np.resize(a, total) for x, a in zip(names, args, strict=True)
    }
    given["po"] = np.zeros(total, NUMPY[result])
    run_kernel("\n".join(body), "\n".join(head), given, threads=total // lanes)
    return given["po"]
