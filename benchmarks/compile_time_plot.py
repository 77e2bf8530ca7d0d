"""The plot of a compile-time report: one panel a target, seconds by layers, stacked by stage.

python -m benchmarks.compile_time_plot benchmarks/results/compile_time.json

A program of its own: what the plot needs loaded would be measured with the compiler.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib
from matplotlib import pyplot

from benchmarks.compile_time import STAGES


def plot(report: Path) -> Path:
    """Writes the picture beside the report."""
    matplotlib.use("Agg")
    data = json.loads(report.read_text())
    found = data["targets"]
    figure, axes = pyplot.subplots(
        1, len(found), figsize=(4 * len(found), 3.6), squeeze=False, sharey=True
    )
    for axis, (name, rows) in zip(axes[0], found.items(), strict=True):
        layers = [r["layers"] for r in rows]
        axis.stackplot(layers, [[r[stage] for r in rows] for stage in STAGES], labels=STAGES)
        axis.axhline(data["goal_seconds"], color="black", linestyle=":", linewidth=1)
        axis.set_title(f"SmolLM2-135M, {name}")
        axis.set_xlabel("layers")
        axis.set_xlim(0, max(layers))
    axes[0][0].set_ylabel("seconds")
    axes[0][0].legend(loc="upper left")
    figure.tight_layout()
    target = report.with_suffix(".png")
    figure.savefig(target, dpi=110)
    pyplot.close(figure)
    return target


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, nargs="?", help="the JSON that the benchmark wrote")
    options = parser.parse_args()
    print(plot(options.report or Path("benchmarks/results/compile_time.json")))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
