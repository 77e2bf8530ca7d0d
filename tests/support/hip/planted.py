"""Kernels whose HIP text has a fault planted in it, for the tools that should find it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from poot.codegen.code import Code
from poot.codegen.emitters import emit
from poot.codegen.kir.build import F32, KernelBuilder
from poot.limits import DeviceLimits

LANES = 128
BARRIER = "__syncthreads();"


def rotate(limits: DeviceLimits) -> Code:
    """y[i] = x[i + 1] within a group of 128, through workgroup memory and one barrier. A second
    array lies behind the one it goes through."""
    k = KernelBuilder("rotate", LANES)
    x, y = k.param("x", "f32", 2 * LANES, "r"), k.param("y", "f32", 2 * LANES, "w")
    held = k.shared("held", "f32", LANES)
    k.shared("behind", "f32", LANES)
    base = k.group_id(0) * LANES
    k.store(held, k.lane(), k.load(x, base + k.lane()))
    k.barrier()
    k.store(y, base + k.lane(), k.load(held, (k.lane() + 1) % LANES))
    return emit(k.kernel(), limits)


def shift(limits: DeviceLimits, by: int) -> Code:
    """y[i] = x[i + by] within one group of 128, by 1 or -1; the lane at the end keeps its own."""
    k = KernelBuilder("shift", LANES)
    x, y = k.param("x", "f32", 2 * LANES, "r"), k.param("y", "f32", 2 * LANES, "rw")
    held = k.shared("held", "f32", LANES)
    k.store(held, k.lane(), k.load(x, k.lane()))
    k.barrier()
    near = k.op("max", k.op("min", k.lane() + by, LANES - 1), 0)
    k.store(y, k.lane(), k.load(held, near))
    return emit(k.kernel(), limits)


def exchange(limits: DeviceLimits) -> Code:
    """y[i] = x[i ^ 1], by an exchange within a wave."""
    k = KernelBuilder("exchange", LANES, limits.subgroup)
    x, y = k.param("x", "f32", 2 * LANES, "r"), k.param("y", "f32", 2 * LANES, "w")
    at = k.group_id(0) * LANES + k.lane()
    k.store(y, at, k.op("shuffle_xor", k.load(x, at), mask=1, type=F32))
    return emit(k.kernel(), limits)


def edited(code: Code, old: str, new: str) -> Code:
    """The code with one place of its text changed."""
    assert code.text.count(old) == 1, (old, code.text)
    text = code.text.replace(old, new)
    return replace(code, text=text, binary=text.encode())


def without_barrier(limits: DeviceLimits) -> Code:
    return edited(rotate(limits), BARRIER, "")


def divergent_barrier(limits: DeviceLimits) -> Code:
    return edited(rotate(limits), BARRIER, f"if (threadIdx.x != 77) {BARRIER}")


def divergent_exchange(limits: DeviceLimits) -> Code:
    code = exchange(limits)
    (line,) = [x.strip() for x in code.text.splitlines() if "__shfl_xor(" in x]
    name = line.split()[2]
    value = line.split(" = ")[1]
    new = f"float {name} = 0; if (threadIdx.x % 8) {name} = {value}"
    return edited(code, line, new)


def outside_write(limits: DeviceLimits, by: int = LANES) -> Code:
    """The last group writes `by` elements too far."""
    code = rotate(limits)
    (line,) = [x.strip() for x in code.text.splitlines() if x.strip().startswith("y[")]
    return edited(code, line, line.replace("y[", f"y[{by} + ", 1))


def outside_shared(limits: DeviceLimits) -> Code:
    """Each lane writes one element too far, the last of them into the next workgroup array."""
    code = rotate(limits)
    (line,) = [x.strip() for x in code.text.splitlines() if x.strip().startswith("held[")]
    return edited(code, line, line.replace("held[", "held[1 + ", 1))


def behind_shared(limits: DeviceLimits) -> Code:
    """Each lane writes one element too far, behind the last workgroup array."""
    code = rotate(limits)
    (line,) = [x.strip() for x in code.text.splitlines() if x.strip().startswith("held[")]
    return edited(code, line, line.replace("held[", f"held[{LANES} + 1 + ", 1))


def feed() -> np.ndarray:
    return np.arange(2 * LANES, dtype=np.float32) + 1


def rotated(x: np.ndarray) -> np.ndarray:
    return np.roll(x.reshape(2, LANES), -1, axis=1).reshape(-1)
