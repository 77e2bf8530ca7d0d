"""What a decode costs at each live length of one capacity, dense and paged: one step that appends a
row to a cache and attends over what is live: on the CPU timed launch by launch, on a card as
replays back to back, since events between launches cost more there than a short decode.

    python -m benchmarks.live_length --target cpu --out benchmarks/results

Writes live-length-<target>-<date>.json, which `benchmarks.live_length_plot` draws. Times are
medians over rounds in which every case takes its turn. "ordered" is paged
with a map whose blocks lie in order, which tells what the schedule costs from what memory in random
order costs. Exits with 1 where length 1024 costs more than 0.15 of the whole capacity, or paged
more than 1.1 of dense.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import poot
from benchmarks.record import save
from poot import ops
from poot.backends.cpu.machine import description
from poot.backends.cuda.device import CudaDevice
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Graph
from poot.ops import Array
from poot.session import Session
from poot.slots import ForwardSlotMap

LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)
BLOCK = 16
MOST_SHARE, MOST_PAGED = 0.15, 1.1
REPLAYS = 50


@dataclass(frozen=True, slots=True)
class Size:
    """A decode: rows of a batch, query and key heads, their width, the cache's rows, its dtype."""

    batch: int
    heads: int
    kv_heads: int
    width: int
    capacity: int = 32768
    dtype: str = "f32"


SIZES = {"cpu": Size(1, 16, 4, 64), "cuda": Size(8, 32, 8, 128, dtype="f16")}
KINDS = ("dense", "paged", "ordered")


def dense(size: Size) -> Graph:
    def step(kv: tuple[Array, Array], new: tuple[Array, Array], q: Array, pos: Array) -> object:
        k, v = (
            ops.dynamic_update_slice(held, x, pos, axis=2) for held, x in zip(kv, new, strict=True)
        )
        return ops.attention_live(q, k, v, pos + 1, scale=size.width**-0.5), (k, v)

    row = poot.slot((size.batch, size.kv_heads, 1, size.width), size.dtype)
    cache = poot.state((size.batch, size.kv_heads, size.capacity, size.width), size.dtype)
    return poot.trace(step, ((cache, cache), (row, row), _query(size), _positions(size)))


