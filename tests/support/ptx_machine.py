"""Runs PTX on numpy: every lane of a launch at once, each with a place of its own in the code.

The lanes that stand at the lowest place run together, so lanes that part meet again where their
branches join. Out-of-bounds and misaligned accesses, torn warps and barriers that never fill are
errors. What only some cards have (wgmma, tensor maps) isn't here.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from tests.support.ptx_rows import WORD
from tests.support.ptx_text import Instruction, Module

START = 0x7F0000000000
WARP = 32
_ADDRESS = re.compile(r"\[([$\w]+)(?:\+(-?\d+))?\]")
SIZES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "b32": 4, "b64": 8}
FOLDS = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
         "or": np.bitwise_or, "exch": lambda old, new: new}  # fmt: skip
Index = np.ndarray
Action = Callable[["Run", Index], None]


class Memory:
    """Device memory: one array of bytes from START on, and which of them are allocated."""

    def __init__(self, nbytes: int) -> None:
        self.data = np.zeros(nbytes, np.uint8)
        self.live = np.zeros(nbytes, np.bool_)
        self.next = 0

    def allocate(self, nbytes: int) -> int:
        at = self.next
        self.next = -(-(at + nbytes + 64) // 256) * 256
        assert self.next <= self.data.size, "the machine is out of memory"
        self.live[at : at + nbytes] = True
        return START + at

    def bytes_at(self, pointer: int, nbytes: int) -> np.ndarray:
        at = pointer - START
        assert self.live[at : at + nbytes].all(), f"no memory at {pointer:#x} for {nbytes} bytes"
        return self.data[at : at + nbytes]


class Run:
    """One launch: registers of all lanes, workgroup memory of all groups."""

    def __init__(self, module: Module, grid: tuple[int, int, int], memory: Memory,
                 params: dict[str, int], shared_nbytes: int) -> None:  # fmt: skip
        groups = grid[0] * grid[1] * grid[2]
        self.module, self.memory, self.params, self.grid = module, memory, params, grid
        self.lanes = groups * module.threads
        self.shared = np.zeros((groups, -(-max(shared_nbytes, 16) // 16) * 16), np.uint8)
        self.shared_nbytes = shared_nbytes
        self.regs = {n: np.zeros(self.lanes, WORD[k]) for n, k in module.registers.items()}
        self.pc = np.zeros(self.lanes, np.int64)
        self.parked = np.zeros(self.lanes, np.bool_)
        self.barriers: dict[tuple[int, int], list[np.ndarray]] = {}
        self.arrived: dict[tuple[int, int], int] = {}
        self.group = np.repeat(np.arange(groups), module.threads)
        tid = np.tile(np.arange(module.threads), groups)
        x, y = grid[0], grid[1]
        self.special = {
            "%tid.x": tid, "%laneid": tid % WARP, "%ctaid.x": self.group % x,
            "%ctaid.y": self.group // x % y, "%ctaid.z": self.group // (x * y),
            **{f"%nctaid.{a}": np.full(self.lanes, n) for a, n in zip("xyz", grid, strict=True)},
        }  # fmt: skip

    # Operands

    def read(self, operand: str, idx: Index, kind: str) -> np.ndarray:
        """An operand's bits in these lanes; `kind` is the class that an immediate takes."""
        if operand.startswith("$"):
            return self.regs[operand][idx]
        if operand in self.special:
            return self.special[operand][idx].astype(np.uint32)
        word = WORD[kind]
        if operand == "smem":
            return np.zeros(idx.size, word)
        if kind == "pred":
            return np.full(idx.size, int(operand, 0) != 0)
        number = int(operand[2:], 16) if operand.startswith("0f") else int(operand, 0)
        bits = 8 * word().itemsize
        return np.full(idx.size, number & ((1 << bits) - 1), word)

    def write(self, name: str, idx: Index, words: np.ndarray) -> None:
        if name != "_":
            target = self.regs[name]
            target[idx] = words.astype(target.dtype, copy=False)

    # Memory

    def place(self, operand: str, idx: Index, size: int, shared: bool) -> np.ndarray:
        """Elements of `size` bytes in the flat memory; alignment and bounds are checked."""
        match = _ADDRESS.fullmatch(operand)
        assert match is not None, operand
        at = self.read(match[1], idx, "b64").astype(np.int64) + int(match[2] or 0)
        assert (at % size == 0).all(), f"misaligned {operand} for {size} bytes"
        if shared:
            inside = (at >= 0) & (at + size <= self.shared_nbytes)
            assert inside.all(), f"{operand} is outside workgroup memory"
            at = at + self.group[idx] * self.shared.shape[1]
        else:
            at = at - START
            inside = (at >= 0) & (at + size <= self.memory.data.size)
            assert inside.all(), f"{operand} is outside memory"
            assert self.memory.live[at].all(), f"{operand} is outside of every allocation"
            assert self.memory.live[at + size - 1].all(), (
                f"{operand} ends outside of its allocation"
            )
        return at // size

    def view(self, size: int, shared: bool) -> np.ndarray:
        flat = self.shared.reshape(-1) if shared else self.memory.data
        return flat[: flat.size // size * size].view(f"u{size}")

    # Barriers

    def park(self, key: tuple[int, int], threads: int, lanes: Index) -> None:
        held = self.barriers.setdefault(key, [])
        held.append(lanes)
        self.parked[lanes] = True
        self.fill(key, threads)

    def fill(self, key: tuple[int, int], threads: int) -> None:
        held = self.barriers.get(key, [])
        count = sum(x.size for x in held) + self.arrived.get(key, 0)
        assert count <= threads, f"barrier {key} of {threads} lanes has {count}"
        if count == threads:
            for lanes in held:
                self.parked[lanes] = False
            self.barriers[key] = []
            self.arrived[key] = 0

    def go(self, code: list[tuple[Instruction, Action]]) -> None:
        end = len(code)
        with np.errstate(all="ignore"):
            while True:
                live = (self.pc < end) & ~self.parked
                if not live.any():
                    break
                at = int(self.pc[live].min())
                idx = np.flatnonzero(live & (self.pc == at))
                at = self.straight(code, at, idx, live)
        assert not self.parked.any(), f"barriers that never fill: {self.barriers}"

    def straight(self, code: list[tuple[Instruction, Action]], at: int, idx: Index,
                 live: np.ndarray) -> int:  # fmt: skip
        """Runs on while no lane branches, waits, or stands at a lower place."""
        others = self.pc[live & (self.pc != at)]
        stop = int(others.min()) if others.size else len(code)
        while at < len(code):
            instruction, action = code[at]
            self.pc[idx] = at + 1
            lanes = idx
            if instruction.guard:
                holds = self.regs[instruction.guard][idx]
                lanes = idx[~holds if instruction.negated else holds]
            if lanes.size:
                try:
                    action(self, lanes)
                except AssertionError as e:
                    line = f"line {instruction.line}: {instruction.op} {instruction.operands}"
                    raise AssertionError(f"{self.module.name}, {line}: {e}") from e
            at += 1
            if instruction.op.split(".")[0] in ("bra", "bar", "ret") or at >= stop:
                break
        return at
