"""How long SmolLM2 takes from trace to plan and kernels, at 8, 16 and 30 layers (all that the file
has): a decode and a prefill entry point, no disk cache, no driver.

python -m benchmarks.compile_time --targets lavapipe h200 --out benchmarks/results/compile_time.json

`python -m benchmarks.compile_time_plot` draws it.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

from benchmarks.record import save
from poot.api import compile
from poot.ir.graph import Graph
from poot.llm.config import LlamaConfig, read_llama_config
from poot.llm.gguf_file import GgufFile, read_gguf
from poot.llm.models.llama import llama_graphs
from tests.support.smollm2 import smollm2_path

LAYERS = (8, 16, 30)
BUCKETS = (1, 64)
CAPACITY = 256
GOAL_SECONDS = 2.0
Counts = tuple[int, int, int]  # eqns, steps, distinct kernels
STAGES = ("trace", "passes", "plan", "kernels")
NAMES = (*STAGES, "total", "busy")


@dataclass(frozen=True, slots=True)
class Row:
    """Medians in seconds of one layer count. `total` is from trace to kernels; `busy` is what the
    processor spent on it, whoever else the machine worked for."""

    layers: int
    trace: float
    passes: float
    plan: float
    kernels: float
    total: float
    busy: float
    spread: float
    eqns: int
    steps: int
    distinct_kernels: int


def graphs_of(file: GgufFile, config: LlamaConfig) -> Mapping[str, Graph]:
    return llama_graphs(file, config, capacity=CAPACITY, buckets=BUCKETS)


def once(file: GgufFile, config: LlamaConfig, target: str) -> tuple[dict[str, float], Counts]:
    """Seconds of one run by stage, and what it made. Nothing of it is held after."""
    start, busy = time.perf_counter(), time.process_time()
    graphs = graphs_of(file, config)
    traced = time.perf_counter()
    program = compile(graphs, target, cache=False)
    end = time.perf_counter()
    parts = {"trace": traced - start, **program.seconds, "total": end - start}
    parts["busy"] = time.process_time() - busy
    eqns = sum(len(g.eqns) for g in graphs.values())
    steps = sum(len(e.steps) for e in program.plan.entries)
    return parts, (eqns, steps, len(program.codes))


def measured(file: GgufFile, layers: int, target: str, runs: int) -> Row:
    """One warm-up, then so many runs; `spread` is the largest total less the least."""
    config = replace(read_llama_config(file), layers=layers)
    found = [once(file, config, target) for _ in range(runs + 1)]
    timed = [parts for parts, _ in found[1:]]
    middle = {name: statistics.median(p[name] for p in timed) for name in timed[0]}
    totals = [p["total"] for p in timed]
    return Row(
        layers,
        *(
            round(middle[name], 4)
            for name in ("trace", "passes", "plan", "kernels", "total", "busy")
        ),
        round(max(totals) - min(totals), 4),
        *found[0][1],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="SmolLM2-135M's GGUF file; else the package's")
    parser.add_argument("--targets", nargs="+", default=["lavapipe"], help="limits profiles")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/compile_time.json"))
    options = parser.parse_args()
    file = read_gguf(options.model or smollm2_path())
    found = {
        target: [measured(file, n, target, options.runs) for n in LAYERS]
        for target in options.targets
    }
    for target, rows in found.items():
        show(target, rows)
    report = {
        "command": " ".join(["python", "-m", "benchmarks.compile_time", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {processor()}",
        "python": platform.python_version(),
        "goal_seconds": GOAL_SECONDS,
        "targets": {target: [asdict(r) for r in rows] for target, rows in found.items()},
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    save(options.out, report)
    return 0


def show(target: str, rows: list[Row]) -> None:
    """The rows as a table, and how much each layer more takes."""
    print(f"{target}\n{'layers':>6}" + "".join(f" {name:>7}" for name in NAMES))
    for r in rows:
        numbers = "".join(f" {getattr(r, n):7.3f}" for n in NAMES)
        print(f"{r.layers:>6}{numbers} s  {r.distinct_kernels} kernels, {r.steps} steps")
    per_layer = [(b.busy - a.busy) / (b.layers - a.layers) for a, b in pairwise(rows)]
    growth = ", ".join(f"{1000 * x:.1f}" for x in per_layer)
    last = rows[-1]
    verdict = "within" if last.total <= GOAL_SECONDS else "over"
    print(f"milliseconds a layer, busy: {growth}; {last.total:.2f} s is {verdict} {GOAL_SECONDS} s")


def processor() -> str:
    """The processor's name as Linux tells it, or what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    raise SystemExit(main())