def paged(size: Size) -> Graph:
    slots = (size.batch * size.capacity // BLOCK + 1) * BLOCK

    def step(
        pools: tuple[Array, Array],
        new: tuple[Array, Array],
        q: Array,
        pos: Array,
        read: Array,
        write: Array,
    ) -> object:
        pools = tuple(
            ops.scatter_update(pool, x, write) for pool, x in zip(pools, new, strict=True)
        )
        k, v = (ops.take(pool, read, 0).transpose(0, 2, 1, 3) for pool in pools)
        return ops.attention_live(q, k, v, pos + 1, scale=size.width**-0.5), pools

    pool = poot.state((slots, size.kv_heads, size.width), size.dtype)
    row = poot.slot((size.batch, size.kv_heads, size.width), size.dtype)
    read = poot.slot((size.batch, size.capacity), "i32", kind="slot_map", range=(0, slots))
    write = poot.slot((size.batch,), "i32", kind="write_map", range=(-1, slots))
    specs = ((pool, pool), (row, row), _query(size), _positions(size), read, write)
    return poot.trace(step, specs)


def _query(size: Size) -> object:
    return poot.slot((size.batch, size.heads, 1, size.width), size.dtype)


def _positions(size: Size) -> object:
    return poot.slot((size.batch,), "i32", kind="pos", range=(0, size.capacity))


def table(size: Size, kind: str = "paged") -> np.ndarray:
    """A map of blocks in random order, or in order; block 0 is nobody's."""
    blocks = size.batch * size.capacity // BLOCK
    order = 1 + np.random.default_rng(0).permutation(blocks)
    order = np.sort(order) if kind == "ordered" else order
    words = order[:, None] * BLOCK + np.arange(BLOCK)
    return words.reshape(size.batch, size.capacity).astype(np.int32)


def opened(
    kind: str, size: Size, target: str
) -> tuple[Session, Callable[[int], dict[str, object]]]:
    """A session with a full cache, and the slots of a step at a length."""
    graph = dense(size) if kind == "dense" else paged(size)
    session = poot.compile(graph, target).bind()
    rng, held = np.random.default_rng(1), DTYPES[size.dtype].numpy
    for name, i in session.state_inputs.items():
        session.state[name] = rng.standard_normal(i.var.type.shape, np.float32).astype(held)
    fixed: dict[str, object] = {}
    for i in graph.inputs:
        if i.name in ("q", "new.0", "new.1"):
            fixed[i.name] = rng.standard_normal(i.var.type.shape, np.float32).astype(held)
    read = table(size, kind)
    pool = (size.batch * size.capacity // BLOCK + 1) * BLOCK
    if kind != "dense":
        fixed["read"] = read

    def slots(length: int) -> dict[str, object]:
        at: dict[str, object] = {"pos": np.full(size.batch, length - 1, np.int32)}
        if kind != "dense":
            at["write"] = ForwardSlotMap(read[:, length - 1], pool)
        return at

    if target == "cuda":
        session.capture()
    session.step(**fixed, **slots(size.capacity))
    return session, slots


def step_us(session: Session, slots: dict[str, object]) -> float:
    """Microseconds of a step's launches."""
    device = session.program.device
    if not isinstance(device, CudaDevice):
        return session.profile(**slots).us
    session.step(device_outputs=True, **slots)
    device.synchronize()
    start = time.perf_counter()
    for _ in range(REPLAYS):
        session.runner.run("main")
    device.synchronize()
    return 1e6 * (time.perf_counter() - start) / REPLAYS


def measure(target: str, size: Size, rounds: int) -> dict[str, dict[int, list[float]]]:
    """Microseconds of a step's launches, by kind and length."""
    made = {kind: opened(kind, size, target) for kind in KINDS}
    times: dict[str, dict[int, list[float]]] = {k: {n: [] for n in LENGTHS} for k in KINDS}
    for n in range(rounds + 1):
        for length in LENGTHS:
            for kind, (session, slots) in made.items():
                us = step_us(session, slots(length))
                if n:
                    times[kind][length].append(us)
    for session, _ in made.values():
        session.close()
    return times


def verdicts(middle: dict[str, dict[int, float]]) -> dict[str, dict[str, object]]:
    """What was asked, the figure, and whether it holds."""
    rows: dict[str, dict[str, object]] = {}
    for kind in KINDS:
        share = middle[kind][LENGTHS[0]] / middle[kind][LENGTHS[-1]]
        rows[f"{kind}: {LENGTHS[0]} of {LENGTHS[-1]}"] = {
            "figure": round(share, 4), "most": MOST_SHARE, "holds": share <= MOST_SHARE,
        }  # fmt: skip
    for kind in KINDS[1:]:
        ratio = middle[kind][LENGTHS[-1]] / middle["dense"][LENGTHS[-1]]
        rows[f"{kind} to dense"] = {
            "figure": round(ratio, 4), "most": MOST_PAGED, "holds": ratio <= MOST_PAGED,
        }  # fmt: skip
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cpu", choices=tuple(SIZES))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "build")))
    options = parser.parse_args(argv)
    size, load = SIZES[options.target], os.getloadavg()[0]
    times = measure(options.target, size, options.rounds)
    middle = {k: {n: statistics.median(x) for n, x in row.items()} for k, row in times.items()}
    rows = verdicts(middle)
    record = {
        "machine": description() if options.target == "cpu" else _card(options.target),
        "python": platform.python_version(), "date": time.strftime("%Y-%m-%d"),
        "command": "python -m benchmarks.live_length " + " ".join(argv or sys.argv[1:]),
        "load at start": load, "size": asdict(size), "asked": rows,
        "us": {
            kind: {
                str(n): {
                    "median": round(middle[kind][n], 1), "best": round(min(x), 1),
                    "worst": round(max(x), 1), "rounds": len(x),
                }
                for n, x in row.items()
            }
            for kind, row in times.items()
        },
    }  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    base = options.out / f"live-length-{options.target}-{record['date']}"
    save(base.with_suffix(".json"), record)
    for kind in KINDS:
        print(kind, " ".join(f"{n}: {us:.0f} us" for n, us in middle[kind].items()))
    for name, row in rows.items():
        print(name, row)
    return 0 if all(row["holds"] for row in rows.values()) else 1


def _card(target: str) -> str:
    """The name of the first such device."""
    return next((d.limits.name for d in poot.devices() if d.name.startswith(target)), target)


if __name__ == "__main__":
    raise SystemExit(main())
