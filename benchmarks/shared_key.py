"""Split keys (a part of each key shared by all heads) read once for many query heads, against the
seed's schedules, which read the shared part once for each: the two kernels of each row take turns
in one process.

    python -m benchmarks.shared_key --target vulkan --out benchmarks/results

Each is compared with f64 first. Times are a step's launches, medians and bests over rounds.
Writes shared-key-<target>-<date>.json; a table comes last. Exits
with 1 where a result is wrong.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np

import poot
from benchmarks.record import save
from poot import ops
from poot.ir.graph import Graph
from poot.ops import Array
from poot.session import Session

WITHIN = 2e-5
KINDS = ("shared_key", "one head")


@dataclass(frozen=True, slots=True)
class Row:
    """A prefill or a decode: batch, query and key heads, query rows, keys, widths of keys and of
    values, and the width of the shared part."""

    batch: int
    heads: int
    kv_heads: int
    rows: int
    keys: int
    width: int
    value_width: int
    shared: int = 64

    @property
    def name(self) -> str:
        return (
            f"B{self.batch} H{self.heads}/{self.kv_heads} Lq{self.rows} L{self.keys} "
            f"{self.width}/{self.value_width}"
        )


LARGE = (
    Row(1, 128, 128, 64, 1024, 192, 128),
    Row(1, 16, 16, 256, 2048, 192, 128),
    Row(8, 128, 1, 1, 4096, 576, 512),
    Row(64, 16, 1, 1, 2048, 576, 512),
)
SMALL = (
    Row(1, 16, 16, 32, 128, 192, 128),
    Row(1, 16, 16, 1, 512, 192, 128),
    Row(1, 16, 1, 1, 512, 576, 512),
)


def graph_of(row: Row) -> Graph:
    def attend(q: Array, own: Array, v: Array, shared: Array) -> object:
        wide = (row.batch, row.kv_heads, row.keys, row.shared)
        k = ops.concat([own, ops.broadcast_to(shared, wide)], 3)
        return ops.attention_prefill(q, k, v, scale=row.width**-0.5, causal=False)

    lead = (row.batch, row.kv_heads, row.keys)
    shapes = (
        (row.batch, row.heads, row.rows, row.width),
        (*lead, row.width - row.shared),
        (*lead, row.value_width),
        (row.batch, 1, row.keys, row.shared),
    )
    return poot.trace(attend, tuple(poot.slot(shape, "f32") for shape in shapes))


def feed_of(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        i.name: rng.standard_normal(i.var.type.shape, np.float32)
        for i in graph.inputs
        if not i.name.startswith("const#")
    }


def reference(row: Row, feed: dict[str, np.ndarray]) -> np.ndarray:
    """The first batch row's result, in f64."""
    q, own, v, shared = (feed[n][0].astype(np.float64) for n in ("q", "own", "v", "shared"))
    repeat = row.heads // row.kv_heads
    k = np.concatenate([own, np.broadcast_to(shared, (row.kv_heads, *shared.shape[1:]))], 2)
    q = q.reshape(row.kv_heads, repeat * row.rows, row.width)
    scores = q @ k.swapaxes(1, 2) * row.width**-0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    out = weights @ v / weights.sum(-1, keepdims=True)
    return out.reshape(row.heads, row.rows, row.value_width)


def opened(graph: Graph, target: str) -> dict[str, tuple[Session, str]]:
    """A session by each schedule, with the schedule's words."""
    out: dict[str, tuple[Session, str]] = {}
    for kind in KINDS:
        if kind == "one head":
            with patch("poot.planner.schedules.shared_key", return_value=None):
                program = poot.compile(graph, target)
        else:
            program = poot.compile(graph, target)
        words = next(x for x in program.explain().splitlines() if "x attention" in x)
        out[kind] = program.bind(), words.strip()
    return out


def measure(row: Row, target: str, rounds: int) -> dict[str, object]:
    graph = graph_of(row)
    feed, made = feed_of(graph), opened(graph, target)
    right = reference(row, feed)
    report: dict[str, object] = {"row": row.name, **asdict(row)}
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for kind, (session, words) in made.items():
        got = np.asarray(session.step(**feed))[0]
        error = float(np.max(np.abs(got - right) / (1 + np.abs(right))))
        report[kind] = {"schedule": words, "error": error, "right": error <= WITHIN}
    for _ in range(rounds):
        for kind, (session, _) in made.items():
            times[kind].append(session.profile(**feed).us)
    for kind in KINDS:
        held = report[kind]
        assert isinstance(held, dict)
        held |= {"us": round(statistics.median(times[kind]), 1), "best": round(min(times[kind]), 1)}
    for session, _ in made.values():
        session.close()
    return report


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="vulkan")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--large", action="store_true", help="rows for a card")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "build")))
    options = parser.parse_args(argv)
    rows = [measure(r, options.target, options.rounds) for r in (LARGE if options.large else SMALL)]
    record = {
        "device": next(
            (d.limits.name for d in poot.devices() if d.name.startswith(options.target)), ""
        ),
        "python": platform.python_version(), "date": time.strftime("%Y-%m-%d"),
        "command": "python -m benchmarks.shared_key " + " ".join(argv or sys.argv[1:]),
        "rows": rows,
    }  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    save(options.out / f"shared-key-{options.target}-{record['date']}.json", record)
    is_right = True
    for report in rows:
        line = [str(report["row"])]
        for kind in KINDS:
            held = report[kind]
            assert isinstance(held, dict)
            is_right = is_right and bool(held["right"])
            line.append(f"{kind}: {held['us']} us (best {held['best']}), error {held['error']:.1e}")
        print("; ".join(line))
    return 0 if is_right else 1


if __name__ == "__main__":
    raise SystemExit(main())
