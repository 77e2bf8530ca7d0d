"""Attention through Vulkan beside the same through CUDA, on one card, in one process.

    python -m benchmarks.vulkan_attention --out build/vulkan [--targets cuda:0 vulkan:0]

Each row is compiled for every target, and three of its heads are compared with f64. Then targets
take turns, in a new order every round; a time is what the device's own timestamps say of the
launches, a median. The first target is what the others are measured by. Keys and values are
Weights, so that they lie on the device. Writes vulkan-<date>.json; a table comes last.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

import poot
from benchmarks.isolated import machine, run_all, work
from benchmarks.record import save
from poot import ops
from poot.ir.dtypes import DTYPES
from poot.session import Session

ROUNDS, WARM = 15, 3
FOLDER = Path("/tmp/poot-vulkan")
WITHIN = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}
TARGETS = ("cuda:0", "vulkan:0")


@dataclass(frozen=True, slots=True)
class Row:
    """One attention; `goal` is the least share of the first target's speed."""

    name: str
    batch: int
    heads: int
    kv_heads: int
    rows: int
    keys: int
    width: int
    dtype: str = "bf16"
    causal: bool = False
    goal: float = 0.0

    @property
    def nbytes(self) -> int:
        """Of keys and values, read once."""
        size = DTYPES[self.dtype].nbytes
        return 2 * self.batch * self.kv_heads * self.keys * self.width * size

    @property
    def flops(self) -> float:
        seen = self.rows * self.keys
        if self.causal:
            seen = sum(min(self.keys, r + 1) for r in range(self.rows))
        return 4.0 * self.batch * self.heads * self.width * seen


ROWS: tuple[Row, ...] = (
    Row("decode B1 L4096", 1, 32, 8, 1, 4096, 128, goal=0.8),
    Row("decode B1 L32768", 1, 32, 8, 1, 32768, 128, goal=0.8),
    Row("decode B8 L4096", 8, 32, 8, 1, 4096, 128, goal=0.8),
    Row("decode B32 L4096", 32, 32, 8, 1, 4096, 128, goal=0.8),
    Row("decode B32 L4096 f16", 32, 32, 8, 1, 4096, 128, "f16", goal=0.8),
    Row("decode B32 L4096 D64", 32, 32, 8, 1, 4096, 64, goal=0.8),
    Row("decode B16 32/32 L4096", 16, 32, 32, 1, 4096, 128, goal=0.8),
    Row("decode B8 L4096 f32", 8, 32, 8, 1, 4096, 128, "f32", goal=0.8),
    Row("prefill D64 L2048 causal", 1, 32, 32, 2048, 2048, 64, causal=True),
    Row("prefill D128 L2048 causal", 1, 32, 8, 2048, 2048, 128, causal=True),
    Row("prefill D128 L2048 f16 causal", 1, 32, 8, 2048, 2048, 128, "f16", causal=True),
    Row("prefill D128 L4096 full", 1, 16, 16, 4096, 4096, 128),
)
SMALL: tuple[Row, ...] = (
    Row("check decode", 2, 8, 2, 1, 300, 64),
    Row("check decode f32", 2, 8, 2, 1, 300, 128, "f32"),
    Row("check prefill", 2, 4, 2, 100, 100, 128, causal=True),
    Row("check prefill f16", 1, 4, 2, 70, 70, 64, "f16"),
)


@dataclass(frozen=True, slots=True)
class Arrays:
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray


def arrays_of(row: Row) -> Arrays:
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32).astype(DTYPES[row.dtype].numpy)

    kv = (row.batch, row.kv_heads, row.keys, row.width)
    return Arrays(drawn(row.batch, row.heads, row.rows, row.width), drawn(*kv), drawn(*kv))


