"""Draws a record of `benchmarks.live_length`: python -m benchmarks.live_length_plot FILE.json"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib import pyplot


def plot(record: Path) -> Path:
    """Microseconds of a step over the live length; the picture lies beside the record."""
    matplotlib.use("Agg")
    held = json.loads(record.read_text())
    figure, axis = pyplot.subplots(figsize=(6, 4))
    for kind, row in held["us"].items():
        medians = [figures["median"] for figures in row.values()]
        axis.plot([int(n) for n in row], medians, marker="o", label=kind)
    axis.set_xlabel("live length")
    axis.set_ylabel("us a step")
    axis.set_title(f"one decode, capacity {held['size']['capacity']}, {held['machine'][:48]}")
    axis.set_ylim(bottom=0)
    axis.legend()
    figure.tight_layout()
    figure.savefig(record.with_suffix(".png"), dpi=110)
    return record.with_suffix(".png")


def main(argv: Sequence[str]) -> int:
    for name in argv:
        print(plot(Path(name)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
