"""Kernels drawn at random from a seed: nested control that lanes take apart, registers that change
in it, and memory at addresses of every kind. Small whole numbers in f32, so that results are exact.
"""

from __future__ import annotations

import numpy as np

from poot.codegen.kir.build import F32, I32, KernelBuilder, Val
from poot.codegen.kir.nodes import Kernel

ELEMS = 256


class Drawn:
    """One kernel in the making. `ints` and `floats` are values that can be used here."""

    def __init__(self, seed: int, threads: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.k = k = KernelBuilder(f"drawn{seed}", threads)
        k.param("x", "f32", ELEMS, "r")
        k.param("n", "i32", ELEMS, "r")
        k.param("y", "f32", 4 * ELEMS, "w")
        k.param("z", "f32", 4 * ELEMS, "w")
        k.shared("s", "f32", ELEMS)
        self.ints = [k.lane(), k.group_id(0), k.lit(3, I32)]
        self.floats = [k.lit(2.0)]
        self.vars = [k.var(k.lit(1.0)), k.var(k.lane(), I32)]

    def pick(self, values: list[Val]) -> Val:
        return values[int(self.rng.integers(len(values)))]

    def index(self) -> Val:
        """An address in 0 .. ELEMS - 1: the same for all lanes, by strides, or anyhow."""
        k, kind = self.k, int(self.rng.integers(4))
        if kind == 0:
            return k.group_id(0) * 2 + int(self.rng.integers(8))
        if kind == 1:
            return k.lane() + int(self.rng.integers(8)) + 64 * k.group_id(0) % 64
        if kind == 2:
            return (k.lane() * 2 + k.group_id(0)) % ELEMS
        return self.pick(self.ints) & (ELEMS - 1)

    def cond(self) -> Val:
        k = self.k
        made = [
            lambda: (self.pick(self.ints) & 3) < 2,
            lambda: self.k.group_id(0) < 1,
            lambda: k.lane() < int(self.rng.integers(1, 20)),
            lambda: self.pick(self.floats) < 3.0,
        ]
        return made[int(self.rng.integers(len(made)))]()

    def compute(self) -> None:
        k, kind = self.k, int(self.rng.integers(6))
        if kind == 0:
            self.floats.append(k.load("x", self.index()))
        elif kind == 1:
            self.ints.append(k.load("n", self.index()))
        elif kind == 2:
            half = k.op("min", k.op("max", self.pick(self.floats), -64.0), 64.0)
            self.floats.append(half + self.pick(self.floats) * 0.5)
        elif kind == 3:
            self.ints.append((self.pick(self.ints) * 5 + self.pick(self.ints)) & 0xFFFF)
        elif kind == 4:
            number = k.copy(self.vars[0])
            capped = k.op("min", k.op("max", number + self.pick(self.floats), -512.0), 512.0)
            k.set(self.vars[0], k.op("rint", capped))
        else:
            k.set(self.vars[1], (k.copy(self.vars[1]) + self.pick(self.ints)) & 0xFFFF)

    def inside(self, depth: int) -> None:
        """Statements of a nested block; what they make is not used after it."""
        ints, floats = list(self.ints), list(self.floats)
        self.block(depth + 1)
        self.ints, self.floats = ints, floats

    def block(self, depth: int) -> None:
        k = self.k
        for _ in range(int(self.rng.integers(2, 5))):
            self.compute()
        for _ in range(int(self.rng.integers(3 - depth)) if depth < 3 else 0):
            kind = int(self.rng.integers(4))
            if kind == 0:
                with k.if_(self.cond()):
                    self.inside(depth)
                if self.rng.integers(2):
                    with k.else_():
                        self.inside(depth)
            elif kind == 1:
                with k.for_(0, self.pick(self.ints) & 3) as i:
                    self.ints.append(i)
                    self.inside(depth)
                    self.ints.pop()
            elif kind == 2:
                with k.for_(k.lane() & 1, 4, 2):
                    self.inside(depth)
            else:
                left = k.var(self.pick(self.ints) & 3, I32)
                with k.block_() as head:
                    goes_on = k.copy(left) > 0
                with k.while_(head, goes_on):
                    k.set(left, k.copy(left) - 1)
                    self.inside(depth)
            self.compute()

    def kernel(self, meets: bool) -> Kernel:
        k, lane = self.k, self.k.lane()
        self.block(0)
        if meets:
            k.store("s", lane, k.copy(self.vars[0]))
            k.barrier()
            other = k.load("s", (lane * 7 + 3) % k.threads)
            k.barrier()
            self.floats.append(other)
            self.block(1)
        at = k.group_id(0) * k.threads + lane
        k.store("y", at, k.copy(self.vars[0]))
        k.store("z", at, k.cast(k.copy(self.vars[1]), "f32") + k.bitcast(k.lit(0.0), F32))
        return k.kernel()


def drawn_kernel(seed: int, threads: int, meets: bool) -> Kernel:
    return Drawn(seed, threads).kernel(meets)


def drawn_inputs(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.integers(-8, 8, ELEMS).astype(np.float32),
        "n": rng.integers(0, ELEMS, ELEMS).astype(np.int32),
        "y": np.zeros(4 * ELEMS, np.float32),
        "z": np.zeros(4 * ELEMS, np.float32),
    }
