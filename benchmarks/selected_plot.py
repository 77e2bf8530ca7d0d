"""Draws a record of `benchmarks.selected_card`: python -m benchmarks.selected_plot FILE.json"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib import pyplot

LAUNCHES = ("scores", "topk", "attention", "chain", "dense")


def plot(record: Path) -> Path:
    """Microseconds of each launch, of all in a row and of dense attention, by batch; the picture
    lies beside the record."""
    matplotlib.use("Agg")
    held = json.loads(record.read_text())
    batches = [name for name in held if name.startswith("batch ")]
    figure, axes = pyplot.subplots(1, len(batches), figsize=(4 * len(batches), 4))
    for axis, name in zip(axes, batches, strict=True):
        us = [held[name]["rows"][launch]["us"] for launch in LAUNCHES]
        bars = axis.bar(LAUNCHES, us)
        axis.bar_label(bars, [f"{x:.0f}" if x > 30 else f"{x:.1f}" for x in us])
        axis.set_yscale("log")
        axis.set_title(f"{name}: {us[-1] / us[-2]:.1f} times faster than dense")
        axis.tick_params(axis="x", rotation=30)
    axes[0].set_ylabel("us")
    figure.suptitle(f"a selected decode, 131072 keys, 512 blocks of 4, {held['machine']}")
    figure.tight_layout()
    figure.savefig(record.with_suffix(".png"), dpi=110)
    return record.with_suffix(".png")


def main(argv: Sequence[str]) -> int:
    for name in argv:
        print(plot(Path(name)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