def reference(row: Row, arrays: Arrays, b: int, h: int) -> np.ndarray:
    """One head in f64."""
    own = h // (row.heads // row.kv_heads)
    q, k, v = arrays.q[b, h], arrays.k[b, own], arrays.v[b, own]
    s = q.astype(np.float64) @ k.astype(np.float64).T * row.width**-0.5
    if row.causal:
        s = np.where(np.tri(row.rows, row.keys, dtype=bool), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v.astype(np.float64)


def open_session(row: Row, arrays: Arrays, target: str) -> tuple[Session, str]:
    """A session that holds keys and values, and its attention's schedule."""
    scale = row.width**-0.5

    def step(k: object, v: object, q: object) -> object:
        return ops.attention_prefill(q, k, v, scale=scale, causal=row.causal)

    kv = poot.weight(arrays.k.shape, row.dtype)
    graph = poot.trace(step, (kv, kv, poot.slot(arrays.q.shape, row.dtype)))
    program = poot.compile(graph, target)
    entry = next(iter(program.entries.values()))
    names = [s.request.schedule.name for s in entry.plan.steps if s.request.anchor == "attention"]
    return program.bind({"k": arrays.k, "v": arrays.v}), " ".join(names) or "primitives"


def run_row(row: Row, targets: tuple[str, ...]) -> dict[str, object]:
    """Everything about one row: errors over what is allowed, times, schedules."""
    arrays = arrays_of(row)
    report: dict[str, object] = {"row": row.name}
    sessions: dict[str, Session] = {}
    errors: dict[str, float] = {}
    schedules: dict[str, str] = {}
    heads = sorted({(0, 0), (row.batch // 2, row.heads // 2), (row.batch - 1, row.heads - 1)})
    wanted = {at: reference(row, arrays, *at) for at in heads}
    for target in targets:
        sessions[target], schedules[target] = open_session(row, arrays, target)
        got = np.asarray(sessions[target].step(q=arrays.q)).astype(np.float64)
        worst = max(
            float((np.abs(got[at] - want) / (1 + np.abs(want))).max())
            for at, want in wanted.items()
        )
        errors[target] = worst / WITHIN[row.dtype]
    report |= {"errors": errors, "schedules": schedules,
               "right": all(e <= 1 for e in errors.values())}  # fmt: skip
    times: dict[str, list[float]] = {t: [] for t in targets}
    order, rng = list(targets), random.Random(0)
    for number in range(ROUNDS + WARM):
        rng.shuffle(order)
        for target in order:
            us = sessions[target].profile(q=arrays.q).us
            if number >= WARM:
                times[target].append(us)
    for session in sessions.values():
        session.close()
    return report | {"us": times}


def _line(row: Row, report: dict[str, object], targets: tuple[str, ...]) -> str:
    us, errors, schedules = (report.get(n) for n in ("us", "errors", "schedules"))
    if not (isinstance(us, dict) and isinstance(errors, dict) and isinstance(schedules, dict)):
        return f"{row.name:<31}{str(report)[:300]}"
    first = statistics.median(us[targets[0]])
    out = f"{row.name:<31}"
    for target in targets:
        median = statistics.median(us[target])
        rate = row.flops / median / 1e6 if row.rows > 1 else row.nbytes / median / 1e6
        out += f"{median:>11.1f}{rate:>8.2f}{first / median:>7.2f}"
    goal = f"{row.goal:>6.2f}" if row.goal else " " * 6
    return f"{out}{goal}  right {report['right']} {' / '.join(map(str, schedules.values()))}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "build/vulkan")))
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--targets", nargs="+", default=list(TARGETS))
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--worker", nargs="+", default=[])
    given = parser.parse_args()
    every = {r.name: r for r in (*SMALL, *ROWS)}
    if given.worker:
        _, log, *names = given.worker
        targets = tuple(os.environ["ATTENTION_TARGETS"].split())
        work(names, Path(log), lambda name: run_row(every[name], targets))
        return
    targets = tuple(given.targets)
    os.environ["ATTENTION_TARGETS"] = " ".join(targets)  # for the workers
    given.out.mkdir(parents=True, exist_ok=True)
    for found in poot.devices():
        has = () if found.limits is None else found.limits.matrix_dtypes
        print(f"{found.name}: {found.description or found.reason} matrices {' '.join(has)}")
    log = given.out / "vulkan-rows.jsonl"
    log.unlink(missing_ok=True)
    names = [n for n in every if not given.only or n in given.only]
    reports = run_all(
        "benchmarks.vulkan_attention", names, FOLDER, log, time.time() + given.seconds
    )
    now = datetime.now(UTC)
    result = {"date": now.isoformat(), **machine("benchmarks.vulkan_attention"),
              "targets": targets, "rows": reports}  # fmt: skip
    save(given.out / f"vulkan-{now:%Y-%m-%d}.json", result)
    heads = "".join(f"{t + ' us':>11}{'T/s':>8}{'share':>7}" for t in targets)
    print(f"{'':<31}{heads}{'goal':>6}   (T/s: bytes of a decode, flops of a prefill)")
    print("\n".join(_line(every[n], reports.get(n, {}), targets) for n in names), flush=True)


if __name__ == "__main__":
    main()
